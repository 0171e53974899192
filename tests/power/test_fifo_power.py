"""A fifo queue on two hosts: programs killed before any call, clocks that are set, power cuts.

While they run nobody is let in front of others, or into a group that another holds. Behind each cut
every put that was begun is tried again. What it was told before holds, nothing stands twice, and
what comes out comes in its order, behind all that was acknowledged.
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.fsck import Severity, check
from fsmq.spool.layout.uuids import group_bits, sequenced_uuid7
from tests.power.disk import CannotMount, Cut, Disk
from tests.power.fifo_history import MINUTE_TICKS, History, Note, place_of
from tests.power.fifo_load import FAR_S, HOLD_S, QUEUE, Load, new

ROUNDS, LOAD_S = 2, 0.8


@dataclass
class Known:
    """What was told before a cut for certain, by deduplication id."""

    ids: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    fading: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def read(self, notes: list[Note], cut: Cut) -> None:
        for note in notes:
            is_certain = note.at < cut.began
            if note.what == "fault":
                assert not is_certain, note
            elif note.what == "putting":
                self.begun.add(note.one)
            elif note.what == "put" and is_certain:
                assert self.ids.setdefault(note.one, note.message_id) == note.message_id, note
            elif note.what == "acking":
                self.fading.add(note.one)
            elif note.what == "acked" and is_certain:
                self.gone.add(note.one)


def inspect(root: Path, known: Known) -> None:
    """Hold the tree against what is known, and empty it."""
    stands = time.time() + FAR_S + 2 * HOLD_S  # all claims have ended
    with Spool(root, clock=lambda: stands) as spool:
        queue = spool.queue(QUEUE)
        for one in sorted(known.begun):
            [message_id] = queue.put_many([new(one)])
            assert known.ids.setdefault(one, message_id) == message_id, one
        spool.deliver()
        found: dict[str, list[int]] = defaultdict(list)
        seen: list[str] = []
        while messages := queue.claim(100):
            for message in messages:
                found[str(message.group)].append(message.sequence or 0)
                seen.append(str(message.dedup_id))
                assert message.id == known.ids[str(message.dedup_id)]
            queue.ack(*messages)
        assert queue.counts().total == 0
    assert len(seen) == len(set(seen))
    assert known.gone.isdisjoint(seen)
    missing = known.begun - known.gone - set(seen)
    assert missing <= known.fading, sorted(missing)
    for group, places in found.items():
        assert places == sorted(places)
        before = [place_of(known.ids[one]) for one in known.gone if one[0] == group]
        # One that was put by a clock far ahead holds the others back only as long as it stands.
        ahead = places[0] + MINUTE_TICKS
        assert not [place for place in before if places[0] < place <= ahead]
    findings = check(root, offline=True).findings
    assert [f for f in findings if f.severity is Severity.ERROR] == []


@pytest.mark.parametrize(("filesystem", "sync"), [("ext4", "auto"), ("xfs", "fsync")])
def test_order_and_deduplication_outlive_it_all(
    tmp_path: Path, filesystem: str, sync: SyncMode
) -> None:
    try:
        with Disk(tmp_path / "disk", filesystem) as disk:
            story(disk, tmp_path, sync, ROUNDS, f"{filesystem}{sync}")
    except CannotMount as error:
        pytest.skip(str(error))


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> int:
    """So many loads with a cut behind each; how many programs were killed before one."""
    root, chance, kills = disk.place / "mq", random.Random(seed), 0
    with Spool(root) as spool:
        spool.create_queue(QUEUE, fifo=True)
    disk.sync()
    for number in range(rounds):
        load = Load(root, sync, folder / f"load{number}", chance)
        try:
            load.run(LOAD_S * chance.random())
            cut = disk.cut_power()
        finally:
            load.end()
        disk.unmount()
        disk.mount()
        known = Known()
        notes = load.notes()
        known.read(notes, cut)
        inspect(root, known)
        before = [note for note in notes if note.at < cut.began]
        right = time.time() - time.monotonic()
        assert list(History(before, known.ids, load.ahead, right).broken()) == []
        kills += load.kills
        disk.sync()
    assert disk.check() == ""
    return kills


# -- the checker -----------------------------------------------------------------------------------

FIRST, SECOND = (sequenced_uuid7(place, group_bits(QUEUE, "a")) for place in (5000, 5001))
FAR = sequenced_uuid7(5002 + MINUTE_TICKS, group_bits(QUEUE, "a"))
IDS = {"a1": FIRST, "a2": SECOND, "a3": FAR}
# Claims say when they end by a clock that is right at 0.
FALSE: dict[str, list[Note]] = {
    "in front of what was answered": [
        Note(1, "putting", "a2"),
        Note(2, "put", "a2", SECOND),
        Note(3, "putting", "a1"),
        Note(4, "put", "a1", FIRST),
    ],
    "'a1'.* in front of what was answered": [
        Note(1, "putting", "a3"),
        Note(2, "put", "a3", FAR),  # it stands
        Note(3, "putting", "a1"),
        Note(4, "put", "a1", FIRST),
    ],
    "another id in the end": [Note(1, "putting", "a1"), Note(2, "put", "a1", SECOND)],
    "has .* in front of it": [Note(2, "claimed", "a2", SECOND, 1, 9)],
    "'a2'.* has .* in front of it": [
        Note(1, "acking", "a1", FIRST),  # which was not carried out
        Note(3, "claimed", "a2", SECOND, 2, 3.1),
        Note(5, "claimed", "a1", FIRST, 4, 14),
    ],
    "while it was held by": [
        Note(2, "claimed", "a1", FIRST, 1, 9),
        Note(5, "claimed", "a1", FIRST, 4, 14),
    ],
}


@pytest.mark.parametrize("told", FALSE)
def test_the_checker_finds(told: str) -> None:
    [found] = History(FALSE[told], IDS, 0.0, 0.0).broken()
    assert re.search(told, found)


def test_the_checker_knows_that_clocks_are_ahead() -> None:
    notes = [
        Note(1, "putting", "a3"),
        Note(2, "put", "a3", FAR),
        Note(3, "acking", "a3", FAR),
        Note(4, "putting", "a2"),
        Note(5, "put", "a2", SECOND),
        Note(6, "acking", "a2", SECOND),
        Note(7, "putting", "a2"),
        Note(8, "put", "a2", SECOND),
    ]
    assert list(History(notes, IDS, 0.0, 0.0).broken()) == []


def test_the_checker_knows_that_clocks_end_claims() -> None:
    notes = [
        Note(2, "claimed", "a1", FIRST, 1, 9),
        Note(5, "claimed", "a1", FIRST, 4, 30),
        Note(6, "releasing", "a1", FIRST),
        Note(7, "claimed", "a1", FIRST, 6, 30),
        Note(8, "acking", "a1", FIRST),
        Note(9, "claimed", "a2", SECOND, 8, 30),
    ]
    assert list(History(notes, IDS, 20.0, 0.0).broken()) == []
