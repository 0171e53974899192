"""What a plain request costs, in calls of functions: a number that the machine does not change.

CPU time is measured by `benchmarks cpu`. Here a change is noticed that adds layers to the shortest
way of a message.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import fsmq
from tests.http.helpers import Wire
from tests.http.inside import Inside

OURS = os.path.dirname(fsmq.__file__)
ROUNDS = 15
# At most so many calls of functions of fsmq on the event loop: today's number, and a few.
MOST = {"POST": 185, "GET": 218, "DELETE": 100}
MOST_FRAMES = 8


class Calls:
    """The calls of fsmq's functions in one thread; frames: those above that which makes a file."""

    def __init__(self) -> None:
        self.number = self.frames = 0

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.number += 1
            if frame.f_code.co_qualname == "Tree.create":
                self.frames = _depth(frame)


def _depth(frame: FrameType) -> int:
    depth, above = 0, frame.f_back
    while above is not None:
        depth += above.f_code.co_filename.startswith(OURS)
        above = above.f_back
    return depth


@contextmanager
def _counted(inside: Inside) -> Iterator[Calls]:
    calls = Calls()
    inside.call(sys.setprofile, calls.note)
    try:
        yield calls
    finally:
        inside.call(sys.setprofile, None)


def test_a_plain_request_takes_few_calls(tmp_path: Path) -> None:
    found: dict[str, list[int]] = {method: [] for method in MOST}
    frames = 0
    with Inside(tmp_path / "mq") as inside, Wire(inside.url) as wire:
        wire.ask("PUT", "/q")
        message = ""
        for _ in range(ROUNDS):
            for method, target, status in (
                ("POST", "/q/messages", 201),
                ("GET", "/q/messages", 200),
                ("DELETE", "/q/messages/{}", 202),
            ):
                with _counted(inside) as calls:
                    answer = wire.ask(method, target.format(message), {}, b"x" * (method == "POST"))
                assert answer.status == status
                message = answer.headers["x-message-id"] or message
                found[method].append(calls.number)
                frames = max(frames, calls.frames)
    medians = {method: statistics.median(numbers) for method, numbers in found.items()}
    assert all(medians[method] <= most for method, most in MOST.items()), medians
    assert 0 < frames <= MOST_FRAMES
