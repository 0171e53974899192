"""The ways of docs/architecture.md, walked: what happens passes its steps, in their order."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

from fsmq import Spool
from fsmq.spool.log.upkeep import Upkeep
from fsmq.spool.mover.delivery import Delivery
from fsmq.spool.reaper import Reaper
from tests.harness.suite import HOME
from tests.http.helpers import Wire
from tests.http.inside import Inside

FSMQ = str(HOME / "fsmq") + "/"
# What a step says from here on happens in other cases.
OTHERWISE = re.compile(r"\b(?:Else|If|or)\b")


def steps(title: str) -> list[str]:
    """The functions that the numbered steps below a title name, but for those of other cases."""
    page = (HOME / "docs" / "architecture.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    named = (re.findall(r"`((?:\w+/)*\w+\.py: [\w.]+)`", OTHERWISE.split(one)[0]) for one in found)
    return [name for names in named for name in names if is_function(name)]


def is_function(name: str) -> bool:
    return not re.split(r"[ .]", name)[-1][0].isupper()


class Walk:
    """Every call of a function of fsmq, in any thread, in order; ``path.py: Class.method``."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FSMQ):
            path = frame.f_code.co_filename.removeprefix(FSMQ)
            self.calls.append(f"{path}: {frame.f_code.co_qualname}")

    def passes(self, title: str) -> None:
        """Check that what has been called since the last time is this way. It is forgotten."""
        calls, self.calls = iter(self.calls), []
        expected = steps(title)
        assert len(expected) > 2
        passed = []
        for step in expected:
            assert step in calls, f"{title}: after {passed}, {step} was not called"
            passed.append(step)


@contextmanager
def walked() -> Iterator[Walk]:
    """Note what this thread calls, and all that are started meanwhile."""
    walk, before = Walk(), sys.getprofile()
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_a_message_over_http(tmp_path: Path) -> None:
    with walked() as walk, Inside(tmp_path, sync="syncfs", journal=True) as server:
        server.queue("q")
        server.load("q")
        with Wire(server.url) as wire:
            wire.request("POST", "/q/messages", body=b"hi")
            assert wire.answer().status == 201
            walk.passes("How a POST is handled")
            server.seen("q", 1)
            wire.request("GET", "/q/messages")
            got = wire.answer()
            assert (got.status, got.body) == (200, b"hi")
            walk.passes("How a GET is handled")
            wire.request("DELETE", f"/q/messages/{got.id}")
            assert wire.answer().status == 202
            Reaper(server.spool.tree).run()
            walk.passes("How an acknowledgement is handled")


def test_a_timer(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.create_queue("q")
        queue = spool.queue("q")
        message_id = queue.put(b"hi")
        assert queue.claim(visibility=0.5)
        with walked() as walk, closing(Delivery(spool.context)) as delivery:
            while delivery.step() == 0:
                time.sleep(min(delivery.timeout(), 0.1))
            assert [message.id for message in queue.peek()] == [message_id]
        walk.passes("How a timer ends")


def test_a_message_through_a_log(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        log = spool.log("l")
        log.create(retain_for=0.001, segment_bytes=1024 * 1024)
        channel = log.channel("c")
        channel.create("first")
        with walked() as walk:
            log.publish(b"hi")
            [message] = channel.claim()
            channel.ack_each([message])
            Upkeep(spool.open_logs).step()
        walk.passes("How a log handles a message")
