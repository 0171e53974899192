"""The processes of test_races. Each opens the common tree as a spool of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fsmq.spool import (
    DuplicateMessage,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.verbs.queues import deletion
from fsmq.spool.verbs.queues.subscribing import describe_topic
from tests.spool.helpers import visible

# A child shares only the tree with its parent: the fork server has only imported modules.
PROCESSES: ForkServerContext = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.spool.racing"])
TIMEOUT_S = 60
_OVER = "over"  # this queue ends the race; the queues of the race have later names


class Held(NamedTuple):
    """A claim or a renewal that was acknowledged; times are Unix seconds."""

    message_id: str
    asked: float
    acknowledged: float
    deadline: float
    renewal: bool = False


def race(work: Callable[..., Any], root: Path, count: int, *arguments: Any) -> list[Any]:
    """The results of ``work(root, number, *arguments)`` in ``count`` processes at once."""
    gate = PROCESSES.Barrier(count)
    results = PROCESSES.SimpleQueue()
    running = [
        PROCESSES.Process(target=_run, args=(work, root, number, gate, results, arguments))
        for number in range(count)
    ]
    for process in running:
        process.start()
    try:
        outcomes = [results.get() for _ in running]
    finally:
        for process in running:
            process.join(TIMEOUT_S)
            if process.is_alive():
                process.kill()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _run(
    work: Callable[..., Any], root: Path, number: int, gate: Any, results: Any, arguments: Any
) -> None:
    try:
        gate.wait(TIMEOUT_S)
        results.put(work(root, number, *arguments))
    except Exception as error:
        results.put(RuntimeError(f"process {number}: {error!r}"))


def drain(root: Path, number: int, watch: str, total: int) -> list[str]:
    """Claim and remove messages until the queue is empty; the ids that were claimed."""
    got: list[str] = []
    with Spool(root, sync="none", watch=watch, poll_interval=0.02) as spool:  # type: ignore[arg-type]
        jobs = spool.queue("jobs", create=True)
        while jobs.counts().total:
            for message in jobs.claim(3, visibility=60):
                got.append(message.id)
                assert jobs.remove(message.id) == 1
    return got


def hold(root: Path, number: int, seconds: float, renews: bool) -> list[Held]:
    """Make short claims, let most of them end, and renew some near their end.

    It takes longer on a machine that is too busy for enough claims in this time.
    """
    log: list[Held] = []
    began = time.monotonic()

    def has_time() -> bool:
        made, enough = (sum(held.renewal for held in log), 4) if renews else (len(log), 40)
        return time.monotonic() < began + (seconds if made >= enough else TIMEOUT_S)

    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        while has_time():
            asked = time.time()
            for message in jobs.claim(2, visibility=0.03):
                assert message.deadline is not None
                log.append(Held(message.id, asked, time.time(), message.deadline))
                if renews:
                    log += _renew_late(jobs, message.id, message.deadline)
    return log


def _renew_late(jobs: Any, message_id: str, deadline: float) -> list[Held]:
    while time.time() < deadline - 0.0005:
        pass  # no sleep is precise enough
    asked = time.time()
    try:
        later = jobs.renew(message_id, 0.05)
    except (NoSuchMessage, Unavailable):
        return []  # the claim has ended, or another process holds the latch
    return [Held(message_id, asked, time.time(), later, renewal=True)]


def put_own_ids(root: Path, number: int, ids: Sequence[str]) -> list[str]:
    """Put the same ids as all others; the ids that were acknowledged."""
    won = []
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        for own in ids:
            while True:
                try:
                    won.append(jobs.put(b"put by %d" % number, id=own))
                except Unavailable:
                    continue  # another process puts it: retry, as clients do
                except DuplicateMessage:
                    pass
                break
            spool.deliver()
    return won


def put_own_batches(root: Path, number: int, count: int, size: int) -> list[str]:
    """Put the same batches as all others, in a random order; the ids that were acknowledged."""
    won = []
    with Spool(root, sync="none") as spool:
        for batch in range(count):
            ids = [f"{batch:02}-{i}" for i in range(size)]
            Random(number).shuffle(ids)
            messages = [NewMessage(b"by %d" % number, id=one) for one in ids]
            while True:
                try:
                    won += spool.complete(prepare.put(spool.context, "jobs", messages))
                except Unavailable:
                    continue
                except DuplicateMessage:
                    pass
                break
    return won


def deliver_much(root: Path, number: int, total: int) -> int:
    """Deliver until all messages are ready."""
    moved = 0
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        while jobs.counts().ready < total:
            moved += spool.deliver()
    return moved


def use_or_delete(root: Path, number: int, count: int, seconds: float, verb: str) -> int:
    """Number 0 deletes (or purges) the queue again and again, the others use it.

    It takes longer on a machine that is so busy that one of them did nothing in this time.
    """
    done = 0
    began = time.monotonic()
    marks = [root.with_name(f"used-{user}") for user in range(1, count)]

    def has_time() -> bool:
        lasted = time.monotonic() - began
        has_enough = all(mark.exists() for mark in marks) if number == 0 else done
        return lasted < (seconds if done and has_enough else TIMEOUT_S)

    with Spool(root, sync="none") as spool:
        while has_time():
            try:
                done += _end_all(spool, verb) if number == 0 else _use(spool, number)
            except (NoSuchQueue, NoSuchMessage, DuplicateMessage, Unavailable):
                spool.deliver()
            if done and number:
                marks[number - 1].touch()
    return done


def _end_all(spool: Spool, verb: str) -> int:
    if verb == "purge":
        _purge_and_check(spool)
    else:
        spool.create_queue("jobs")
        spool.delete_queue("jobs")
    return 1


def _purge_and_check(spool: Spool) -> None:
    before = _ids(spool)
    spool.queue("jobs").purge()
    left = before & _ids(spool)
    assert not left, f"survived a purge: {left}"


def _ids(spool: Spool) -> set[str]:
    """All ids but the one that is used again."""
    return {message_id for _, message_id in visible(spool.tree.root)} - {"own"}


def _use(spool: Spool, number: int) -> int:
    jobs = spool.queue("jobs")
    jobs.put(b"x", id=None if number == 1 else "own")
    jobs.put(b"y", delay=0.002)
    for message in jobs.claim(2, visibility=0.002):
        jobs.renew(message.id, 0.001)
        jobs.release(message.id)
    return 1


def purge_in_use(root: Path, number: int, rounds: int, way: str) -> set[str]:
    """Number 0 fills and purges queues, and the others claim and release; the ids purged.

    way: "many" to move whole folders, however few messages are in them.
    """
    purged: set[str] = set()
    with Spool(root, sync="none") as spool:
        for jobs, ids in _queues_in_use(spool, number, rounds, way):
            jobs.purge()
            purged |= ids
    return purged


def delete_in_use(root: Path, number: int, rounds: int, way: str) -> None:
    """Number 0 fills and deletes queues, and the others claim and release."""
    with Spool(root, sync="none") as spool:
        for jobs, _ in _queues_in_use(spool, number, rounds, way):
            jobs.delete()


def _queues_in_use(
    spool: Spool, number: int, rounds: int, way: str
) -> Iterator[tuple[Queue, set[str]]]:
    """For number 0: queues that the others use, with the ids in them."""
    if number:
        _use_the_newest(spool)
        return
    if way == "many":
        deletion._FEW = 0
    try:
        for index in range(rounds):
            jobs = spool.queue(f"use-{index:04}", create=True)
            ids = jobs.put_many([NewMessage(b"", delay=600.0)] * 30 + [NewMessage(b"x")] * 4)
            spool.deliver()
            while not jobs.peek(1, state="in_flight"):
                pass  # the others have not claimed yet
            yield jobs, set(ids)
    finally:
        spool.create_queue(_OVER)


def _use_the_newest(spool: Spool) -> None:
    """Claim and release in the newest queue, as fast as possible."""
    while _OVER not in (queues := spool.queues()):
        try:
            if not queues:
                continue
            for message in spool.complete(prepare.claim(spool.context, queues[-1], 1, 600.0)):
                spool.complete(prepare.release(spool.context, queues[-1], message.id))
        except (NoSuchQueue, NoSuchMessage):
            continue


OWN_SETTINGS = ("max_depth", "max_in_flight", "max_burst", "max_partition_age")
OWN_OF_LOGS = ("retain_for", "retain_bytes", "max_bytes", "dedupe_window")
OWN_OF_CHANNELS = ("visibility_timeout", "max_window", "paused", "max_lag")


def change_one_setting(root: Path, number: int, rounds: int) -> None:
    """Change one member of all settings again and again, while others change other members."""
    with Spool(root, sync="none", delivers=False) as spool:
        log = spool.log("events")
        channel = log.channel("mail")
        for value in range(1, rounds + 1):
            changed = spool.queue("jobs").configure(**{OWN_SETTINGS[number]: value})
            assert getattr(changed, OWN_SETTINGS[number]) == value
            log.configure(**{OWN_OF_LOGS[number]: value})
            is_flag = OWN_OF_CHANNELS[number] == "paused"
            channel.configure(**{OWN_OF_CHANNELS[number]: True if is_flag else value})
            describe_topic(spool.context, "news", partial(_with, f"by {number}", value))


def _with(name: str, value: int, about: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**about, name: value}
