"""A real mq sends its counters to a statsd listener."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.daemons.statsd import Statsd
from fsmq.spool.records.metrics import Metrics
from tests.harness.suite import PATIENCE_S, Suite
from tests.http.helpers import Wire


class Listener:
    """A statsd server: the sums of the counters and gauges that it received."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE_S)
        self.counters: dict[str, int] = {}
        self.gauges: dict[str, int] = {}
        self.lines: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    def listen(self) -> None:
        """Receive one datagram."""
        data = self.socket.recv(65536)
        assert len(data) <= 1432
        for line in data.decode().split("\n"):
            self.lines.append(line)
            found = re.fullmatch(r"([^:|@]+):([+-]?\d+)\|([cg])(\|#.*)?", line)
            assert found, line
            key, value, kind, tags = found.groups()
            key += tags or ""
            if kind == "c":
                self.counters[key] = self.counters.get(key, 0) + int(value)
            elif value[0] in "+-":
                self.gauges[key] = self.gauges.get(key, 0) + int(value)
            else:
                self.gauges[key] = int(value)


@pytest.fixture
def statsd() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.socket.close()


def life(wire: Wire, queue: str) -> None:
    """Send four messages, receive three of them in one batch, delete one of the three."""
    wire.ask("PUT", f"/v1/queues/{queue}")
    for n in range(3):
        wire.ask("PUT", f"/v1/queues/{queue}/message", body=b"%d" % n)
    # With two processes, the one that is asked may not see all messages at first.
    while len(wire.ask("GET", f"/{queue}/peek?count=10").json["messages"]) < 3:
        pass
    while not (batch := wire.ask("GET", f"/v1/queues/{queue}/messages/10").json):
        pass
    wire.ask("PUT", f"/v1/queues/{queue}/message", body=b"3")
    wire.ask("DELETE", f"/v1/queues/{queue}/message/{batch[0]['id']}")


def options(statsd: Listener, *more: str) -> list[str]:
    return ["--stats=statsd", f"--stats-address={statsd.address}", "--stats-interval=0.2", *more]


@pytest.mark.parametrize(
    ("prefix", "more"), [("fsmq.", ()), ("dynamiq.", ("--stats-prefix=dynamiq.",))]
)
def test_keys_are_those_of_dynamiq_with_a_prefix(
    root: Path, statsd: Listener, prefix: str, more: tuple[str, ...]
) -> None:
    mq_options = options(statsd, *more)
    with Suite(root, mq_options=mq_options, reaper=False) as suite, Wire(suite.url) as wire:
        life(wire, "a:b")
        want = {"sent": 4, "received": 3, "deleted": 1}
        counters = {f"{prefix}a_b.{word}.count": number for word, number in want.items()}
        gauges = {"depth": 3, "approximate_depth": 3, "fill": 30}
        gauges = {f"{prefix}a_b.{word}.count": number for word, number in gauges.items()}
        while statsd.counters != counters or statsd.gauges != gauges:
            statsd.listen()


def test_tags_can_be_those_of_dogstatsd(root: Path, statsd: Listener) -> None:
    more = ("--stats-tags=dogstatsd", "--stats-prefix=mq.", "--node=here", "--processes=2")
    mq_options = options(statsd, *more)
    with Suite(root, mq_options=mq_options, reaper=False) as suite, Wire(suite.url) as wire:
        life(wire, "a:b")
        tags = "|#queue:a:b,node:here"
        while (
            statsd.counters.get(f"mq.sent.count{tags}") != 4
            or statsd.gauges.get(f"mq.depth.count{tags}") != 3
        ):
            statsd.listen()


async def test_many_queues_take_several_datagrams() -> None:
    metrics = Metrics()
    for n in range(200):
        metrics.count(("put", f"queue-{n}"), 2)
    sender = Statsd(metrics, "fsmq.", "none", "here", None)
    lines = await sender.lines()
    assert len(lines) == 400
    assert "fsmq.queue-7.sent.count:2|c" in lines
    assert "fsmq.queue-7.depth.count:+2|g" in lines
    metrics.count(("remove", "queue-7"), 3)
    assert set(await sender.lines()) == {
        "fsmq.queue-7.deleted.count:3|c",
        "fsmq.queue-7.depth.count:-3|g",
    }
    assert await sender.lines() == []


def test_a_missing_listener_is_no_error(root: Path) -> None:
    mq_options = ["--stats=statsd", "--stats-address=127.0.0.1:9", "--stats-interval=0.1"]
    suite = Suite(root, mq_options=mq_options, mover=False, reaper=False)
    with suite, Wire(suite.url) as wire:
        wire.ask("PUT", "/jobs")
        for n in range(20):
            assert wire.ask("POST", "/jobs/messages", body=b"%d" % n).status == 201
