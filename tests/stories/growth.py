"""Creates and deletes many things, and measures what stays in memory and on disk."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock
from weakref import WeakKeyDictionary

from fsmq.spool import NewMessage, Spool, prepare
from fsmq.spool.consumers.batches import forget
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.layout.names import is_queue
from fsmq.spool.log.log import LogEntry
from fsmq.spool.moves.ended import forget_ended
from fsmq.spool.records.reports import Reports
from fsmq.spool.staging.commit import commit
from fsmq.spool.staging.part import Job, Part
from fsmq.spool.verbs import dedup
from tests.spool.helpers import Clock

# Longer than the delay of any clean-up.
_DAYS_S = 3 * 86_400.0
# A grown table stays as large, but nothing is kept for each thing: an entry takes more than this.
BYTES_EACH = 64
# For a few deleted queues something is kept, until there are twice as many.
BYTES_OF_A_FEW = 32 * 1024

Cycle = Callable[[Spool, int], None]


def queue(spool: Spool, number: int) -> None:
    jobs = spool.queue(f"jobs-{number}", create=True)
    jobs.put(b"one")
    for message in jobs.claim():
        message.ack()
    jobs.delete()


def queue_with_limits(spool: Spool, number: int) -> None:
    jobs = spool.queue(f"jobs-{number}", create=True)
    jobs.configure(max_in_flight=5, max_depth=9, max_rate=100.0)
    jobs.put(b"one")
    for message in jobs.claim():
        message.ack()
    jobs.delete()


def fair_queue(spool: Spool, number: int) -> None:
    jobs = spool.queue(f"jobs-{number}", create=True)
    jobs.configure(fetch_order="fair")
    jobs.put(b"one", group="a")
    for message in jobs.claim():
        message.ack()
    jobs.delete()


def fifo_queue(spool: Spool, number: int) -> None:
    spool.create_queue(f"orders-{number}", fifo=True)
    orders = spool.queue(f"orders-{number}")
    orders.put(b"one", group="a", dedup_id="one")
    for message in orders.claim():
        message.ack()
    orders.delete()


def indexed_queue(spool: Spool, number: int) -> None:
    spool.create_queue(f"by-id-{number}", index=True)
    spool.indexed(f"by-id-{number}").upsert([NewMessage(b"one", id="x")])
    spool.indexed(f"by-id-{number}").remove("x")
    spool.delete_queue(f"by-id-{number}")


def dedup_queue(spool: Spool, number: int) -> None:
    name = f"refresh-{number}"
    for side in (dedup.write_side(name), dedup.read_side(name)):
        spool.create_queue(side)
    spool.complete(prepare.dedup_send(spool.context, name, [b"one", b"one"]))
    spool.deliver()
    found = spool.complete(dedup.poll(spool.context, name, 9, None))
    spool.queue(dedup.read_side(name)).remove(*found)
    for side in (dedup.write_side(name), dedup.read_side(name)):
        spool.delete_queue(side)


def message(spool: Spool, number: int) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.put(b"one", id=f"own-{number}")
    for one in jobs.claim():
        one.ack()


def given_id(spool: Spool, number: int) -> None:
    spool.create_queue("by-id", index=True)
    spool.indexed("by-id").upsert([NewMessage(b"one", id=f"id-{number}")])
    spool.indexed("by-id").upsert([NewMessage(b"two", id=f"id-{number}")])
    spool.deliver()
    spool.indexed("by-id").claim(f"id-{number}")
    spool.indexed("by-id").ack(f"id-{number}")


def group(spool: Spool, number: int) -> None:
    spool.create_queue("orders", fifo=True)
    spool.queue("orders").put(b"one", group=f"g-{number}", dedup_id=f"d-{number}")
    for one in spool.queue("orders").claim(10):
        one.ack()


def topic(spool: Spool, number: int) -> None:
    spool.queue("jobs", create=True)
    news = spool.topic(f"news-{number}", create=True)
    news.subscribe("jobs")
    news.publish(b"one")
    news.delete()
    for one in spool.queue("jobs").claim(9):
        one.ack()


def log_of_one_host(spool: Spool, number: int) -> None:
    _log(spool, f"users-{number}", "host")


def log_of_many_hosts(spool: Spool, number: int) -> None:
    _log(spool, f"users-{number}", "hosts")


def _log(spool: Spool, name: str, writers: str) -> None:
    log = spool.log(name)
    log.create(writers=writers)
    log.publish_many([LogEntry(b"one", id="one"), LogEntry(b"two", key="k")])
    log.channel("mailer").create("first")
    log.channel("mailer").ack(*log.channel("mailer").claim(2))
    log.delete()


def channel(spool: Spool, number: int) -> None:
    log = spool.log("users")
    if log.create():
        log.publish_many([b"one", b"two"])
    mailer = log.channel(f"mailer-{number}")
    mailer.create("first")
    mailer.ack(*mailer.claim(2))
    mailer.delete()


def logged_message(spool: Spool, number: int) -> None:
    _logged(spool, "users", "host")


def message_logged_by_many_hosts(spool: Spool, number: int) -> None:
    _logged(spool, "shared", "hosts")


def _logged(spool: Spool, name: str, writers: str) -> None:
    """Publish, read and acknowledge a message, which retention removes later."""
    log = spool.log(name)
    if log.create(writers=writers, retain_for=60.0, segment_bytes=4096, dedupe_window=60.0):
        log.channel("mailer").create("first")
    log.publish(b"one".ljust(200, b"."), id=f"id-{log.end()}")
    mailer = log.channel("mailer")
    mailer.ack(*mailer.claim(10))
    list(log.read("last"))


def schedule(spool: Spool, number: int) -> None:
    spool.queue("jobs", create=True)
    nightly = spool.schedule(f"nightly-{number}")
    nightly.define("0 3 * * *", "jobs", "due")
    nightly.put_now()
    spool.run_schedules()
    nightly.delete()
    for one in spool.queue("jobs").claim(9):
        one.ack()


def move(spool: Spool, number: int) -> None:
    spool.queue("jobs", create=True).put(b"one")
    spool.queue("more", create=True)
    spool.deliver()
    spool.begin_move("jobs", "more")
    spool.make_moves()
    for one in spool.queue("more").claim(9):
        one.ack()


def dead_letter(spool: Spool, number: int) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.configure(max_deliveries=9, dead_letter_queue="dead")
    jobs.put(b"one")
    for one in jobs.claim(9):
        one.bury()
    spool.queue("dead").redrive()
    for one in jobs.claim(9):
        one.ack()


def queue_of_a_consumer(spool: Spool, number: int) -> None:
    """A queue of a consumer that stays open."""
    if spool not in _consumers:
        _consumers[spool] = Consumer(spool, "spark")
    jobs = spool.queue(f"jobs-{number}", create=True)
    jobs.put_many([b"one"] * 4)
    spool.deliver()
    batch = _consumers[spool].claim("s", 0, spool.queues(), 3)
    assert batch is not None
    _consumers[spool].commit("s", batch.number)
    jobs.delete()


_consumers: WeakKeyDictionary[Spool, Consumer] = WeakKeyDictionary()


def consumer(spool: Spool, number: int) -> None:
    spool.queue("jobs", create=True).put(b"one")
    spool.deliver()
    with Consumer(spool, f"spark-{number}") as one:
        batch = one.claim("s", 0, ["jobs"], 9)
        assert batch is not None
        one.commit("s", batch.number)
    forget(spool.context, one.name)


def staged_job(spool: Spool, number: int) -> None:
    jobs = spool.queue("jobs", create=True)
    job = Job(f"load-{number}")
    part = Part(spool.context, spool.syncer.sync, job)
    part.write("jobs", NewMessage(b"one"))
    commit(spool, job, [part.finish()], keeps=False)
    for one in jobs.claim(9):
        one.ack()


CYCLES: tuple[Cycle, ...] = (
    queue,
    queue_with_limits,
    fair_queue,
    fifo_queue,
    indexed_queue,
    dedup_queue,
    message,
    given_id,
    group,
    topic,
    log_of_one_host,
    log_of_many_hosts,
    channel,
    logged_message,
    message_logged_by_many_hosts,
    schedule,
    move,
    dead_letter,
    queue_of_a_consumer,
    consumer,
    staged_job,
)


class Size(NamedTuple):
    """Open descriptors, bytes in memory, and names on disk."""

    descriptors: int
    bytes: int
    names: int


def grown(root: Path, cycle: Cycle, number: int) -> Size:
    """The growth after more things have been created and deleted.

    The first things may create what a program keeps for all of them.
    """
    clock, monotonic, begun = Clock(), time.monotonic, time.time()

    def later() -> float:
        """A clock ahead, so that caches expire."""
        return monotonic() + clock() - begun

    with (
        mock.patch("time.monotonic", later),
        Spool(root, sync="none", clock=clock) as spool,
    ):
        spool.open_logs.blocks.budget = 0  # the cache of blocks is limited by size
        tracemalloc.start()
        try:
            _run(spool, cycle, range(number))
            before = _measured(spool, clock, partial(cycle, spool, -1))
            _run(spool, cycle, range(number, 2 * number))
            after = _measured(spool, clock, partial(cycle, spool, -2))
        finally:
            tracemalloc.stop()
    return Size(*(b - a for a, b in zip(before, after, strict=True)))


def _run(spool: Spool, cycle: Cycle, numbers: range) -> None:
    for number in numbers:
        cycle(spool, number)
    spool.deliver()


def _measured(spool: Spool, clock: Clock, cycle: Callable[[], None]) -> Size:
    """The size after all clean-ups. cycle: makes a program notice changes."""
    for _ in range(3):
        clock.advance(_DAYS_S)
        for path in (spool.tree.root / "config").glob(".*.dedup/*"):
            os.utime(path, (0, 0))  # their age is by the clock of files
        with Spool(spool.tree.root, sync="none", clock=clock) as mover:  # a starting mover
            mover.deliver()
            mover.tend_logs()
            mover.make_moves()
        cycle()
        spool.deliver()
        spool.tend_logs()
        spool.reap()
        forget_ended(spool.tree, lambda: time.time() + _DAYS_S + 1)  # as a reaper does
        Reports(spool.tree, "here", "mq").write(spool.context.metrics)  # as each program does
    is_queue.cache_clear()  # a cache that is limited by size
    gc.collect()
    names = sum(len(folders) + len(files) for _, folders, files in os.walk(spool.tree.root))
    return Size(len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0], names)
