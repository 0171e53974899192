"""Batches: calls of which the last one to end sends another call.

Marks record which members have ended: messages ``BATCH/LEVEL/PLACE`` in a queue with an index,
which nobody claims. They form a tree: who has marked a member, and finds its neighbours marked,
marks their parent, up to the root, and then sends the call that follows. Each step can be done
twice, and a member is acknowledged after all of them, so that one that is cut short is delivered
again, and goes on. docs/decisions/0040-tasks.md has the proof.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from fsmq.spool.errors import DuplicateMessage, InvalidValue
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.layout.uuids import derived_uuid7

from . import steps
from .errors import NoResult
from .results import AsyncResult, Result
from .steps import Ask, AsyncRuns, Pause, Runs, Steps
from .task import Call

log = logging.getLogger(__name__)
# The attribute that says to which batch a call belongs.
BATCH = "Batch"
# How many neighbours have one parent: a member looks at so many marks at most.
FAN = 16
_THEN = "then"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_THEN_RANK = (1 << 20) - 1  # ids of members have 20 bits for their number; this one follows


class Sends(Protocol):
    """What batches need of their application. batches: the queue of their records."""

    @property
    def batches(self) -> str: ...
    @property
    def batch_ttl(self) -> float: ...
    def message(self, call: Call[Any], delay: Any = None) -> NewMessage: ...
    def putting(self, queue: str, put: Ask) -> Steps[Any]: ...
    def prepare_records(self, queue: str) -> Steps[Any]: ...


class SendsAndRuns(Sends, Runs, Protocol):
    """The same of threads."""


class AsyncSendsAndRuns(Sends, AsyncRuns, Protocol):
    """The same of coroutines."""


class Part(NamedTuple):
    """A call's place in a batch: one of its members, from 0, or what follows (then)."""

    queue: str
    batch: str
    place: str
    members: int

    @classmethod
    def of(cls, attributes: Any) -> Part | None:
        """The place that attributes tell; None if they tell none. Raises ValueError."""
        text = attributes.get(BATCH)
        if text is None:
            return None
        queue, members, place, batch = text.split(" ", 3)
        return cls(queue, batch, place, int(members))

    def __str__(self) -> str:
        return f"{self.queue} {self.members} {self.place} {self.batch}"

    @property
    def mark(self) -> str:
        """The id of its mark."""
        return _mark(self.batch, 0, self.place)


def _mark(batch: str, level: int, place: object) -> str:
    return f"{batch}/{level}/{place}"


def _sent(batch: str) -> str:
    return f"{batch}/sent"


def _record(batch: str) -> str:
    return f"{batch}/record"


def sending(
    app: Sends, batch: str, calls: Sequence[Call[Any]], then: Call[Any]
) -> Steps[list[str]]:
    """Send the calls; the ids of all. Repeated for the same batch, it sends what is missing."""
    _check(calls, then)
    messages = [app.message(call) for call in calls]  # all can be written, before one is sent
    last = app.message(then)
    record: dict[str, Any] = {
        "began_ns": time.time_ns(),
        "queue": then.task.settings.queue,
        "body": last.body.hex(),
        "content_type": last.content_type,
        "attributes": dict(last.attributes),
        "priority": last.priority,
    }
    yield from app.prepare_records(app.batches)
    kept = NewMessage(json.dumps(record).encode(), ttl=app.batch_ttl, id=_record(batch))
    [stored] = yield steps.ensure(app.batches, kept)
    if not stored:
        # An earlier try has begun: with the same time the members get the same ids.
        found = yield steps.find(app.batches, _record(batch))
        record = record if found is None else json.loads(found.body)
    waiting: dict[str, list[NewMessage]] = {}
    ids = []
    for number, (call, message) in enumerate(zip(calls, messages, strict=True)):
        part = Part(app.batches, batch, str(number), len(calls))
        ids.append(derived_uuid7(record["began_ns"], batch.encode(), number))
        more = {**message.attributes, BATCH: str(part)}
        own = replace(message, id=ids[-1], attributes=more)
        waiting.setdefault(call.task.settings.queue, []).append(own)
    for queue, own_ones in waiting.items():
        yield from _put_missing(app, queue, own_ones)
    if not calls:
        yield from _follow(app, Part(app.batches, batch, _THEN, 0))
    return ids


def _check(calls: Sequence[Call[Any]], then: Call[Any]) -> None:
    if len(calls) > _THEN_RANK:
        raise InvalidValue("calls", f"are more than {_THEN_RANK}")
    for call in [*calls, then]:
        if call.key is not None:
            raise InvalidValue("calls", f"{call.task.name} is unique, and so not for a batch")


def _put_missing(app: Sends, queue: str, messages: Sequence[NewMessage]) -> Steps[None]:
    """Put those that are not there; what has ended already is put again, and then skipped."""
    try:
        yield from app.putting(queue, steps.put_many(queue, messages))
    except DuplicateMessage:
        for message in messages:
            with suppress(DuplicateMessage):
                yield steps.put(queue, message)


def has_ended(part: Part) -> Steps[bool]:
    """Whether a member was marked as ended: then an earlier delivery was cut short after that."""
    return (yield steps.find(part.queue, part.mark)) is not None


def ended(app: Sends, part: Part) -> Steps[None]:
    """Mark a member as ended, and whatever follows from that."""
    yield from _set(app, part.queue, part.mark)
    if part.place == _THEN:
        return
    level, place, width = 0, int(part.place), part.members
    while width > 1:
        first = place // FAN * FAN
        # From the last one: it is usually missing.
        for other in range(min(first + FAN, width) - 1, first - 1, -1):
            if other != place:
                found = yield steps.find(part.queue, _mark(part.batch, level, other))
                if found is None:
                    return  # whoever marks that one goes on
        level, place, width = level + 1, place // FAN, -(-width // FAN)
        yield from _set(app, part.queue, _mark(part.batch, level, place))
    yield from _follow(app, part._replace(place=_THEN))


def _set(app: Sends, queue: str, mark: str) -> Steps[None]:
    yield steps.ensure(queue, NewMessage(b"", ttl=app.batch_ttl, id=mark))


def _follow(app: Sends, part: Part) -> Steps[None]:
    """Send the call that follows; sent again after it has ended, it is skipped."""
    found = yield steps.find(part.queue, _record(part.batch))
    if found is None:
        log.error("batch %s has ended after its ttl, and nothing follows it", part.batch)
        return
    record = json.loads(found.body)
    message = NewMessage(
        bytes.fromhex(record["body"]),
        priority=record["priority"],
        id=derived_uuid7(record["began_ns"], part.batch.encode(), _THEN_RANK),
        content_type=record["content_type"],
        attributes={**record["attributes"], BATCH: str(part)},
    )
    with suppress(DuplicateMessage):
        yield from app.putting(record["queue"], steps.put(record["queue"], message))
    yield from _set(app, part.queue, _sent(part.batch))


def awaiting(app: Sends, batch: str, timeout: float | None) -> Steps[None]:
    """Wait until all members have ended. Raises NoResult."""
    end = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE_S
    while (yield steps.find(app.batches, _sent(batch))) is None:
        left = float("inf") if end is None else end - time.monotonic()
        if left <= 0:
            raise NoResult(f"batch {batch} has not ended after {timeout:g} seconds")
        yield Pause(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class Batch:
    """A batch that was sent. results: those of its members."""

    def __init__(self, app: SendsAndRuns, id: str, results: Sequence[Result[Any]]) -> None:
        self._app = app
        self.id = id
        self.results = results

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all its members have ended well. Raises NoResult after ``timeout`` seconds."""
        self._app.run(awaiting(self._app, self.id, timeout))


class AsyncBatch:
    """A batch that was sent, for coroutines. results: those of its members."""

    def __init__(
        self, app: AsyncSendsAndRuns, id: str, results: Sequence[AsyncResult[Any]]
    ) -> None:
        self._app = app
        self.id = id
        self.results = results

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all its members have ended well. As `Batch.wait`."""
        await self._app.run(awaiting(self._app, self.id, timeout))
