"""A fifo queue on two hosts: programs are killed before any call, clocks are set, power is cut.

During the load, messages keep their order, and a group has one holder. After each cut every put
that was begun is tried again. Earlier answers hold, no message is stored twice, and messages are
delivered in order, behind all that were acknowledged.
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
from fsmq.spool.layout.uuids import group_bits, sequenced_uuid7
from tests.harness.spool_errors import errors_in
from tests.power.disk import Cut, Disk
from tests.power.fifo_history import MINUTE_TICKS, History, Note, place_of
from tests.power.fifo_load import FAR_S, HOLD_S, QUEUE, Load, new

ROUNDS, LOAD_S = 2, 0.8


@dataclass
class Known:
    """Deduplication ids by the answers before a cut. fading: their acknowledgement was begun."""

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
    """Check the messages against the answers, and remove all."""
    now = time.time() + FAR_S + 2 * HOLD_S  # all claims have ended
    with Spool(root, clock=lambda: now) as spool:
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
        # A message that was put by a clock far ahead orders others only while it is stored.
        ahead = places[0] + MINUTE_TICKS
        assert not [place for place in before if places[0] < place <= ahead]
    assert errors_in(root) == []


@pytest.mark.parametrize(("disk", "sync"), [("ext4", "auto"), ("xfs", "fsync")], indirect=["disk"])
def test_order_and_deduplication_survive_kills_and_power_cuts(
    disk: Disk, tmp_path: Path, sync: SyncMode
) -> None:
    story(disk, tmp_path, sync, ROUNDS, f"{disk.kind}{sync}")


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> int:
    """Run rounds of a load and a power cut; the number of killed programs."""
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
        disk.remount()
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


FIRST, SECOND = (sequenced_uuid7(place, group_bits(QUEUE, "a")) for place in (5000, 5001))
FAR = sequenced_uuid7(5002 + MINUTE_TICKS, group_bits(QUEUE, "a"))
IDS = {"a1": FIRST, "a2": SECOND, "a3": FAR}
# Findings of wrong histories. Claims end by a clock that is right at 0.
FALSE: dict[str, list[Note]] = {
    "in front of what was answered": [
        Note(1, "putting", "a2"),
        Note(2, "put", "a2", SECOND),
        Note(3, "putting", "a1"),
        Note(4, "put", "a1", FIRST),
    ],
    "'a1'.* in front of what was answered": [
        Note(1, "putting", "a3"),
        Note(2, "put", "a3", FAR),  # it is still stored
        Note(3, "putting", "a1"),
        Note(4, "put", "a1", FIRST),
    ],
    "another id in the end": [Note(1, "putting", "a1"), Note(2, "put", "a1", SECOND)],
    "has .* in front of it": [Note(2, "claimed", "a2", SECOND, 1, 9)],
    "'a2'.* has .* in front of it": [
        Note(1, "acking", "a1", FIRST),  # not carried out
        Note(3, "claimed", "a2", SECOND, 2, 3.1),
        Note(5, "claimed", "a1", FIRST, 4, 14),
    ],
    "while it was held by": [
        Note(2, "claimed", "a1", FIRST, 1, 9),
        Note(5, "claimed", "a1", FIRST, 4, 14),
    ],
}


@pytest.mark.parametrize("finding", FALSE)
def test_the_check_finds_a_wrong_history(finding: str) -> None:
    [found] = History(FALSE[finding], IDS, 0.0, 0.0).broken()
    assert re.search(finding, found)


def test_the_check_allows_clocks_that_are_ahead() -> None:
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


def test_the_check_allows_claims_that_clocks_end() -> None:
    notes = [
        Note(2, "claimed", "a1", FIRST, 1, 9),
        Note(5, "claimed", "a1", FIRST, 4, 30),
        Note(6, "releasing", "a1", FIRST),
        Note(7, "claimed", "a1", FIRST, 6, 30),
        Note(8, "acking", "a1", FIRST),
        Note(9, "claimed", "a2", SECOND, 8, 30),
    ]
    assert list(History(notes, IDS, 20.0, 0.0).broken()) == []
