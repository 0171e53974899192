"""A host whose clock is set an hour forward and back while its programs run.

libfaketime gives the programs another time of day. Their monotonic clocks and the times of files
stay real, as on a host with a wrong clock.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from fsmq.spool.layout.names import Facts, facts
from tests.harness.suite import PATIENCE_S, Suite
from tests.http.helpers import Wire

HOUR_S, TIMER_S = 3600, 30  # the timer is longer than a busy machine needs to set the clock


class Host:
    """A suite, a connection to it, and the clock that its programs see."""

    def __init__(self, suite: Suite, wire: Wire, offset: Path, queue: str) -> None:
        self.suite = suite
        self.wire = wire
        self._offset = offset
        self.queue = queue

    def set_clock(self, seconds: int) -> None:
        """Set the offset of the clock."""
        draft = self._offset.with_suffix(".draft")
        draft.write_text(f"{seconds:+d}")
        draft.rename(self._offset)

    def post(self, message_id: str, more: str = "") -> None:
        path = f"/{self.queue}/messages?id={message_id}{more}"
        assert self.wire.ask("POST", path, {}, message_id.encode()).status == 201

    def post_new(self, more: str = "") -> Facts:
        """Post a message without an own id; the facts in its id."""
        answer = self.wire.ask("POST", f"/{self.queue}/messages?{more}", {}, b"x")
        assert answer.status == 201
        return facts(answer.id)

    def ask(self, method: str, message: str) -> int:
        """Send a request about a message; the status."""
        return self.wire.ask(method, f"/{self.queue}/messages/{message}").status

    def fetch(self, *wanted: str, visibility: int = 600) -> None:
        """Fetch until exactly these messages have been delivered."""
        started, left = time.monotonic(), set(wanted)
        while left:
            path = f"/{self.queue}/messages?wait=5&visibility={visibility}"
            answer = self.wire.ask("GET", path)
            assert time.monotonic() - started < PATIENCE_S, f"{left} do not come"
            if answer.status == 200:
                left.remove(answer.headers["X-Message-Id"])

    def is_empty(self, wait: float) -> bool:
        """Whether no message is delivered for some seconds."""
        end = time.monotonic() + wait
        while (left := end - time.monotonic()) > 0:
            path = f"/{self.queue}/messages?wait={min(left, 10.0)}"
            if self.wire.ask("GET", path).status != 204:
                return False
        return True


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Path]]:
    """A suite, and the file with the offset of its clock."""
    libfaketime = pytest.importorskip("libfaketime", reason="the package libfaketime is missing")
    [library] = Path(libfaketime.__file__).parent.rglob("libfaketime*.so.1")
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        pytest.skip(f"libfaketime was built for another machine: {error}")
    folder = tmp_path_factory.mktemp("clock")
    offset = folder / "offset"
    offset.write_text("+0")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LD_PRELOAD", str(library))
        patched.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
        patched.setenv("FAKETIME_NO_CACHE", "1")
        patched.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        with Suite(folder / "mq") as suite:
            patched.delenv("LD_PRELOAD")
            yield suite, offset


@pytest.fixture
def host(running: tuple[Suite, Path], queue: str) -> Iterator[Host]:
    suite, offset = running
    with Wire(suite.url) as wire:
        host = Host(suite, wire, offset, queue)
        host.set_clock(0)
        yield host
        for program in ("mq", "mover", "reaper"):
            assert suite[program].is_running()
            assert [e for e in suite.logs(program) if e.get("level") == "error"] == []


@pytest.fixture
def queue(running: tuple[Suite, Path]) -> str:
    """A new queue."""
    name = f"q{next(_numbers)}"
    with Wire(running[0].url) as wire:
        assert wire.ask("PUT", f"/{name}").status == 201
    return name


_numbers = count(1)


def test_timers_end_at_once_when_the_clock_is_set_forward(host: Host) -> None:
    host.post("held")
    host.fetch("held")
    host.post("delayed", "&delay=600")
    assert host.is_empty(0.2)
    host.set_clock(HOUR_S)
    host.fetch("held", "delayed")
    host.post("after")
    host.fetch("after")
    for message_id in ("held", "delayed", "after"):
        assert host.ask("DELETE", message_id) == 202


def test_timers_last_longer_when_the_clock_is_set_back(host: Host) -> None:
    host.post("held")
    host.fetch("held", visibility=TIMER_S)
    host.post("delayed", f"&delay={TIMER_S}")
    host.set_clock(-HOUR_S)
    host.post("after")
    host.fetch("after")
    assert host.is_empty(TIMER_S + 1)
    assert host.ask("DELETE", "after") == 202
    # A release ends the wait, and so does setting the clock right.
    assert host.ask("PATCH", "held?visibility=0") == 204
    host.fetch("held", visibility=TIMER_S)
    host.set_clock(0)
    host.fetch("held", "delayed")


def test_ids_and_expiries_are_right_once_the_clock_is(host: Host) -> None:
    host.set_clock(HOUR_S)
    first, ahead = time.time(), host.post_new()
    host.set_clock(0)
    before, right, after = time.time(), host.post_new("ttl=60"), time.time()
    assert ahead.created_ms is not None
    assert right.created_ms is not None
    assert ahead.created_ms / 1000 > first + HOUR_S - 1
    assert before - 0.001 <= right.created_ms / 1000 <= after
    assert right.expires_s is not None
    assert before + 60 <= right.expires_s <= after + 61
