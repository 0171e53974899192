"""Every crash state of what is done with a fifo queue: order, and deduplication ids.

As for logs: the calls of a verb are recorded, every tree is built that a filesystem may leave if
everything ends after any of them, and the next program tries each put again, and claims all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import Message, NewMessage, Spool, prepare
from fsmq.spool.fsck import check
from tests.replay.place import remove_tree, state_folder
from tests.replay.recorder import Recorder, Step, Sync, SyncAll
from tests.replay.states import Files, Reading, crash_states
from tests.spool.helpers import Clock

QUEUE = "orders"
FIRST = ("a1", "a2")


@dataclass
class Promised:
    """What a user knows, by deduplication id, which is the body, too.

    told: the ids of messages. begun: puts. fading: acknowledgements that have begun; gone: those
    that were answered. is_purged: whether all of before is gone; None: it may. is_deleted: the same
    of the queue. past: the ids of messages of a queue that was deleted, and is there again.
    """

    told: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=lambda: set(FIRST))
    fading: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    is_purged: bool | None = False
    is_deleted: bool | None = False
    past: set[str] = field(default_factory=set)

    def lose(self, is_sure: bool | None) -> None:
        """The queue is deleted, or about to be."""
        self.is_purged = self.is_deleted = is_sure

    def begin_anew(self) -> None:
        """The queue is about to be created again."""
        self.past |= set(self.told.values())
        self.told.clear()
        self.is_purged, self.is_deleted = False, None


class Actor:
    """Does verbs, and marks what each changes."""

    def __init__(self, spool: Spool, recorder: Recorder, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self._queue = spool.queue(QUEUE)
        self._recorder = recorder

    def put(self) -> None:
        self._put("a3")

    def put_batch(self) -> None:
        """One of the two is known already."""
        self._put("a2", "a3")

    def first_put(self) -> None:
        """Nobody has put into the queue yet."""
        self._put("a3")

    def first_put_and_consume(self) -> None:
        self._put("b1")
        self._consume()

    def first_put_behind_one_that_died(self) -> None:
        """It had written the same, and synced nothing."""
        self._recorder.mark(lambda p: p.begun.add("a3"))
        group = self._spool.context.sequencer.group((QUEUE,))
        group.enter()
        group.write([prepare.put(self._spool.context, QUEUE, [new("a3")])]).dirty.close()
        for turn in group._turns:  # what a kill ends
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
        """The next queue of that name knows nothing of the one before."""
        self.delete()
        self._clock.advance(1)  # else its messages get the same places, and so the same ids
        self._recorder.mark(Promised.begin_anew)
        self._spool.create_queue(QUEUE, fifo=True)
        self._recorder.mark(lambda p: setattr(p, "is_deleted", False))
        self._put("a2")

    def _put(self, *texts: str) -> None:
        self._recorder.mark(lambda p: p.begun.update(texts))
        ids = self._queue.put_many([new(text) for text in texts])
        self._recorder.mark(lambda p: p.told.update(zip(texts, ids, strict=True)))

    def _consume(self) -> None:
        """The last one that can be claimed."""
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
    assert look_at_all(verb) > 1


@pytest.mark.parametrize(
    "verb",
    ["put", "put_batch", "put_and_consume", "purge", "delete", "first_put_behind_one_that_died"],
)
def test_without_its_syncs_a_promise_is_broken(verb: str) -> None:
    with pytest.raises(AssertionError):
        look_at_all(verb, lambda step: not isinstance(step, Sync | SyncAll))


@pytest.mark.parametrize("name", ["sends", "dedup/"])
def test_without_the_sync_of_what_is_shared_too(name: str) -> None:
    """A message that is acknowledged leaves nothing but its record, and what makes that hold."""
    with pytest.raises(AssertionError):
        look_at_all(
            "put_and_consume",
            lambda step: not (isinstance(step, Sync) and name in step.path),
            at_end=True,
        )


@pytest.mark.parametrize(
    "verb", ["first_put_and_consume", "first_put_behind_one_that_died", "delete"]
)
def test_without_the_sync_of_the_names_of_what_is_shared_too(verb: str) -> None:
    with pytest.raises(AssertionError):
        look_at_all(verb, lambda step: not (isinstance(step, Sync) and step.path == "config"))


def look_at_all(
    verb: str, counts: Callable[[Step], bool] = lambda step: True, *, at_end: bool = False
) -> int:
    """Look at every crash state of a verb; how many there are. counts: of a step.

    at_end: only at those behind its last step.
    """
    clock = Clock()
    with state_folder() as place:
        root = place.with_name("first")
        told: dict[str, str] = {}
        with Spool(root, sync="fsync", clock=clock, workers=1) as spool:
            spool.create_queue(QUEUE, fifo=True)
            first = () if verb.startswith("first") else FIRST
            for text in first:
                told[text] = spool.complete(prepare.put(spool.context, QUEUE, [new(text)]))[0]
            before = Files.of(root)
            recorder = Recorder(root)
            with recorder.recording():
                getattr(Actor(spool, recorder, clock), verb)()
            recorder.close()
        seen: set[object] = set()
        steps = [step for step in recorder.steps if counts(step)]
        readings = (Reading.SOURCE,) if verb in LONG else tuple(Reading)
        begin = len(steps) if at_end else 0
        for _, files, marks in crash_states(before, steps, readings, begin):
            key = (files.key, len(marks))
            if key in seen:
                continue
            seen.add(key)
            promised = Promised(told=dict(told), begun=set(told))
            for mark in marks:
                mark.what(promised)
            files.write_to(place)
            inspect(place, promised, clock)
            remove_tree(str(place))
    return len(seen)


def inspect(place: Path, promised: Promised, clock: Clock) -> None:
    if promised.is_deleted:
        # The lock may come back, and keeps nobody out.
        left = {name for name in os.listdir(place / "config") if QUEUE in name}
        assert left <= {f".{QUEUE}.lock"}, f"{left} of a queue that is gone"
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
        clock.advance(60)  # a claim that was under way ends
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
    assert promised.past.isdisjoint(m.id for some in found.values() for m in some), "back again"
    for text, message_id in tries.items():
        check_one(promised, text, message_id, found.get(text, []))
    errors = [one for one in check(place, offline=True).findings if one.severity.value == "error"]
    assert errors == []


def check_one(promised: Promised, text: str, message_id: str, found: list[Message]) -> None:
    # A purge that was cut off may have forgotten what still stands.
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
