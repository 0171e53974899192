"""The pages at /_ui: the first one with many queues, and what those who look cost posts."""

from __future__ import annotations

import http.client
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.harness.suite import Suite
from tests.http.helpers import Wire

from .. import fill
from ..bench import QUEUE, Bench
from ..measure import Bar, Measure, Outcome, number, rate, ratios
from ..procfs import cpu_seconds

_CONNECTIONS = 64
_PATIENCE_S = 60.0
_ROWS = 100  # of the first page
_NOBODY = "nobody looks"
# How many look at which page.
_LOOKS = {
    _NOBODY: (0, ""),
    "1 looks at all queues": (1, "/_ui/queues"),
    "64 look at all queues": (64, "/_ui/queues"),
    "64 look at the queue": (64, f"/_ui/q/{QUEUE}"),
}
_STREAM = {"Accept": "text/event-stream"}


def first_page(bench: Bench) -> Outcome:
    """GET /_ui/queues with many queues and messages, after their survey."""
    queues, each = bench.sizes.few, max(1, bench.sizes.many // bench.sizes.few)

    def fill_all(root: Path) -> None:
        for tenant in range(queues):
            fill.ready(root, each, 16, f"tenant-{tenant:04}")

    with bench.suite(processes=1, mover=True, fill=fill_all) as suite:
        _page(suite, queues)  # it surveys, which is kept for twenty times as long as it takes
        took = [_page(suite, queues) for _ in range(5 * bench.repeat)]
    return Outcome(
        [
            Measure(
                f"the page of {queues:,} queues and {queues * each:,} messages, after the survey",
                took,
                unit="ms",
                bar=Bar("<=", 300.0, "ms"),
                note="a page of 100 rows",
            )
        ]
    )


def _page(suite: Suite, queues: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", suite.port, timeout=600)
    started = time.perf_counter()
    connection.request("GET", "/_ui/queues")
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, answer.status
    assert text.count(b"<tr id=") >= min(_ROWS, queues), "it shows too few queues"
    connection.close()
    return (time.perf_counter() - started) * 1000


def cost_of_viewers(bench: Bench) -> Outcome:
    """POST over 64 connections while 0, 1 and 64 look at all queues, or at the queue."""
    rates: dict[str, list[float]] = {}
    cpu_us: dict[str, list[float]] = {}
    for _ in range(bench.repeat):
        for looks, (viewers, path) in _LOOKS.items():
            # A fresh one each time: a survey takes the longer the more there is.
            with (
                bench.suite(processes=1, mover=True) as suite,
                _looking(suite, viewers, path),
            ):
                before = cpu_seconds(suite["mq"].pid)
                load = replace(bench, warm_up=0.0).load(
                    suite, "post", _CONNECTIONS, bench.sizes.body
                )
                used = cpu_seconds(suite["mq"].pid) - before
            rates.setdefault(looks, []).append(load.rate)
            cpu_us.setdefault(looks, []).append(used * 1e6 / max(load.requests, 1))
    return Outcome([m for looks in list(_LOOKS)[1:] for m in _measures(looks, rates, cpu_us)])


def _measures(
    looks: str, rates: dict[str, list[float]], cpu_us: dict[str, list[float]]
) -> list[Measure]:
    return [
        Measure(
            f"posts a second while {looks}, against none",
            ratios(rates[looks], rates[_NOBODY]),
            bar=Bar(">=", 0.95),
            measured=rate(rates[looks]),
            against=rate(rates[_NOBODY]),
            note="mq --processes=1",
        ),
        Measure(
            f"CPU time of mq for a post while {looks}, against none",
            ratios(cpu_us[looks], cpu_us[_NOBODY]),
            measured=number(statistics.median(cpu_us[looks]), "µs"),
            against=number(statistics.median(cpu_us[_NOBODY]), "µs"),
            note="of the same runs",
        ),
    ]


@contextmanager
def _looking(suite: Suite, viewers: int, path: str) -> Iterator[None]:
    """So many browsers, which have got what they are sent first, and read what comes."""
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        waiting = set()
        for _ in range(viewers):
            wire = stack.enter_context(Wire(suite.url, timeout=600))
            wire.request("GET", path, _STREAM)
            ready.register(wire.socket, selectors.EVENT_READ)
            waiting.add(wire.socket)
        begun, ended = threading.Event(), threading.Event()

        def read() -> None:
            while not ended.is_set():
                if not waiting:
                    begun.set()
                for key, _ in ready.select(0.1):
                    assert isinstance(key.fileobj, socket.socket)
                    if b"data: " in key.fileobj.recv(1 << 20):
                        waiting.discard(key.fileobj)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert begun.wait(_PATIENCE_S), f"{len(waiting)} of {viewers} got nothing"
            yield
        finally:
            ended.set()
            reader.join()
