"""Power cuts under moves in the background.

Moves of a number of messages, also delayed ones, while a program scans both queues; and moves of
chosen messages at a rate between a queue and its dead-letter queue.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fsmq.spool import FsmqError, NewMessage, Spool
from tests.harness.spool_errors import errors_in
from tests.power.disk import Cut, Disk, cut_power_under

QUEUES = HERE, THERE = "here", "there"
IDS = [f"id/{number}" for number in range(24)]
HOLD_S = 6000.0
ROUNDS, LOAD_S = 3, 0.4


def is_later(one: str) -> bool:
    return int(one[3:]) % 2 == 1


def move(root: Path, log: Path, seed: str) -> None:
    """Move messages back and forth, and note each step with its time."""
    chance = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str, source: str, count: int) -> None:
        os.write(out, f"{what} {source} {count} {time.monotonic()!r}\n".encode())

    with suppress(FsmqError, OSError), Spool(root) as spool:
        while True:
            source, target = chance.choice((QUEUES, QUEUES[::-1]))
            count = chance.randint(1, 9)
            note("begin", source, count)
            spool.begin_move(source, target, in_flight=False, delayed=True, count=count)
            note("ordered", source, count)
            spool.make_moves()
            note("made", source, count)


def scan(root: Path, log: Path, seed: str) -> None:
    """Scan both queues; each message has its body and its state, in either queue."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(FsmqError, OSError), Spool(root, delivers=False) as spool:
        while True:
            for queue in QUEUES:
                for message in spool.indexed(queue).scan():
                    one = message.body.decode()
                    expected = ("delayed",) if is_later(one) else ("ready", "new")
                    if one not in IDS or message.state not in expected:
                        told = f"wrong {one} {message.state} {time.monotonic()!r}\n"
                        os.write(out, told.encode())
            os.write(out, f"scanned - - {time.monotonic()!r}\n".encode())


def moved(here: int, source: str, count: int) -> int:
    """The number of messages here after a move."""
    return max(0, here - count) if source == HERE else min(len(IDS), here + count)


def inspect(root: Path, log: Path, until: float, before: int) -> int:
    """Check the messages against the notes; the number of messages here."""
    may = after = {before}
    for line in log.read_text().splitlines():
        what, source, number, at = line.split(" ")
        if what == "begin":
            after = {moved(now, source, int(number)) for now in may}
            may |= after
        elif float(at) < until:
            may = set(after)  # an acknowledged order is carried out
    with Spool(root) as spool:
        spool.make_moves()
        assert {one.status for one in spool.moves()} == {"complete"}
        places = {one: [q for q in QUEUES if spool.indexed(q).find(one)] for one in IDS}
        assert {len(queues) for queues in places.values()} == {1}, places
        for one, [queue] in places.items():
            message = spool.indexed(queue).find(one)
            assert message is not None
            assert message.body.decode() == one
            assert (message.state == "delayed") == is_later(one)
        here = sum(queues == [HERE] for queues in places.values())
        assert here in may
        assert sum(spool.counts(queue).total for queue in QUEUES) == len(IDS)
    assert errors_in(root) == []
    return here


DEAD, WHY = "dead", "it was tried"
RATE = 200.0
CHOOSABLE = [f"one-{number:02}" for number in range(24)]
Where = dict[str, str]  # the queue of each message


def redrive(root: Path, log: Path, seed: str) -> None:
    """Redrive chosen dead letters and move them back, and note each step with its time."""
    chance = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(FsmqError, OSError), Spool(root) as spool:
        while True:
            source, target = chance.choice(((DEAD, HERE), (HERE, DEAD)))
            chosen = chance.sample(CHOOSABLE, chance.randint(1, 9))
            note = " ".join((source, target, *chosen))
            os.write(out, f"begin {time.monotonic()!r} {note}\n".encode())
            if source == DEAD:
                spool.begin_redrive(DEAD, rate=RATE, only=chosen)
            else:
                spool.begin_move(HERE, DEAD, rate=RATE, only=chosen)
            os.write(out, f"ordered {time.monotonic()!r} {note}\n".encode())
            spool.make_moves()
            os.write(out, f"made {time.monotonic()!r} {note}\n".encode())


def inspect_chosen(root: Path, log: Path, until: float, before: Where) -> Where:
    """Check the messages against the notes; the queue of each message."""
    may, after = [before], before
    for line in log.read_text().splitlines():
        what, at, source, target, *chosen = line.split(" ")
        if what == "begin":
            moves = {one: target for one in chosen if after[one] == source}
            may, after = [after, after | moves], after | moves
        elif float(at) < until:
            may = [after]
    with Spool(root) as spool:
        spool.make_moves()
        assert {one.status for one in spool.moves()} == {"complete"}
        found = {queue: spool.queue(queue).peek(1000) for queue in (HERE, DEAD)}
        where = {m.id: queue for queue, messages in found.items() for m in messages}
        assert sum(map(len, found.values())) == len(CHOOSABLE)
        assert where in may
        for message in (*found[HERE], *found[DEAD]):
            assert message.body.decode() == message.id
            assert message.deliveries == 0
            assert message.dead_letter is not None
            assert (message.dead_letter.queue, message.dead_letter.reason) == (HERE, WHY)
    assert errors_in(root) == []
    return where


def test_an_ordered_move_is_completed_and_loses_no_message(disk: Disk, tmp_path: Path) -> None:
    root = disk.place / "mq"
    with Spool(root) as spool:
        for queue in QUEUES:
            spool.create_queue(queue, index=True)
        spool.indexed(HERE).upsert(
            [NewMessage(one.encode(), HOLD_S if is_later(one) else 0.0, id=one) for one in IDS]
        )
        spool.deliver()
    here = len(IDS)
    for number in range(ROUNDS):
        logs = {program: tmp_path / f"{number}-{program.__name__}" for program in (move, scan)}
        cut = cut_under(disk, number, logs)
        wrong = [line for line in logs[scan].read_text().splitlines() if line.startswith("wrong")]
        assert [line for line in wrong if float(line.split(" ")[3]) < cut.began] == []
        here = inspect(root, logs[move], cut.began, here)
    assert disk.check() == ""


def test_only_chosen_messages_are_moved(disk: Disk, tmp_path: Path) -> None:
    root = disk.place / "mq"
    with Spool(root) as spool:
        jobs = spool.queue(HERE, create=True)
        jobs.configure(max_deliveries=9, dead_letter_queue=DEAD)
        jobs.put_many([NewMessage(one.encode(), id=one) for one in CHOOSABLE])
        for message in jobs.claim(1000):
            message.bury(WHY)
    where = dict.fromkeys(CHOOSABLE, DEAD)
    for number in range(ROUNDS):
        log = tmp_path / f"{number}"
        cut = cut_under(disk, number, {redrive: log})
        where = inspect_chosen(root, log, cut.began, where)
    assert disk.check() == ""


def cut_under(disk: Disk, number: int, logs: dict[Callable[..., None], Path]) -> Cut:
    """Cut the power under programs that have all done something."""
    disk.sync()
    seed = f"{disk.kind}{number}"
    return cut_power_under(
        disk,
        [(program, (disk.place / "mq", log, seed)) for program, log in logs.items()],
        lambda: all(is_under_way(log) for log in logs.values()),
        LOAD_S * random.Random(seed).random(),
    )


def is_under_way(log: Path) -> bool:
    return log.exists() and any(what in log.read_bytes() for what in (b"made", b"scanned"))
