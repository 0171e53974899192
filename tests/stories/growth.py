"""Things that come and go: what a program that lives on keeps of them, and what is left on disk."""

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

# So long no program takes to clean up what others may still need.
_DAYS_S = 3 * 86_400.0
# Nothing is kept of one that was here, but a table that has grown stays as large: an entry in one
# takes more than this.
BYTES_EACH = 64
# Of a few queues something is kept though they are gone, until there are twice as many.
BYTES_OF_A_FEW = 32 * 1024

Come = Callable[[Spool, int], None]


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
    """It is published, read, done with, and in the end removed by the log's retention."""
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
    """Of one that works all the time."""
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


COMERS: tuple[Come, ...] = (
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
    """What a program has open, what it remembers, and how many names are on the disk."""

    descriptors: int
    bytes: int
    names: int


def grown(root: Path, come: Come, number: int) -> Size:
    """By how much all of that is more when so many things more have come and gone.

    The first that come may let a program make what it keeps for all of them.
    """
    clock, monotonic, begun = Clock(), time.monotonic, time.time()

    def later() -> float:
        """What nobody has used for a while is given back."""
        return monotonic() + clock() - begun

    with (
        mock.patch("time.monotonic", later),
        Spool(root, sync="none", clock=clock) as spool,
    ):
        spool.open_logs.blocks.budget = 0  # what was read has a size, too
        tracemalloc.start()
        try:
            _let_come(spool, come, range(number))
            before = _measured(spool, clock, partial(come, spool, -1))
            _let_come(spool, come, range(number, 2 * number))
            after = _measured(spool, clock, partial(come, spool, -2))
        finally:
            tracemalloc.stop()
    return Size(*(b - a for a, b in zip(before, after, strict=True)))


def _let_come(spool: Spool, come: Come, numbers: range) -> None:
    for number in numbers:
        come(spool, number)
    spool.deliver()


def _measured(spool: Spool, clock: Clock, come: Callable[[], None]) -> Size:
    """When everything that has gone has been cleaned up. come: what makes a program look around."""
    for _ in range(3):
        clock.advance(_DAYS_S)
        for path in (spool.tree.root / "config").glob(".*.dedup/*"):
            os.utime(path, (0, 0))  # their age goes by the clock of files
        with Spool(spool.tree.root, sync="none", clock=clock) as mover:  # one that starts
            mover.deliver()
            mover.tend_logs()
            mover.make_moves()
        come()
        spool.deliver()
        spool.tend_logs()
        spool.reap()
        forget_ended(spool.tree, lambda: time.time() + _DAYS_S + 1)  # as a reaper does
        Reports(spool.tree, "here", "mq").write(spool.context.metrics)  # as each program does
    is_queue.cache_clear()  # it has a size
    gc.collect()
    names = sum(len(folders) + len(files) for _, folders, files in os.walk(spool.tree.root))
    return Size(len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0], names)
