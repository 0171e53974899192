"""The same server with the fast path and without it, to compare their answers."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from fsmq.http.guard.limits import Limits
from tests.harness.suite import eventually
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside, alike

KIB = 1024
# The limit of bodies, and the timeout of the hasty servers.
LIMIT = 96 * KIB
READ_S = 0.3
HEAD_S = 0.4
HASTY = {"limits": Limits(header_timeout=HEAD_S), "read_timeout": READ_S}
_queues = count(1)
_ID = "01900000-0000-7000-8000-0000000000{:02}"


class Told(NamedTuple):
    """The part of an answer that two servers have in common."""

    status: int
    headers: list[tuple[str, str]]
    body: str


# A request, or a function that makes it from the bodies of earlier answers.
Step: TypeAlias = "bytes | Callable[[list[bytes]], bytes]"
# Settings that concern the engine, which all dialects share.
each_setting = pytest.mark.parametrize(
    "given",
    [
        {"default_delay": 5},
        {"max_message_bytes": 3},
        {"max_depth": 2},
        {"compress": True},
        {"visibility_timeout": 0},
        {"max_in_flight": 1},
        {"paused": True},
        {"fifo": True},
        {"max_deliveries": 1, "dead_letter_queue": "dead"},
        {"claim_order": "fair"},
        {"sqs": {"ReceiveMessageWaitTimeSeconds": "0"}},
        {"no-setting": 1},
    ],
    ids=str,
)


class Pair:
    """One server with the fast path and one without it, each on its own root."""

    def __init__(self, quick: Inside, plain: Inside) -> None:
        self.both = (quick, plain)
        self.quick, self.plain = self.both

    def queue(self, ready: Sequence[bytes] = (), suffix: str = "", **settings: object) -> str:
        """A queue in use on both. Names without their suffix have the same length."""
        name = f"q{next(_queues):04}{suffix}"
        for one in self.both:
            one.queue(name, ready=ready)
            if settings:
                path = one.root / "config" / f"{name}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(settings))
            one.load(name)
        return name

    def filled(self, *bodies: bytes, **settings: object) -> str:
        """A queue in use on both, with the same ready messages."""
        name = self.queue(**settings)
        for one in self.both:
            one.fill(name, {_ID.format(at): body for at, body in enumerate(bodies)})
        return name

    def fail_syncs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let all syncs of both fail from now on."""

        def fail(group: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        for one in self.both:
            monkeypatch.setattr(one.spool.syncer, "run_only", fail)

    def talk(self, *steps: Step) -> list[Told]:
        """Send steps on one connection each; the answers have to be the same."""
        quick, plain = (talk(one, steps) for one in self.both)
        assert quick == plain, (quick, plain)
        assert self.quick.tree() == self.plain.tree()
        eventually(lambda: all(map(Inside.holds_nothing, self.both)))
        return quick

    def compare(self, *requests: bytes) -> list[Told]:
        """Send requests on one connection each; the answers have to be the same."""
        quick, plain = (exchange(one, requests) for one in self.both)
        assert quick == plain, (quick, plain)
        assert self.quick.tree() == self.plain.tree()
        # An answer's memory is free a moment after its last byte is written.
        eventually(lambda: all(one.admission.memory == 0 for one in self.both))
        return quick


def talk(server: Inside, steps: Sequence[Step]) -> list[Told]:
    """Send steps one by one on one connection, and read their answers."""
    bodies: list[bytes] = []
    told = []
    with Wire(server.url) as wire:
        for step in steps:
            try:
                wire.send(step if isinstance(step, bytes) else step(bodies))
                answer = wire.answer()
            except (AssertionError, OSError):
                return [*told, Told(0, [], "closed")]
            bodies.append(answer.body)
            told.append(tell(answer))
    return told


def exchange(server: Inside, requests: Sequence[bytes]) -> list[Told]:
    told: list[Told] = []
    in_step = request("GET /_health/live", "X-Other: 1")
    with Wire(server.url) as wire:
        for data in (*requests, in_step):
            try:
                wire.send(data)
            except OSError:
                pass  # it was refused before its end
            try:
                told.append(tell(wire.answer(head=data.startswith(b"HEAD"))))
                if told[-1].status == 100:
                    told.append(tell(wire.answer()))
            except (AssertionError, OSError):
                return [*told, Told(0, [], "closed")]
    return told


def tell(answer: Answer) -> Told:
    headers = sorted((k, alike(v)) for k, v in answer.headers.items() if k != "Date")
    return Told(answer.status, headers, alike(answer.body.decode("latin-1")))


def request(line: str, *lines: str, body: bytes = b"", host: str | None = "localhost") -> bytes:
    """A request; the length of the body is added unless a line has it."""
    head = [f"{line} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *lines]
    if body and not any(one.lower().startswith(("content-l", "transfer")) for one in lines):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


@contextmanager
def pair_of(folder: Path, **options: Any) -> Iterator[Pair]:
    """Two running servers with the same options; HASTY ones have short timeouts."""
    quick = Inside(folder / "quick", **options)
    with quick, Inside(folder / "plain", fast_path=False, **options) as plain:
        yield Pair(quick, plain)
