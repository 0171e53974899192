"""Every verb fails with an FsmqError when the disk fails or the process may open no more files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import FsmqError, NewMessage, Queue, Spool
from fsmq.spool.indexed import Indexed
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming.dispatch import Asked
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.schedules.schedule import Schedule
from fsmq.spool.schedules.schedule_settings import ScheduleSettings
from fsmq.spool.topic import Topic
from tests.harness.calls import seen
from tests.harness.rounds import part_of

_OPENING = ("open", "listdir", "scandir")
# Verbs that wait or run for ever; they call verbs that are tested here.
_UNTRIED = {
    "Channel.worker",
    "Log.wait",
    "Queue.worker",
    "Spool.close",
    "Spool.complete",
    "Spool.select",
    "Spool.wait",
}


class World:
    """A spool with one of everything, whose process has made only claims."""

    def __init__(self, root: Path) -> None:
        with Spool(root, sync="none", delivers=False) as before:
            dead, jobs = (before.queue(name, create=True) for name in ("dead", "jobs"))
            jobs.configure(max_deliveries=9, dead_letter_queue="dead")
            self.ids = jobs.put_many([b"1", b"2", b"3"])
            self.later = jobs.put(b"later", delay=60)
            dead.put(b"letter")
            before.topic("news", create=True).subscribe("jobs")
            log = before.log("users", create=True)
            log.publish_many([b"1", b"2", b"3"])
            log.channel("mailer").create("first", max_deliveries=9, dead_letter_queue="dead")
            before.schedule("daily").define("0 0 * * *", "jobs", b"day")
            before.create_queue("given", index=True)
            before.indexed("given").upsert([NewMessage(b"a", id="a"), NewMessage(b"b", id="b")])
            self.ref = before.begin_move("dead", "jobs").ref
            before.deliver()
        self.spool = Spool(root, sync="none", delivers=False)
        self.jobs, self.dead = self.spool.queue("jobs"), self.spool.queue("dead")
        self.topic, self.log = self.spool.topic("news"), self.spool.log("users")
        self.channel, self.schedule = self.log.channel("mailer"), self.spool.schedule("daily")
        self.given = self.spool.indexed("given")
        [self.claimed], [self.handed] = self.jobs.claim(1), self.channel.claim(1)
        self.given.claim("a")


def use(items: Any) -> None:
    """Exhaust an iterator, which works lazily."""
    for _ in items:
        pass


def with_one(claim: Any) -> None:
    with claim:
        pass


SETTINGS = ScheduleSettings("0 0 * * *", "jobs", b"")
CALLS: dict[str, Callable[[World], object]] = {
    "Spool.begin_move": lambda w: w.spool.begin_move("jobs", "dead"),
    "Spool.begin_redrive": lambda w: w.spool.begin_redrive("dead", to="jobs"),
    "Spool.cluster": lambda w: w.spool.cluster(),
    "Spool.configure": lambda w: w.spool.configure("jobs", {"max_deliveries": 3}),
    "Spool.counts": lambda w: w.spool.counts("jobs"),
    "Spool.create_queue": lambda w: w.spool.create_queue("new", fifo=True),
    "Spool.create_topic": lambda w: w.spool.create_topic("new"),
    "Spool.delete_queue": lambda w: w.spool.delete_queue("jobs"),
    "Spool.delete_topic": lambda w: w.spool.delete_topic("news"),
    "Spool.deliver": lambda w: w.spool.deliver(),
    "Spool.events_fileno": lambda w: w.spool.events_fileno(),
    "Spool.find": lambda w: w.spool.find(w.ids[1]),
    "Spool.find_move": lambda w: w.spool.find_move(w.ref),
    "Spool.has_queue": lambda w: w.spool.has_queue("jobs"),
    "Spool.history": lambda w: w.spool.history(),
    "Spool.indexed": lambda w: w.spool.indexed("given"),
    "Spool.log": lambda w: w.spool.log("new", create=True),
    "Spool.logs": lambda w: w.spool.logs(),
    "Spool.make_move": lambda w: w.spool.make_move(w.ref),
    "Spool.make_moves": lambda w: w.spool.make_moves(),
    "Spool.moves": lambda w: w.spool.moves(),
    "Spool.queue": lambda w: w.spool.queue("new", create=True),
    "Spool.queues": lambda w: w.spool.queues(),
    "Spool.reap": lambda w: w.spool.reap(),
    "Spool.run_schedules": lambda w: w.spool.run_schedules(),
    "Spool.schedule": lambda w: w.spool.schedule("daily"),
    "Spool.schedules": lambda w: w.spool.schedules(),
    "Spool.settings": lambda w: w.spool.settings("jobs"),
    "Spool.stop_move": lambda w: w.spool.stop_move(w.ref),
    "Spool.subscribe": lambda w: w.spool.subscribe("news", "dead"),
    "Spool.subscriptions": lambda w: w.spool.subscriptions("news"),
    "Spool.survey": lambda w: w.spool.survey(),
    "Spool.tend_logs": lambda w: w.spool.tend_logs(),
    "Spool.topic": lambda w: w.spool.topic("new", create=True),
    "Spool.topics": lambda w: w.spool.topics(),
    "Spool.unsubscribe": lambda w: w.spool.unsubscribe("news", "jobs"),
    "Queue.ack": lambda w: w.jobs.ack(w.claimed),
    "Queue.ack_each": lambda w: w.jobs.ack_each([w.claimed]),
    "Queue.bury": lambda w: w.jobs.bury(w.claimed),
    "Queue.claim": lambda w: w.jobs.claim(2),
    "Queue.claim_one": lambda w: with_one(w.jobs.claim_one()),
    "Queue.configure": lambda w: w.jobs.configure(max_deliveries=3),
    "Queue.counts": lambda w: w.jobs.counts(),
    "Queue.create": lambda w: w.spool.queue("new").create(),
    "Queue.delete": lambda w: w.jobs.delete(),
    "Queue.find": lambda w: w.jobs.find(w.ids[1]),
    "Queue.life": lambda w: w.jobs.life(w.ids[1]),
    "Queue.move_to": lambda w: w.jobs.move_to("dead", in_flight=True),
    "Queue.peek": lambda w: w.jobs.peek(),
    "Queue.purge": lambda w: w.jobs.purge(),
    "Queue.put": lambda w: w.jobs.put(b"new"),
    "Queue.put_json": lambda w: w.jobs.put_json({}, delay=3),
    "Queue.put_many": lambda w: w.jobs.put_many([b"new", b"newer"]),
    "Queue.redrive": lambda w: w.dead.redrive(to="jobs"),
    "Queue.release": lambda w: w.jobs.release(w.claimed),
    "Queue.remove": lambda w: w.jobs.remove(w.later),
    "Queue.remove_each": lambda w: w.jobs.remove_each(w.ids),
    "Queue.renew": lambda w: w.jobs.renew(w.claimed),
    "Queue.search": lambda w: w.jobs.search(contains=b"2"),
    "Queue.set_priority": lambda w: w.jobs.set_priority(w.ids[1], 7),
    "Queue.settings": lambda w: w.jobs.settings(),
    "Indexed.ack": lambda w: w.given.ack("a"),
    "Indexed.claim": lambda w: w.given.claim("b"),
    "Indexed.ensure": lambda w: w.given.ensure(NewMessage(b"c", id="c")),
    "Indexed.find": lambda w: w.given.find("a"),
    "Indexed.postpone": lambda w: w.given.postpone("b", 60),
    "Indexed.remove": lambda w: w.given.remove("b"),
    "Indexed.renew": lambda w: w.given.renew("a", 60),
    "Indexed.scan": lambda w: use(w.given.scan()),
    "Indexed.upsert": lambda w: w.given.upsert([NewMessage(b"c", id="b")]),
    "Topic.create": lambda w: w.spool.topic("new").create(),
    "Topic.delete": lambda w: w.topic.delete(),
    "Topic.publish": lambda w: w.topic.publish(b"new"),
    "Topic.subscribe": lambda w: w.topic.subscribe("dead"),
    "Topic.subscriptions": lambda w: w.topic.subscriptions(),
    "Topic.unsubscribe": lambda w: w.topic.unsubscribe("jobs"),
    "Log.batches": lambda w: use(w.log.batches()),
    "Log.channel": lambda w: w.log.channel("new", create=True),
    "Log.channels": lambda w: w.log.channels(),
    "Log.configure": lambda w: w.log.configure(retain_for=60),
    "Log.create": lambda w: w.spool.log("new").create(),
    "Log.delete": lambda w: w.log.delete(),
    "Log.end": lambda w: w.log.end(),
    "Log.first": lambda w: w.log.first(),
    "Log.offset_of": lambda w: w.log.offset_of("last"),
    "Log.page": lambda w: w.log.page(0),
    "Log.publish": lambda w: w.log.publish(b"new"),
    "Log.publish_each": lambda w: w.log.publish_each([[LogEntry(b"new")]]),
    "Log.publish_many": lambda w: w.log.publish_many([b"new"]),
    "Log.read": lambda w: use(w.log.read()),
    "Log.settings": lambda w: w.log.settings(),
    "Log.stats": lambda w: w.log.stats(),
    "Channel.ack": lambda w: w.channel.ack(w.handed),
    "Channel.ack_each": lambda w: w.channel.ack_each([w.handed]),
    "Channel.again_in": lambda w: w.channel.again_in(),
    "Channel.bury": lambda w: w.channel.bury(w.handed),
    "Channel.change": lambda w: w.channel.change(lambda _: {"paused": True}),
    "Channel.changed_at": lambda w: w.channel.changed_at(),
    "Channel.claim": lambda w: w.channel.claim(2),
    "Channel.claim_each": lambda w: w.channel.claim_each([Asked(1)]),
    "Channel.claim_one": lambda w: with_one(w.channel.claim_one()),
    "Channel.configure": lambda w: w.channel.configure(paused=True),
    "Channel.create": lambda w: w.log.channel("new").create(),
    "Channel.delete": lambda w: w.channel.delete(),
    "Channel.delete_if_unused": lambda w: w.channel.delete_if_unused(),
    "Channel.done": lambda w: w.channel.done(w.handed),
    "Channel.done_ranges": lambda w: w.channel.done_ranges([(0, 1)]),
    "Channel.done_ranges_each": lambda w: w.channel.done_ranges_each([([(0, 1)], None)]),
    "Channel.done_through": lambda w: w.channel.done_through(w.handed),
    "Channel.end_poison": lambda w: w.channel.end_poison(),
    "Channel.lag": lambda w: w.channel.lag(),
    "Channel.pause": lambda w: w.channel.pause(),
    "Channel.release": lambda w: w.channel.release(w.handed),
    "Channel.release_unseen": lambda w: w.channel.release_unseen([w.handed]),
    "Channel.renew": lambda w: w.channel.renew(w.handed),
    "Channel.resume": lambda w: w.channel.resume(),
    "Channel.seek": lambda w: w.channel.seek("last"),
    "Channel.settings": lambda w: w.channel.settings(),
    "Channel.state": lambda w: w.channel.state(),
    "Schedule.change": lambda w: w.schedule.change(lambda _: {"paused": True}),
    "Schedule.configure": lambda w: w.schedule.configure(paused=True),
    "Schedule.define": lambda w: w.spool.schedule("new").define("0 0 * * *", "jobs"),
    "Schedule.delete": lambda w: w.schedule.delete(),
    "Schedule.next": lambda w: w.schedule.next(),
    "Schedule.put_now": lambda w: w.schedule.put_now(),
    "Schedule.replace": lambda w: w.schedule.replace(SETTINGS),
    "Schedule.state": lambda w: w.schedule.state(),
}


def test_every_verb_is_tried() -> None:
    verbs = {
        f"{of.__name__}.{name}"
        for of in (Spool, Queue, Indexed, Topic, Log, Channel, Schedule)
        for name in dir(of)
        if name[0] != "_" and callable(getattr(of, name))
    }
    assert verbs == CALLS.keys() | _UNTRIED


class Refusing:
    """Refuses calls with these names after the first ``after``. None: all calls."""

    def __init__(self, error: int, names: Collection[str] | None, after: int) -> None:
        self._error = error
        self._names = names
        self._left = after

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self._names is None or name in self._names:
            self._left -= 1
            if self.has_refused:
                raise OSError(self._error, os.strerror(self._error))

    @property
    def has_refused(self) -> bool:
        return self._left < 0


def refuse(root: Path, verb: str, error: int, names: Collection[str] | None, step: int) -> None:
    """Call a verb again and again, and refuse its calls from each ``step``-th one on."""
    for after in count(0, step):
        world, refusing = World(root / str(after)), Refusing(error, names, after)
        try:
            with world.spool, seen(refusing, looks=True):
                CALLS[verb](world)
        except FsmqError:
            assert refusing.has_refused
        if not refusing.has_refused:
            return


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_fails_with_an_fsmq_error_when_no_file_can_be_opened(root: Path, verb: str) -> None:
    refuse(root, verb, errno.EMFILE, _OPENING, 1)


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_fails_with_an_fsmq_error_when_the_disk_fails(root: Path, verb: str) -> None:
    refuse(root, verb, errno.EIO, None, part_of(6, 1))
