"""Power cuts under verbs by given id: what was acknowledged of an id holds, and it has one message.

Each worker has ids of its own, so that what must stand of each is known at every moment. Calls fail
now and then, and beside them a program starts again and again.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, NewMessage, Spool, Unavailable
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.fsck import Severity, check
from fsmq.spool.indexed import Indexed
from tests.harness.starting import failing_now_and_then, start_again_and_again
from tests.harness.suite import eventually
from tests.power.disk import CannotMount, Cut, Disk

_ROUNDS, _WORKERS, _IDS = 4, 3, 6
_LOAD_S = 0.25
_HOLD_S = 600.0


def work(root: Path, log: Path, worker: int, sync: SyncMode, seed: str) -> None:
    """Act on ids at random, and note each deed before and after it, until the disk is gone."""
    chance = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(FsmqError, OSError), Spool(root, sync=sync) as spool:
        jobs = spool.indexed("jobs")
        for number in range(1_000_000):
            one, body = f"{worker}/{chance.randrange(_IDS)}", f"{seed}-{number}"
            deed = chance.choice(("upsert", "upsert", "ensure", "remove", "ack", "postpone"))
            os.write(out, f"begin {one} {deed} {body}\n".encode())
            with suppress(Unavailable):  # then it may be done or not, and others go on
                with failing_now_and_then(chance):
                    told = _do(jobs, deed, one, body)
                os.write(out, f"end {one} {int(told)} {time.monotonic()!r}\n".encode())


def _do(jobs: Indexed, deed: str, one: str, body: str) -> bool:
    if deed == "upsert":
        jobs.upsert([NewMessage(body.encode(), id=one)])
        return True
    if deed == "ensure":
        return jobs.ensure(NewMessage(body.encode(), id=one))
    if deed == "remove":
        return jobs.remove(one)[0]
    if deed == "postpone":
        return jobs.postpone(one, 0.0)
    return jobs.claim(one, _HOLD_S) is not None and jobs.ack(one)[0]


def allowed(log: Path, cut: Cut, before: dict[str, set[str | None]]) -> dict[str, set[str | None]]:
    """For each id what may stand: a body, or None for no message."""
    state = {one: set(bodies) for one, bodies in before.items()}
    begun: tuple[str, str, str] | None = None
    whole, _, _ = log.read_text().rpartition("\n")  # a kill may leave half a line
    for line in whole.splitlines():
        what, one, *rest = line.split(" ")
        now = state.setdefault(one, {None})
        if what == "begin":
            begun = one, rest[0], rest[1]
            # From here on it may be done.
            if rest[0] in ("upsert", "ensure"):
                state[one] = now | {rest[1]}
            elif rest[0] in ("remove", "ack"):
                state[one] = now | {None}
        elif begun is not None and float(rest[1]) < cut.began:
            state[one] = _after(begun[1], begun[2], rest[0] == "1", now)
            begun = None
    return state


def _after(deed: str, body: str, told: bool, now: set[str | None]) -> set[str | None]:
    if deed == "upsert" or (deed == "ensure" and told):
        return {body}
    if deed == "ensure":
        return now - {None, body}
    if deed in ("remove", "ack") and told:
        return {None}
    return {None} if deed == "remove" else now


def inspect(root: Path, state: dict[str, set[str | None]]) -> dict[str, set[str | None]]:
    """Hold the tree against what may stand; what does."""
    with Spool(root) as spool:
        spool.deliver()
        found = {one: spool.indexed("jobs").find(one) for one in state}
        for one, message in found.items():
            body = None if message is None else message.body.decode()
            assert body in state[one], (one, body, state[one])
        claimed = spool.queue("jobs").claim(1000, visibility=0)
        bodies = [message.given_id for message in claimed]
        assert len(bodies) == len(set(bodies)), "two messages of one id"
        for message in claimed:
            one = message.given_id
            standing = found[one or ""]
            assert standing is not None
            assert standing.body == message.body
        spool.deliver()
    errors = [f for f in check(root, offline=True).findings if f.severity is Severity.ERROR]
    assert errors == []
    return {one: {None if m is None else m.body.decode()} for one, m in found.items()}


@pytest.mark.parametrize(("filesystem", "sync"), [("ext4", "fsync"), ("xfs", "auto")])
def test_an_id_has_what_was_acknowledged(tmp_path: Path, filesystem: str, sync: SyncMode) -> None:
    try:
        with Disk(tmp_path / "disk", filesystem) as disk:
            story(disk, tmp_path, sync, _ROUNDS, f"{filesystem}{sync}")
    except CannotMount as error:
        pytest.skip(str(error))


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> None:
    """So many loads with a cut behind each."""
    root, chance = disk.place / "mq", random.Random(seed)
    with Spool(root) as spool:
        spool.create_queue("jobs", index=True)
    disk.sync()
    fork = multiprocessing.get_context("fork")
    state: dict[str, set[str | None]] = {}
    for number in range(rounds):
        logs = [folder / f"log-{number}-{worker}" for worker in range(_WORKERS)]
        workers = [
            fork.Process(target=work, args=(root, log, worker, sync, f"{seed}{number}{worker}"))
            for worker, log in enumerate(logs)
        ]
        starter = fork.Process(target=start_again_and_again, args=(root, sync))
        for worker in (*workers, starter):
            worker.start()
        eventually(lambda logs=logs: all(is_under_way(log) for log in logs))
        time.sleep(_LOAD_S * chance.uniform(0.0, 2))
        cut = disk.cut_power()
        starter.kill()
        starter.join()
        for worker in workers:
            worker.kill()  # with the disk gone it may go on to try
            worker.join()
        disk.unmount()
        disk.mount()
        for log in logs:
            mine = {one: bodies for one, bodies in state.items() if one[0] == log.name[-1]}
            state |= allowed(log, cut, mine)
        state = inspect(root, state)
        disk.sync()
    assert len(state) >= _WORKERS


def is_under_way(log: Path) -> bool:
    return log.exists() and b"end" in log.read_bytes()
