"""A backup that is stopped before any of its calls while messages are put, moved and removed.

A message that existed before the backup and was not removed must be in the snapshot once.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.backup import Snapshot, backup, restore
from fsmq.spool.fsck import check
from fsmq.spool.indexed import Indexed
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.log.upkeep import Upkeep
from tests.interleave.gate import Actor, Gate
from tests.spool.helpers import Clock

JOBS, DEAD, MORE, FIFO, BY_ID, LOG, CHANNEL = "jobs", "dead", "more", "fifo", "by-id", "log", "c"
_RETAINED_S = 3600.0
_LATER_S = 2000.0


class Place:
    """A spool with messages in all states; ``keeps`` must be in a snapshot, ``may`` can be."""

    def __init__(self, root: Path, writers: str) -> None:
        self.root = root
        self.clock = Clock()
        self.spool = Spool(root, sync="none", clock=self.clock)
        for queue in (JOBS, DEAD, MORE):
            self.spool.create_queue(queue)
        self.spool.configure(JOBS, {"max_deliveries": 3, "dead_letter_queue": DEAD})
        self.spool.create_queue(FIFO, fifo=True)
        self.spool.create_queue(BY_ID, index=True)
        jobs = self.spool.queue(JOBS)
        self.claimed = []
        for body in (b"held", b"held too"):
            jobs.put(body)
            self.claimed += jobs.claim(1, 600)
        jobs.put(b"one")
        jobs.put(b"two")
        jobs.put(b"own", id="own")
        jobs.put(b"delayed", delay=600)
        for number in range(2):
            self.spool.queue(FIFO).put(b"in order %d" % number, group="g")
        self.by_id.upsert([NewMessage(b"first", id="x"), NewMessage(b"other", id="y")])
        log = self.spool.log(LOG)
        log.create(segment_bytes=4096, retain_for=_RETAINED_S, writers=writers)
        log.publish_many([b"0", b"1", b"2"])
        self.channel = log.channel(CHANNEL)
        self.channel.create("first")
        self.channel.ack_each(self.channel.claim(1))
        self.spool.schedule("s").define("*/10 * * * *", MORE, b"scheduled", catch_up="all")
        bodies = (b"held", b"held too", b"one", b"two", b"own", b"delayed", b"in order 0")
        self.keeps = Counter([*bodies, b"in order 1", b"first", b"other"])
        self.may: Counter[bytes] = Counter()
        self.logged = [b"0", b"1", b"2"]
        self.removed = 0  # at most this many by retention

    @property
    def by_id(self) -> Indexed:
        return self.spool.indexed(BY_ID)

    def gone(self, *bodies: bytes) -> None:
        """Record messages that were removed or put meanwhile: they may be in the snapshot."""
        self.keeps -= Counter(bodies)
        self.may += Counter(bodies)

    def close(self) -> None:
        self.spool.close()
        shutil.rmtree(self.root)


Step = Callable[[Place], object]


def claim(p: Place) -> None:
    p.claimed += p.spool.queue(JOBS).claim(9, 600)


def release(p: Place) -> None:
    for message in p.claimed:
        p.spool.queue(JOBS).release(message)
    p.claimed.clear()


def bury(p: Place) -> None:
    for message in p.claimed:
        p.spool.queue(JOBS).bury(message, reason="bad")
    p.claimed.clear()


def redrive(p: Place) -> None:
    p.spool.queue(DEAD).redrive()


def move(p: Place) -> None:
    p.spool.queue(JOBS).move_to(MORE)


def move_back(p: Place) -> None:
    p.spool.queue(MORE).move_to(JOBS)


def move_to_new(p: Place) -> None:
    p.spool.create_queue("made")
    p.spool.queue(JOBS).move_to("made")


def move_from_new(p: Place) -> None:
    p.spool.queue("made").move_to(JOBS)
    p.spool.queue("made").delete()


def ack(p: Place) -> None:
    p.gone(*(message.body for message in p.claimed))
    p.spool.queue(JOBS).ack(*p.claimed)
    p.spool.reap()
    p.claimed.clear()


def put(p: Place) -> None:
    for number in range(3):
        p.spool.queue(JOBS).put(b"new %d" % number)
        p.gone(b"new %d" % number)


def put_own(p: Place) -> None:
    """Replace a message by one with the same id and size."""
    p.gone(b"own", b"OWN")
    p.spool.queue(JOBS).remove("own")
    p.spool.reap()
    p.spool.queue(JOBS).put(b"OWN", id="own")


def put_own_again(p: Place) -> None:
    """Put a message with the id of one that has moved to another queue."""
    p.spool.queue(JOBS).put(b"OWN", id="own")
    p.gone(b"OWN")


def purge(p: Place) -> None:
    p.gone(b"one", b"two", b"own", b"held", b"held too", b"delayed")
    p.spool.queue(JOBS).purge()
    p.spool.reap()


def delete(p: Place) -> None:
    purge(p)
    p.spool.queue(JOBS).delete()
    p.spool.reap()


def make_fifo(p: Place) -> None:
    p.spool.create_queue(JOBS, fifo=True)
    p.spool.queue(JOBS).put(b"of a group", group="g")
    p.gone(b"of a group")


def prioritize(p: Place) -> None:
    for message in p.spool.queue(JOBS).peek(9):
        if message.id != "own":
            p.spool.queue(JOBS).set_priority(message, 7)


def take_in_order(p: Place) -> None:
    [message] = p.spool.queue(FIFO).claim(1)
    p.gone(message.body, b"in order 2")
    p.spool.queue(FIFO).ack(message)
    p.spool.queue(FIFO).put(b"in order 2", group="g")


def upsert(p: Place) -> None:
    p.gone(b"first", b"second")
    p.by_id.upsert([NewMessage(b"second", id="x")])
    p.spool.reap()


def upsert_back(p: Place) -> None:
    p.gone(b"second", b"first")
    p.by_id.upsert([NewMessage(b"third", id="x")])
    p.gone(b"third")


def postpone(p: Place) -> None:
    p.by_id.postpone("y", 60)
    p.may[b"other"] += 0


def remove_by_id(p: Place) -> None:
    p.gone(b"first", b"other")
    p.by_id.remove("x", "y")
    p.spool.reap()


def publish(p: Place) -> None:
    p.spool.log(LOG).publish_many([b"3", b"4"])
    p.logged += [b"3", b"4"]


def consume_log(p: Place) -> None:
    p.channel.ack_each(p.channel.claim(9))


def publish_more(p: Place) -> None:
    """Publish two segments."""
    for number in range(3):
        bodies = [(b"%d" % number).ljust(1500)] * 3
        p.spool.log(LOG).publish_many(bodies)
        p.logged += bodies


def retain(p: Place) -> None:
    p.clock.advance(2 * _RETAINED_S)
    p.removed = len(p.logged)
    upkeep = Upkeep(p.spool.open_logs)
    for _ in range(3):
        upkeep.step()


def run_schedules(p: Place) -> None:
    p.clock.advance(600)
    p.spool.run_schedules()
    p.gone(b"scheduled")


STORIES: list[Sequence[Step]] = [
    [claim, release],
    [release, claim],
    [move, move_back],
    [release, bury, redrive],
    [claim, bury, redrive, claim],
    [move_to_new, move_from_new],
    [claim, ack, put],
    [put, claim, ack, put, claim],
    [put_own, claim, release],
    [claim, bury, put_own_again, claim],
    [move, put_own_again, claim, release],
    [purge, put],
    [delete, make_fifo],
    [prioritize, claim],
    [take_in_order, take_in_order],
    [upsert, upsert_back],
    [postpone, upsert],
    [remove_by_id, upsert],
    [publish, consume_log, publish],
    [publish_more, consume_log, publish_more, consume_log, retain, publish_more],
    [run_schedules, run_schedules],
]


def names(story: Sequence[Step]) -> str:
    return " ".join(step.__name__ for step in story)


def found_in(snapshot: Snapshot, root: Path) -> tuple[Counter[bytes], dict[int, bytes]]:
    """The messages of a restored snapshot, and those of its log."""
    restored = restore(snapshot.path, root)
    assert restored.report.findings == []
    clock = Clock()
    with Spool(root, sync="none", clock=clock) as spool:
        clock.advance(_LATER_S)
        spool.deliver()
        found = Counter(
            message.body for queue in spool.queues() for message in spool.queue(queue).peek(99)
        )
        given = {one.body for one in map(spool.indexed(BY_ID).find, "xy") if one is not None}
        assert given == {body for body in found if body in BODIES_OF_IDS}
        log = {message.offset: message.body for message in spool.log(LOG).read()}
        state = spool.log(LOG).channel(CHANNEL).state()
        assert 1 <= state.position <= spool.log(LOG).end()
        assert state.lost == 0
        assert not {finding.kind.value for finding in check(root, offline=True).findings}
    return found, log


BODIES_OF_IDS = {b"first", b"second", b"third", b"other"}


@pytest.mark.parametrize("gap", [2, 25])
@pytest.mark.parametrize("story", STORIES, ids=names)
def test_a_snapshot_has_every_message_once(scratch: Path, story: Sequence[Step], gap: int) -> None:
    gate, numbers = Gate(), count(1)
    with gate.open():
        for stop in count(gap % 8, 8):
            place = Place(scratch / f"{next(numbers)}", "hosts" if gap == 2 else "host")
            with closing(place):
                where = scratch / f"{next(numbers)}"
                taken: list[Snapshot] = []
                calls: list[int] = []

                def note(step: str, done: int, of: int) -> None:
                    if step == "checking":
                        calls.append(one.calls)  # noqa: B023

                def work() -> None:
                    taken.append(backup(place.root, where, progress=note))  # noqa: B023

                one = Actor(gate, work)
                if one.run(stop) or calls:
                    one.run(None)
                    break
                may_be_gone = place.keeps.copy()
                for step in story:
                    step(place)
                    if one.run(gap):
                        break
                one.run(None)
                if one.error is not None:
                    raise AssertionError(f"stopped before {stop}") from one.error
                found, log = found_in(taken[0], scratch / f"{next(numbers)}")
                context = f"stopped before {stop}: {found}"
                assert not place.keeps - found, context
                assert not found - (may_be_gone | place.may | place.keeps), context
                assert log == {at: place.logged[at] for at in log}, context
                assert place.removed or all(at in log for at in range(3)), context
                assert taken[0].left_out == {}, context
            shutil.rmtree(where)
    assert stop > 150
