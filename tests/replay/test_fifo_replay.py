"""Every crash state of verbs on a fifo queue: order and deduplication ids.

In each state the next program tries every put again and claims all messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import Message, NewMessage, Spool, prepare
from tests.harness.spool_errors import errors_in
from tests.replay.inspecting import inspect_states
from tests.replay.place import state_folder
from tests.replay.recorder import Recorder, Step, Sync, SyncAll
from tests.replay.states import Files, Reading
from tests.spool.helpers import Clock

QUEUE = "orders"
FIRST = ("a1", "a2")


@dataclass
class Promised:
    """The promises by deduplication id, which is also the body.

    told: the ids of answered puts. begun: puts. fading: begun acknowledgements; gone: answered
    ones. is_purged: whether earlier messages are removed; None: unknown. is_deleted: the same for
    the queue. past: ids of messages of a deleted queue with the same name.
    """

    told: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=lambda: set(FIRST))
    fading: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    is_purged: bool | None = False
    is_deleted: bool | None = False
    past: set[str] = field(default_factory=set)

    def lose(self, is_sure: bool | None) -> None:
        """Record that the queue is deleted, or about to be (None)."""
        self.is_purged = self.is_deleted = is_sure

    def begin_anew(self) -> None:
        """Record that the queue is about to be created again."""
        self.past |= set(self.told.values())
        self.told.clear()
        self.is_purged, self.is_deleted = False, None


class Actor:
    """Runs verbs, and marks the promises that each changes."""

    def __init__(self, spool: Spool, recorder: Recorder, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self._queue = spool.queue(QUEUE)
        self._recorder = recorder

    def put(self) -> None:
        self._put("a3")

    def put_batch(self) -> None:
        """Put a known message and a new one."""
        self._put("a2", "a3")

    def first_put(self) -> None:
        """Put into a queue without any put before."""
        self._put("a3")

    def first_put_and_consume(self) -> None:
        self._put("b1")
        self._consume()

    def first_put_behind_one_that_died(self) -> None:
        """A process wrote the same message and died before its sync."""
        self._recorder.mark(lambda p: p.begun.add("a3"))
        group = self._spool.context.sequencer.group((QUEUE,))
        group.enter()
        group.write([prepare.put(self._spool.context, QUEUE, [new("a3")])]).dirty.close()
        for turn in group._turns:  # a kill ends them
            assert turn._held is not None
            turn._held.unlock()
        self._put("a3")
        self._consume()

    def put_again(self) -> None:
        self._put("a2")

    def put_and_consume(self) -> None:
        self._put("b1")
        self._consume()

    def consume(self) -> None:
        self._consume()

    def purge(self) -> None:
        self._recorder.mark(lambda p: setattr(p, "is_purged", None))
        self._queue.purge()
        self._recorder.mark(lambda p: setattr(p, "is_purged", True))

    def delete(self) -> None:
        self._recorder.mark(lambda p: p.lose(None))
        self._spool.delete_queue(QUEUE)
        self._recorder.mark(lambda p: p.lose(True))

    def delete_and_put_again(self) -> None:
        """Delete the queue, create it again, and put a message with a known id."""
        self.delete()
        self._clock.advance(1)  # else new messages could get the same ids
        self._recorder.mark(Promised.begin_anew)
        self._spool.create_queue(QUEUE, fifo=True)
        self._recorder.mark(lambda p: setattr(p, "is_deleted", False))
        self._put("a2")

    def _put(self, *texts: str) -> None:
        self._recorder.mark(lambda p: p.begun.update(texts))
        ids = self._queue.put_many([new(text) for text in texts])
        self._recorder.mark(lambda p: p.told.update(zip(texts, ids, strict=True)))

    def _consume(self) -> None:
        """Claim messages and acknowledge the last one."""
        message = self._queue.claim(9)[-1]
        text = message.body.decode()
        self._recorder.mark(lambda p: p.fading.add(text))
        message.ack()
        self._recorder.mark(lambda p: p.gone.add(text))
        self._spool.reap()


def new(text: str) -> NewMessage:
    return NewMessage(text.encode(), group=text[0], dedup_id=text)


LONG = ["put_and_consume", "first_put_and_consume", "first_put_behind_one_that_died"]
VERBS = ["put", "put_batch", "put_again", "put_and_consume", "consume", "purge"]
VERBS += ["delete", "delete_and_put_again"]
VERBS += ["first_put", "first_put_and_consume", "first_put_behind_one_that_died"]


@pytest.mark.parametrize("verb", VERBS)
def test_no_crash_state_breaks_a_promise(verb: str) -> None:
    assert check_states(verb) > 1


@pytest.mark.parametrize(
    "verb",
    ["put", "put_batch", "put_and_consume", "purge", "delete", "first_put_behind_one_that_died"],
)
def test_without_its_syncs_a_promise_is_broken(verb: str) -> None:
    with pytest.raises(AssertionError):
        check_states(verb, lambda step: not isinstance(step, Sync | SyncAll))


@pytest.mark.parametrize("name", ["sends", "dedup/"])
def test_without_the_sync_of_shared_records_a_promise_is_broken(name: str) -> None:
    """An acknowledged message leaves only its deduplication record."""
    with pytest.raises(AssertionError):
        check_states(
            "put_and_consume",
            lambda step: not (isinstance(step, Sync) and name in step.path),
            at_end=True,
        )


@pytest.mark.parametrize(
    "verb", ["first_put_and_consume", "first_put_behind_one_that_died", "delete"]
)
def test_without_the_sync_of_their_folder_a_promise_is_broken(verb: str) -> None:
    with pytest.raises(AssertionError):
        check_states(verb, lambda step: not (isinstance(step, Sync) and step.path == "config"))


def check_states(
    verb: str, counts: Callable[[Step], bool] = lambda step: True, *, at_end: bool = False
) -> int:
    """Inspect every crash state of a verb; their number. counts: selects steps.

    at_end: only states after the last step.
    """
    clock = Clock()
    with state_folder() as place:
        root = place.with_name("first")
        ids: dict[str, str] = {}
        with Spool(root, sync="fsync", clock=clock, workers=1) as spool:
            spool.create_queue(QUEUE, fifo=True)
            first = () if verb.startswith("first") else FIRST
            for text in first:
                ids[text] = spool.complete(prepare.put(spool.context, QUEUE, [new(text)]))[0]
            before = Files.of(root)
            recorder = Recorder(root)
            with recorder.recording():
                getattr(Actor(spool, recorder, clock), verb)()
            recorder.close()
        steps = [step for step in recorder.steps if counts(step)]
        return inspect_states(
            place,
            before,
            steps,
            lambda: Promised(told=dict(ids), begun=set(ids)),
            lambda promised: inspect(place, promised, clock),
            readings=(Reading.SOURCE,) if verb in LONG else tuple(Reading),
            from_step=len(steps) if at_end else 0,
        )


def inspect(place: Path, promised: Promised, clock: Clock) -> None:
    if promised.is_deleted:
        # The lock may remain, but blocks nobody.
        left = {name for name in os.listdir(place / "config") if QUEUE in name}
        assert left <= {f".{QUEUE}.lock"}, f"{left} of a deleted queue"
        assert not (place / "queues" / QUEUE).exists()
    with Spool(place, sync="none", clock=clock) as spool:
        if promised.is_deleted is not False:
            if spool.has_queue(QUEUE):
                assert spool.settings(QUEUE).fifo, "a queue without its settings"
            spool.create_queue(QUEUE, fifo=True)
        queue = spool.queue(QUEUE)
        tries = {
            text: queue.put(b"again", group=text[0], dedup_id=text)
            for text in sorted(promised.begun)
        }
        clock.advance(60)  # an unfinished claim ends
        spool.deliver()
        found: dict[str, list[Message]] = {}
        places: dict[str | None, list[int | None]] = {}
        while messages := queue.claim(9):
            for message in messages:
                found.setdefault(str(message.dedup_id), []).append(message)
                places.setdefault(message.group, []).append(message.sequence)
                message.ack()
        clock.advance(-60)
        assert queue.counts().total == 0
    for order in places.values():
        assert order == sorted(order, key=str), "out of order"
    assert promised.past.isdisjoint(m.id for some in found.values() for m in some), "resurrected"
    for text, message_id in tries.items():
        check_one(promised, text, message_id, found.get(text, []))
    assert errors_in(place) == []


def check_one(promised: Promised, text: str, message_id: str, found: list[Message]) -> None:
    # An unfinished purge may have forgotten ids of messages that are still stored.
    assert len(found) <= (2 if promised.is_purged is None else 1), f"{text} twice"
    is_first = not found or found[0].body == text.encode()
    if text in promised.told and promised.is_purged is False:
        assert message_id == promised.told[text], f"{text} was stored again"
        assert is_first
    if text in promised.gone:
        assert not found
    elif text not in promised.fading and promised.is_purged is not None:
        assert len(found) == 1, f"{text} is lost"
        assert found[0].id == message_id
    if promised.is_purged:
        assert not is_first
