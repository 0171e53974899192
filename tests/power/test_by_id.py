"""Power cuts under verbs by id: acknowledged operations hold, and an id has one message.

Each worker has its own ids, so the possible states of each are known at every moment. Some calls
fail, and another program restarts all the time.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, NewMessage, Spool, Unavailable
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.indexed import Indexed
from tests.harness.spool_errors import errors_in
from tests.harness.starting import failing_now_and_then, start_again_and_again
from tests.power.disk import Cut, Disk, cut_power_under

_ROUNDS, _WORKERS, _IDS = 4, 3, 6
_LOAD_S = 0.25
_HOLD_S = 600.0


def work(root: Path, log: Path, worker: int, sync: SyncMode, seed: str) -> None:
    """Act on random ids until the disk is gone, with a note before and after each action."""
    chance = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(FsmqError, OSError), Spool(root, sync=sync) as spool:
        jobs = spool.indexed("jobs")
        for number in range(1_000_000):
            one, body = f"{worker}/{chance.randrange(_IDS)}", f"{seed}-{number}"
            action = chance.choice(("upsert", "upsert", "ensure", "remove", "ack", "postpone"))
            os.write(out, f"begin {one} {action} {body}\n".encode())
            with suppress(Unavailable):  # it may be done or not
                with failing_now_and_then(chance):
                    told = _do(jobs, action, one, body)
                os.write(out, f"end {one} {int(told)} {time.monotonic()!r}\n".encode())


def _do(jobs: Indexed, action: str, one: str, body: str) -> bool:
    if action == "upsert":
        jobs.upsert([NewMessage(body.encode(), id=one)])
        return True
    if action == "ensure":
        return jobs.ensure(NewMessage(body.encode(), id=one))
    if action == "remove":
        return jobs.remove(one)[0]
    if action == "postpone":
        return jobs.postpone(one, 0.0)
    return jobs.claim(one, _HOLD_S) is not None and jobs.ack(one)[0]


def allowed(log: Path, cut: Cut, before: dict[str, set[str | None]]) -> dict[str, set[str | None]]:
    """The possible bodies of each id; None for no message."""
    state = {one: set(bodies) for one, bodies in before.items()}
    begun: tuple[str, str, str] | None = None
    whole, _, _ = log.read_text().rpartition("\n")  # a kill may leave an incomplete line
    for line in whole.splitlines():
        what, one, *rest = line.split(" ")
        now = state.setdefault(one, {None})
        if what == "begin":
            begun = one, rest[0], rest[1]
            # From now on it may be done.
            if rest[0] in ("upsert", "ensure"):
                state[one] = now | {rest[1]}
            elif rest[0] in ("remove", "ack"):
                state[one] = now | {None}
        elif begun is not None and float(rest[1]) < cut.began:
            state[one] = _after(begun[1], begun[2], rest[0] == "1", now)
            begun = None
    return state


def _after(action: str, body: str, told: bool, now: set[str | None]) -> set[str | None]:
    if action == "upsert" or (action == "ensure" and told):
        return {body}
    if action == "ensure":
        return now - {None, body}
    if action in ("remove", "ack") and told:
        return {None}
    return {None} if action == "remove" else now


def inspect(root: Path, state: dict[str, set[str | None]]) -> dict[str, set[str | None]]:
    """Check the messages against the possible states; the actual state."""
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
            stored = found[one or ""]
            assert stored is not None
            assert stored.body == message.body
        spool.deliver()
    assert errors_in(root) == []
    return {one: {None if m is None else m.body.decode()} for one, m in found.items()}


@pytest.mark.parametrize(("disk", "sync"), [("ext4", "fsync"), ("xfs", "auto")], indirect=["disk"])
def test_acknowledged_operations_by_id_survive_power_cuts(
    disk: Disk, tmp_path: Path, sync: SyncMode
) -> None:
    story(disk, tmp_path, sync, _ROUNDS, f"{disk.kind}{sync}")


def story(disk: Disk, folder: Path, sync: SyncMode, rounds: int, seed: str) -> None:
    """Run rounds of a load and a power cut."""
    root, chance = disk.place / "mq", random.Random(seed)
    with Spool(root) as spool:
        spool.create_queue("jobs", index=True)
    disk.sync()
    state: dict[str, set[str | None]] = {}
    for number in range(rounds):
        logs = [folder / f"log-{number}-{worker}" for worker in range(_WORKERS)]
        workers = [
            (work, (root, log, worker, sync, f"{seed}{number}{worker}"))
            for worker, log in enumerate(logs)
        ]
        cut = cut_power_under(
            disk,
            [*workers, (start_again_and_again, (root, sync))],
            lambda logs=logs: all(is_under_way(log) for log in logs),
            _LOAD_S * chance.uniform(0.0, 2),
        )
        for log in logs:
            mine = {one: bodies for one, bodies in state.items() if one[0] == log.name[-1]}
            state |= allowed(log, cut, mine)
        state = inspect(root, state)
        disk.sync()
    assert len(state) >= _WORKERS


def is_under_way(log: Path) -> bool:
    return log.exists() and b"end" in log.read_bytes()
