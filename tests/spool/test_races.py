"""Races of processes and threads on one tree."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from fsmq.spool import NoSuchQueue, Spool
from fsmq.spool.fsck import check
from tests.harness.rounds import part_of
from tests.spool import racing
from tests.spool.helpers import back_to_new, tree_of, visible
from tests.spool.racing import Held, race

SECONDS = part_of(1.0, 10.0)


def errors(root: Path) -> list[object]:
    report = check(root, offline=True)
    return [f for f in report.findings if f.severity.value == "error"]


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_each_message_is_claimed_once(root: Path, watch: str) -> None:
    with Spool(root, sync="none") as spool:
        ids = spool.queue("jobs", create=True).put_many([b"x"] * 400)
        spool.deliver()
    got = race(racing.drain, root, 3, watch, len(ids))
    assert Counter(i for part in got for i in part) == Counter(ids)
    assert errors(root) == []


def stolen(log: list[Held]) -> list[tuple[Held, Held]]:
    """Claims that began and succeeded while the claim of another was acknowledged and valid.

    A late renewal renews the current claim: ids are not receipts.
    """
    found = []
    by_id: dict[str, list[Held]] = {}
    for held in sorted(log, key=lambda h: h.acknowledged):
        by_id.setdefault(held.message_id, []).append(held)
    for holders in by_id.values():
        for one, other in pairwise(holders):
            if one.acknowledged < other.asked and other.acknowledged < one.deadline:
                found += [] if other.renewal else [(one, other)]
    return found


def test_no_message_is_claimed_twice_at_once(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put_many([b"x"] * 20)
    log = [held for part in race(racing.hold, root, 3, SECONDS, False) for held in part]
    assert len(log) > 100
    assert stolen(log) == []
    assert errors(root) == []


def test_an_acknowledged_renewal_extends_the_claim(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put_many([b"x"] * 4)
    log = [held for part in race(racing.hold, root, 3, SECONDS, True) for held in part]
    assert sum(held.renewal for held in log) > 10
    assert stolen(log) == []
    assert errors(root) == []


def test_a_queue_is_deleted_once(root: Path) -> None:
    with (
        Spool(root, sync="none") as one,
        Spool(root, sync="none") as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for _ in range(200):
            one.create_queue("brief")
            deletions = [pool.submit(spool.delete_queue, "brief") for spool in (one, other)]
            errors = [deletion.exception() for deletion in deletions]
            assert sorted(map(type, errors), key=str) == [type(None), NoSuchQueue], errors


def test_one_put_of_an_own_id_wins(root: Path) -> None:
    ids = [f"own-{n}" for n in range(60)]
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
    won = race(racing.put_own_ids, root, 3, ids)
    assert Counter(own for part in won for own in part) == Counter(ids)
    assert [message_id for _, message_id in visible(root)] == sorted(ids)
    with Spool(root, sync="none") as spool:
        bodies = {m.id: m.body for m in spool.queue("jobs").claim(100)}
    for number, part in enumerate(won):
        texts = {bodies[own] for own in part}
        assert len(texts) <= 1, f"a message of {number} was overwritten"
    assert errors(root) == []


def test_several_movers_deliver_every_message_once(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        ids = spool.queue("jobs", create=True).put_many([b"x"] * 600)
    back_to_new(root)
    moved = race(racing.deliver_much, root, 3, len(ids))
    assert sum(moved) == len(ids)
    assert tree_of(root)["queues/jobs"] == ids


@pytest.mark.parametrize("verb", ["delete", "purge"])
def test_no_message_comes_back_after_a_deletion_or_purge(root: Path, verb: str) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
    done = race(racing.use_or_delete, root, 3, 3, SECONDS, verb)
    assert all(done)
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).purge()  # messages put after the last one
        assert [name for name in visible(root) if name[0] == "jobs"] == []
        spool.delete_queue("jobs")
        spool.reap()
    assert tree_of(root) == {"new": [], "delay": []}
    assert os.listdir(root / "remove") == []
    assert errors(root) == []


def test_threads_may_share_a_spool(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)

        def work(number: int) -> list[str]:
            mine = []
            for n in range(60):
                jobs.put(b"%d" % number, id=None if n % 2 else f"own-{number}-{n}")
                for message in jobs.claim(2):
                    jobs.renew(message.id, 60)
                    assert jobs.remove(message.id) == 1
                    mine.append(message.id)
            return mine

        with ThreadPoolExecutor(6) as threads:
            got = [message_id for part in threads.map(work, range(6)) for message_id in part]
        while left := jobs.claim(100):
            got += [message.id for message in left]
        assert len(got) == 360
        assert len(set(got)) == 360
