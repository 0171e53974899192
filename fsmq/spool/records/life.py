"""Life: the steps of one message in the journal, found in its segments without an index.

A UUIDv7 tells when it was made, and the name of a segment when that was begun; so all segments from
there on are searched for the few bytes that each line about the message has. They are read, not
mapped: an unreadable page of a mapping would kill the process.
"""

from __future__ import annotations

import heapq
import json
import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from ..errors import InvalidValue
from ..layout.names import facts, split_entry
from ..layout.transitions import (
    ACCEPTED,
    BURIED,
    EXPIRED,
    JOURNAL,
    MOVED,
    PURGED,
    REAPED,
    REMOVED,
)
from ..layout.tree import STRAY, Tree
from .journal_files import created_ms

# The clocks of hosts differ, and a step can be in a segment that was begun some seconds before.
_MARGIN_MS = 60_000
# A step can be noted some time before its segment is begun.
_EARLY_MS = 2_000
_CHUNK_BYTES = 1024 * 1024
_MAX_LINE_BYTES = 64 * 1024
# A file that is not one of our segments is not read to its end.
_MAX_SEGMENT_BYTES = 256 * 1024 * 1024
_OPTIONAL = ("size", "deliveries", "claim_ms", "from", "to", "was", "host", "via", "reason")

Name = tuple[str, str]  # a queue, and the id that the message has there


class LifeStep(NamedTuple):
    """One step of a message, as in the journal; docs/journal.md describes each member.

    at: Unix seconds. claim: length of the claim in seconds. source, target: the queue that it came
    from, or was buried into. Unknown details are None.
    """

    at: float
    event: str
    queue: str
    id: str
    size: int | None = None
    deliveries: int | None = None
    claim: float | None = None
    source: str | None = None
    target: str | None = None
    was: str | None = None
    host: str | None = None
    via: str | None = None
    reason: str | None = None

    @classmethod
    def from_json(cls, found: Any) -> LifeStep:
        """The step in a line of the journal. Raises ValueError if there is none."""
        match found:
            case {"at": int(at), "event": str(event), "queue": str(queue), "id": str(message_id)}:
                size, deliveries, claim_ms, *names = (found.get(name) for name in _OPTIONAL)
            case _:
                raise ValueError("is no step of a message")
        if not all(n is None or type(n) is int for n in (size, deliveries, claim_ms)):
            raise ValueError("has a number that is none")
        if not all(name is None or isinstance(name, str) for name in names):
            raise ValueError("has a text that is none")
        claim = None if claim_ms is None else claim_ms / 1000
        return cls(at / 1000, event, queue, message_id, size, deliveries, claim, *names)

    def as_json(self) -> dict[str, Any]:
        """The members of a line of the journal."""
        claim_ms = None if self.claim is None else round(self.claim * 1000)
        optional = (self.size, self.deliveries, claim_ms, self.source, self.target, self.was)
        more = zip(_OPTIONAL, (*optional, self.host, self.via, self.reason), strict=True)
        return {
            "at": round(self.at * 1000),
            "event": self.event,
            "queue": self.queue,
            "id": self.id,
            **{name: value for name, value in more if value is not None},
        }

    @property
    def names(self) -> list[Name]:
        """Where the message was before and after this step: two names if it changed its queue."""
        here = (self.queue, self.id)
        if self.event == MOVED.event and self.source is not None:
            return [(self.source, self.was or self.id), here]
        if self.event == BURIED.event and self.target is not None:
            return [here, (self.target, self.was or self.id)]
        return [here]


class Life(NamedTuple):
    """The steps of a message in order, and where to continue; None: there are no more."""

    steps: list[LifeStep]
    next: str | None


# Steps after which another message can get the same id.
_ENDS = frozenset(step.event for step in (REMOVED, EXPIRED, PURGED, REAPED))
# A batch is noted as a whole: by then a mover may have delivered its first messages.
_LATE_S = 60.0


def in_order(steps: Iterable[LifeStep]) -> list[LifeStep]:
    """Steps by their times, but with the acceptance of a message before all its other steps.

    A put notes its messages after the whole batch: another program can note later steps first.
    """
    ordered: list[LifeStep] = []
    for step in sorted(steps, key=lambda step: step.at):
        place = len(ordered)
        if step.event == ACCEPTED.event:
            while place and _comes_after(ordered[place - 1], step):
                place -= 1
        ordered.insert(place, step)
    return ordered


def _comes_after(step: LifeStep, accepted: LifeStep) -> bool:
    """Whether a step with an earlier time belongs to the accepted message."""
    is_same = (step.queue, step.id) == (accepted.queue, accepted.id)
    is_later = step.event not in _ENDS and step.event != ACCEPTED.event
    return is_same and is_later and accepted.at - step.at < _LATE_S


class _Segment(NamedTuple):
    begun_ms: int
    name: str


class _Met(NamedTuple):
    """A step with its place in the journal, which orders steps of the same time."""

    at: float
    segment: int
    place: int
    step: LifeStep


class LifeReader:
    """Reads the journal for the life of one message.

    queue: where it was put, or has been since; "" if unknown: then the first message of this id is
    meant. after: where an earlier reader stopped.

    Raises InvalidValue for an invalid ``after``.
    """

    def __init__(self, tree: Tree, queue: str, message_id: str, after: str = "") -> None:
        self.next: str | None = None
        self._tree = tree
        self._since: int | None = None
        name = (queue, message_id)
        if after:
            self._since, name = _parse(after)
        self._names = {name} if name[0] else set()
        self._last = (float("-inf"), name)  # the latest step's time, and where the message is
        self._apart: dict[Name, list[_Met]] = {}  # steps of others, until some step leads to them
        self._ids: dict[str, list[bytes]] = {}  # with the bytes that lines about each have
        self._fresh = [(name[1], float("-inf"))]  # ids to look for, and since when
        self._read: set[tuple[int, int]] = set()  # lines, by segment and place
        self._heap: list[_Met] = []
        self._is_known = False
        self._reaped_ms: float | None = None

    @property
    def place(self) -> Name:
        """Where the message is by the latest step that was read; "" for a queue not known."""
        return self._last[1]

    def batches(self, budget_s: float) -> Iterator[list[LifeStep]]:
        """Steps in order, as they are found; now and then an empty list, as a pause.

        budget_s: seconds that reading may take; then ``next`` tells where to continue. Only after a
        step that changed the id can earlier steps follow. Raises OSError.
        """
        end = time.monotonic() + budget_s
        segments = self._segments()
        first = self._first(segments)
        yield from self._from(first, segments, end)
        if not self._is_known and self._since is None and first and self.next is None:
            # The time in its id is not that of its put: someone else made the id.
            yield from self._from(0, segments, end)
        yield self._until(float("inf"))

    def _from(self, first: int, segments: list[_Segment], end: float) -> Iterator[list[LifeStep]]:
        """Search the segments from one on; the last steps that it finds stay for the caller."""
        for number in range(first, len(segments)):
            self._search(segments, number)
            at = segments[number].begun_ms
            if self._reaped_ms is not None and at > self._reaped_ms + _MARGIN_MS:
                break  # there are no later steps
            if number + 1 == len(segments):
                break
            following = segments[number + 1].begun_ms
            yield self._until((following - _EARLY_MS) / 1000)
            if time.monotonic() >= end:
                if first and self._since is None and not self._is_known:
                    following = 0  # the id was made by someone else: search all
                self.next = f"{following}.{self._last[1][0]}:{self._last[1][1]}"
                break

    def _segments(self) -> list[_Segment]:
        names = self._tree.names(self._tree.folder(JOURNAL))
        begun = ((created_ms(name.removeprefix(".")), name) for name in names)
        return sorted(_Segment(ms, name) for ms, name in begun if ms is not None)

    def _first(self, segments: list[_Segment]) -> int:
        """The first segment that can have a step."""
        if self._since is not None:
            return bisect_left(segments, (self._since,))
        created = facts(self._fresh[0][0]).created_ms
        return 0 if created is None else bisect_left(segments, (created - _MARGIN_MS,))

    def _search(self, segments: list[_Segment], number: int) -> None:
        """Look for known ids in a segment, and for new ones also in earlier segments."""
        self._take(segments, number, [part for parts in self._ids.values() for part in parts])
        while self._fresh:
            message_id, since_ms = self._fresh.pop()
            if message_id in self._ids:
                continue
            quoted = encode_basestring_ascii(message_id).encode()
            parts = self._ids[message_id] = [b'"id":' + quoted, b'"was":' + quoted]
            before = number
            if since_ms != float("-inf"):
                before = min(number, bisect_left(segments, (since_ms - _MARGIN_MS,)))
            for earlier in range(before, number + 1):
                self._take(segments, earlier, parts)

    def _take(self, segments: list[_Segment], number: int, parts: list[bytes]) -> None:
        if not parts:
            return
        for place, line in lines_with(self._tree, segments[number].name, parts):
            if (number, place) in self._read:
                continue
            self._read.add((number, place))
            try:
                step = LifeStep.from_json(json.loads(line))
            except (ValueError, RecursionError):
                continue
            self._meet(_Met(step.at, number, place, step))

    def _meet(self, first: _Met) -> None:
        """Take in a step of the message; keep steps of another message with the same id apart."""
        if self._names and self._names.isdisjoint(first.step.names):
            for name in first.step.names:
                self._apart.setdefault(name, []).append(first)
            return
        waiting, met = [first], set()
        while waiting:
            one = waiting.pop()
            if one in met:
                continue
            met.add(one)
            heapq.heappush(self._heap, one)
            self._note(one.step)
            for name in one.step.names:
                self._names.add(name)
                waiting += self._apart.pop(name, [])

    def _note(self, step: LifeStep) -> None:
        self._is_known = True
        if step.at >= self._last[0]:
            self._last = (step.at, step.names[-1])
        if step.event == REAPED.event:
            self._reaped_ms = step.at * 1000
        for _, message_id in step.names:
            if message_id not in self._ids:
                created = facts(message_id).created_ms
                since_ms = step.at * 1000 if message_id == step.names[-1][1] else created
                self._fresh.append((message_id, since_ms or 0.0))

    def _until(self, at: float) -> list[LifeStep]:
        """The steps before a time, in order."""
        steps = []
        while self._heap and self._heap[0][0] < at:
            steps.append(heapq.heappop(self._heap).step)
        return in_order(steps)


def _parse(after: str) -> tuple[int, Name]:
    since, _, name = after.partition(".")
    split = split_entry(name)
    if split is None or not since.isascii() or not since.isdecimal() or len(since) > 15:
        raise InvalidValue("after", "is not a value that an earlier answer gave")
    return int(since), split


def lines_with(tree: Tree, segment: str, parts: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a segment that contain any of the parts, with their places. Raises OSError."""
    fd = _open(tree, segment)
    if fd is None:
        return
    try:
        start, rest = 0, b""
        while start < _MAX_SEGMENT_BYTES and (more := os.read(fd, _CHUNK_BYTES)):
            block = rest + more
            end = block.rfind(b"\n") + 1
            for place in sorted(_places(block, end, parts)):
                yield start + place, block[place : block.index(b"\n", place)]
            start, rest = start + end, block[end:]
            if len(rest) > _MAX_LINE_BYTES:
                start, rest = start + len(rest), b""  # not written by fsmq
    finally:
        os.close(fd)


def _places(block: bytes, end: int, parts: list[bytes]) -> set[int]:
    """Where those lines of a block begin that contain one of some parts."""
    places = set()
    for part in parts:
        at = block.find(part, 0, end)
        while at >= 0:
            places.add(block.rfind(b"\n", 0, at) + 1)
            at = block.find(part, at + 1, end)
    return places


def _open(tree: Tree, segment: str) -> int | None:
    for name in dict.fromkeys((segment, segment.removeprefix("."))):
        try:
            return tree.open(tree.folder(JOURNAL, name))
        except OSError as error:
            if error.errno not in STRAY:
                raise
    return None  # it has expired; if it was closed, it is there without the dot


def read_life(
    tree: Tree, queue: str, message_id: str, after: str = "", budget_s: float = 5.0
) -> Life:
    """The life of a message, as far as it is found within ``budget_s`` seconds. Raises OSError."""
    reader = LifeReader(tree, queue, message_id, after)
    steps = [step for batch in reader.batches(budget_s) for step in batch]
    return Life(in_order(steps), reader.next)
