"""The code calls the steps that docs/architecture.md lists, in their order."""

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
# The rest of a step is about other cases.
OTHERWISE = re.compile(r"\b(?:Else|If|or)\b")


def steps(title: str) -> list[str]:
    """The functions that the numbered steps below a title name, without other cases."""
    page = (HOME / "docs" / "architecture.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    named = (re.findall(r"`((?:\w+/)*\w+\.py: [\w.]+)`", OTHERWISE.split(one)[0]) for one in found)
    return [name for names in named for name in names if is_function(name)]


def is_function(name: str) -> bool:
    return not re.split(r"[ .]", name)[-1][0].isupper()


class Trace:
    """The calls of functions of fsmq, in all threads, as ``path.py: Class.method``."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FSMQ):
            path = frame.f_code.co_filename.removeprefix(FSMQ)
            self.calls.append(f"{path}: {frame.f_code.co_qualname}")

    def check(self, title: str) -> None:
        """Check the calls since the last check against the steps below a title."""
        calls, self.calls = iter(self.calls), []
        expected = steps(title)
        assert len(expected) > 2
        for number, step in enumerate(expected):
            assert step in calls, f"{title}: after {expected[:number]}, {step} was not called"


@contextmanager
def traced() -> Iterator[Trace]:
    """Record the calls of this thread, and of threads that start meanwhile."""
    trace, before = Trace(), sys.getprofile()
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_requests_follow_their_steps(tmp_path: Path) -> None:
    with traced() as trace, Inside(tmp_path, sync="syncfs", journal=True) as server:
        server.queue("q")
        server.load("q")
        with Wire(server.url) as wire:
            wire.request("POST", "/q/messages", body=b"hi")
            assert wire.answer().status == 201
            trace.check("How a POST is handled")
            server.seen("q", 1)
            wire.request("GET", "/q/messages")
            got = wire.answer()
            assert (got.status, got.body) == (200, b"hi")
            trace.check("How a GET is handled")
            wire.request("DELETE", f"/q/messages/{got.id}")
            assert wire.answer().status == 202
            Reaper(server.spool.tree).run()
            trace.check("How an acknowledgement is handled")


def test_the_end_of_a_timer_follows_its_steps(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.create_queue("q")
        queue = spool.queue("q")
        message_id = queue.put(b"hi")
        assert queue.claim(visibility=0.5)
        with traced() as trace, closing(Delivery(spool.context)) as delivery:
            while delivery.step() == 0:
                time.sleep(min(delivery.timeout(), 0.1))
            assert [message.id for message in queue.peek()] == [message_id]
        trace.check("How a timer ends")


def test_a_message_of_a_log_follows_its_steps(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        log = spool.log("l")
        log.create(retain_for=0.001, segment_bytes=1024 * 1024)
        channel = log.channel("c")
        channel.create("first")
        with traced() as trace:
            log.publish(b"hi")
            [message] = channel.claim()
            channel.ack_each([message])
            Upkeep(spool.open_logs).step()
        trace.check("How a log handles a message")
