"""Queues, logs, channels, topics and schedules that two programs create, change and delete at once.

One program is stopped before each of its calls while the other acts. Each outcome (all results and
the final settings) must be that of some order of the verbs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fsmq.spool import FsmqError, Spool, Unavailable
from fsmq.spool.layout.topics.deliveries import Delivery
from fsmq.spool.layout.topics.filters import Filter
from fsmq.spool.verbs.queues import creation, subscribing
from tests.harness.spool_errors import errors_in
from tests.interleave.orders import BUSY, check_orders
from tests.spool.helpers import Clock

Act = Callable[[Spool], object]


class Thing(NamedTuple):
    """A thing with settings. made: the verb that creates it. around: creates what it needs."""

    verbs: Mapping[str, Act]
    made: str
    seen: Act
    around: Act = lambda _: None


def not_default(settings: Any, defaults: Any) -> object:
    return sorted((n, v) for n, v in settings.as_dict().items() if v != defaults.as_dict()[n])


def configured(**changes: Any) -> Act:
    def configure(s: Spool) -> object:
        return not_default(s.queue("jobs").configure(**changes), creation.DEFAULTS)

    return configure


def tagged(name: str) -> Act:
    """A change of the data of a dialect beside the settings."""

    def tag(s: Spool) -> object:
        def change(_: object, document: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"ours": {**document.get("ours", {}), name: True}}

        return not_default(creation.change(s.context, "jobs", change, "ours"), creation.DEFAULTS)

    return tag


def queue_state(s: Spool) -> object:
    has_index = os.path.isdir(s.tree.root / "ids" / "jobs")
    others = sorted(name for name in os.listdir(s.tree.root / "config") if name != "jobs.json")
    if not s.has_queue("jobs"):
        return "none", others
    settings = not_default(s.settings("jobs"), creation.DEFAULTS)
    member = sorted(s.context.settings.member("jobs", "ours"))
    return settings, member, has_index, sorted(s.queues()), others


QUEUE = Thing(
    {
        "create": lambda s: s.create_queue("jobs"),
        "create fifo": lambda s: s.create_queue("jobs", fifo=True),
        "create indexed": lambda s: s.create_queue("jobs", index=True),
        "pause": configured(paused=True),
        "retain": configured(retention=60.0),
        "let bury": configured(max_deliveries=3, dead_letter_queue="dead"),
        "tag": tagged("one"),
        "tag otherwise": tagged("two"),
        "delete": lambda s: s.delete_queue("jobs"),
    },
    "create fifo",
    queue_state,
)


def log_configured(**changes: Any) -> Act:
    return lambda s: repr(s.log("events").configure(**changes))


def log_state(s: Spool) -> object:
    return [(name, repr(s.log(name).settings())) for name in s.open_logs.names()]


LOG = Thing(
    {
        "create": lambda s: s.log("events").create(writers="host", retain_bytes=1000),
        "keep long": log_configured(retain_for=7200.0),
        "keep little": log_configured(max_bytes=10**6),
        "let hosts write": log_configured(writers="hosts"),
        "delete": lambda s: s.log("events").delete(),
    },
    "create",
    log_state,
)


def channel_configured(**changes: Any) -> Act:
    return lambda s: repr(s.log("events").channel("mail").configure(**changes))


def channel_state(s: Spool) -> object:
    if not s.open_logs.names():
        return "no log"
    try:
        return repr(s.log("events").channel("mail").settings()), s.queues()
    except FsmqError as error:
        return type(error).__name__, s.queues()


CHANNEL = Thing(
    {
        "create": lambda s: s.log("events").channel("mail").create(order="strict"),
        "pause": channel_configured(paused=True),
        "widen": channel_configured(max_window=500),
        "let bury": channel_configured(max_deliveries=3, dead_letter_queue="dead"),
        "delete": lambda s: s.log("events").channel("mail").delete(),
        "delete the log": lambda s: s.log("events").delete(),
    },
    "create",
    channel_state,
    lambda s: s.log("events").create(writers="host"),
)


def described(name: str) -> Act:
    """Like CreateTopic or TagResource of SNS."""

    def describe(s: Spool) -> object:
        subscribing.describe_topic(s.context, "news", lambda about: {**about, name: True})
        return None

    return describe


def delivered(**changes: Any) -> Act:
    """Like SetSubscriptionAttributes of SNS."""

    def change(now: Filter | None) -> Filter:
        before = now if isinstance(now, Delivery) else Delivery()
        return Delivery(raw=changes.get("raw", before.raw), kept={**before.kept, **changes})

    return lambda s: subscribing.change_filter(s.context, "news", "jobs", change)


def topic_state(s: Spool) -> object:
    return [
        (
            sorted(s.context.topics.about(name)),
            [(q, f and f.text()) for q, f in s.subscriptions(name).items()],
        )
        for name in s.topics()
    ]


TOPIC = Thing(
    {
        "create": lambda s: s.create_topic("news"),
        "tag": described("one"),
        "tag otherwise": described("two"),
        "subscribe": lambda s: s.subscribe("news", "jobs", Delivery()),
        "keep subscribed": lambda s: s.subscribe("news", "jobs", keep=True),
        "deliver raw": delivered(raw=True),
        "redrive": delivered(redrive="x"),
        "unsubscribe": lambda s: s.unsubscribe("news", "jobs"),
        "delete": lambda s: s.delete_topic("news"),
        "delete the queue": lambda s: s.delete_queue("jobs"),
    },
    "create",
    topic_state,
    lambda s: s.create_queue("jobs"),
)


def schedule_configured(**changes: Any) -> Act:
    return lambda s: repr(s.schedule("nightly").configure(**changes))


SCHEDULE = Thing(
    {
        "define": lambda s: s.schedule("nightly").define("0 3 * * *", "jobs", b"x"),
        "pause": schedule_configured(paused=True),
        "hurry": schedule_configured(priority=3),
        "delete": lambda s: s.schedule("nightly").delete(),
    },
    "define",
    lambda s: [repr(state.settings) for state in s.schedules()],
    lambda s: s.create_queue("jobs"),
)

PLANS: list[tuple[Thing, bool, str, Sequence[str]]] = [
    (QUEUE, False, "create", ["create fifo"]),
    (QUEUE, False, "create fifo", ["create", "let bury"]),
    (QUEUE, False, "create fifo", ["create fifo", "pause"]),
    (QUEUE, False, "create fifo", ["create fifo", "delete"]),
    (QUEUE, False, "create indexed", ["create", "retain"]),
    (QUEUE, False, "create indexed", ["create indexed", "delete", "create fifo"]),
    (QUEUE, True, "create fifo", ["delete"]),
    (QUEUE, True, "create fifo", ["delete", "create"]),
    (QUEUE, True, "create", ["delete"]),
    (QUEUE, True, "pause", ["retain"]),
    (QUEUE, True, "pause", ["let bury", "tag"]),
    (QUEUE, True, "pause", ["delete"]),
    (QUEUE, True, "let bury", ["delete", "create"]),
    (QUEUE, True, "tag", ["tag otherwise", "retain"]),
    (QUEUE, True, "tag", ["delete", "create fifo"]),
    (QUEUE, True, "delete", ["pause"]),
    (QUEUE, True, "delete", ["delete", "create"]),
    (QUEUE, True, "delete", ["create fifo", "retain"]),
    (QUEUE, True, "delete", ["delete", "create indexed"]),
    (LOG, False, "create", ["create", "keep long"]),
    (LOG, False, "create", ["create", "delete"]),
    (LOG, True, "keep long", ["keep little"]),
    (LOG, True, "keep long", ["let hosts write"]),
    (LOG, True, "let hosts write", ["keep little"]),
    (LOG, True, "keep long", ["delete", "create"]),
    (LOG, True, "delete", ["keep long"]),
    (LOG, True, "delete", ["delete", "create", "keep little"]),
    (CHANNEL, False, "create", ["create", "pause"]),
    (CHANNEL, False, "create", ["delete the log"]),
    (CHANNEL, True, "pause", ["widen"]),
    (CHANNEL, True, "let bury", ["pause"]),
    (CHANNEL, True, "widen", ["delete", "create"]),
    (CHANNEL, True, "pause", ["delete the log"]),
    (CHANNEL, True, "delete", ["pause"]),
    (CHANNEL, True, "delete", ["delete", "create", "widen"]),
    (TOPIC, False, "tag", ["create", "tag otherwise"]),
    (TOPIC, True, "tag", ["tag otherwise"]),
    (TOPIC, True, "tag", ["delete", "create"]),
    (TOPIC, True, "subscribe", ["keep subscribed", "deliver raw"]),
    (TOPIC, True, "keep subscribed", ["subscribe", "redrive"]),
    (TOPIC, True, "subscribe", ["delete the queue"]),
    (TOPIC, True, "subscribe", ["delete", "create"]),
    (TOPIC, True, "unsubscribe", ["subscribe", "deliver raw"]),
    (TOPIC, True, "delete", ["subscribe"]),
    (TOPIC, True, "delete", ["delete", "create", "tag"]),
    (SCHEDULE, False, "define", ["define", "hurry"]),
    (SCHEDULE, True, "pause", ["hurry"]),
    (SCHEDULE, True, "hurry", ["delete", "define"]),
    (SCHEDULE, True, "delete", ["pause"]),
]
# Two changes of one existing subscription.
SUBSCRIBED = TOPIC._replace(
    around=lambda s: [TOPIC.around(s), TOPIC.verbs["create"](s), TOPIC.verbs["subscribe"](s)],
    made="create",
)
PLANS += [
    (SUBSCRIBED, True, "deliver raw", ["redrive"]),
    (SUBSCRIBED, True, "deliver raw", ["unsubscribe"]),
    (SUBSCRIBED, True, "redrive", ["delete the queue"]),
    (SUBSCRIBED, True, "redrive", ["delete", "create", "keep subscribed"]),
    (SUBSCRIBED, True, "delete the queue", ["deliver raw"]),
    (SUBSCRIBED, True, "delete the queue", ["unsubscribe", "subscribe"]),
]
NAMES = {id(QUEUE): "queue", id(LOG): "log", id(CHANNEL): "channel", id(SCHEDULE): "schedule"}


class Place:
    """A spool of two processes, and the thing on which they act."""

    def __init__(self, root: Path, thing: Thing, is_there: bool) -> None:
        self.root = root
        self.thing = thing
        clock = Clock()
        clock.now += 3600 - clock.now % 3600
        self.one, self.other = (
            Spool(root, sync="none", clock=clock, delivers=False, watch="poll") for _ in range(2)
        )
        thing.around(self.one)
        if is_there:
            thing.verbs[thing.made](self.one)

    def close(self) -> None:
        self.one.close()
        self.other.close()
        shutil.rmtree(self.root)

    def act(self, verb: str, s: Spool) -> object:
        """The result of a verb."""
        try:
            return self.thing.verbs[verb](s)
        except Unavailable:
            return BUSY
        except FsmqError as error:
            return type(error).__name__

    def left(self) -> object:
        with Spool(self.root, sync="none", delivers=False, watch="poll") as spool:
            seen = self.thing.seen(spool)
        assert errors_in(self.root) == []
        return seen


@contextmanager
def a_place(root: Path, thing: Thing, is_there: bool) -> Iterator[Place]:
    place = Place(root, thing, is_there)
    try:
        yield place
    finally:
        place.close()


def named(value: object) -> str | None:
    if isinstance(value, Thing):
        return NAMES.get(id(value), "topic")
    return ("there" if value else "missing") if isinstance(value, bool) else None


@pytest.mark.parametrize(("thing", "is_there", "verb", "others"), PLANS, ids=named)
def test_every_outcome_is_that_of_some_order(
    scratch: Path, thing: Thing, is_there: bool, verb: str, others: Sequence[str]
) -> None:
    numbers = count(1)
    calls = check_orders(
        verb, others, lambda _: a_place(scratch / str(next(numbers)), thing, is_there)
    )
    assert calls > 3
