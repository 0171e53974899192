"""Settings of queues, topics, logs and channels: each change lasts and changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fsmq.spool import NoSuchQueue, Spool
from fsmq.spool.errors import InvalidValue, NoSuchChannel, NoSuchLog, NoSuchTopic
from tests.stories.story import UNKNOWN, Action, Story, Verb

QUEUE, LOG, CHANNEL, TOPIC = "jobs", "users", "mailer", "news"
# The changed settings of each thing; a missing thing has no entry.
State = frozenset[tuple[str, str, Any]]
_THERE = "is there"
_FIFO = "fifo"


def _has(state: State, thing: str) -> bool:
    return (thing, _THERE, True) in state


def _of(state: State, thing: str) -> dict[str, Any]:
    return {name: value for of, name, value in state if of == thing}


def configure(spool: Spool, thing: str, name: str, value: Any) -> None:
    if thing == QUEUE:
        spool.configure(QUEUE, {name: value})
    elif thing == LOG:
        spool.log(LOG).configure(**{name: value})
    else:
        spool.log(LOG).channel(CHANNEL).configure(**{name: value})


def after_configure(
    state: State, answer: Any, thing: str, name: str, value: Any
) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if _has(state, thing):
        others = {s for s in state if s[:2] != (thing, name)}
        yield frozenset(others | {(thing, name, value)})


def create(spool: Spool, fifo: bool) -> bool | None:
    """Whether it is created now; None if a queue of another kind exists."""
    try:
        return spool.create_queue(QUEUE, fifo=fifo)
    except InvalidValue:
        return None


def after_create(state: State, answer: Any, fifo: bool) -> Iterator[State]:
    is_there = _has(state, QUEUE)
    is_fifo = (QUEUE, _FIFO, True) in state
    expected = None if is_there and is_fifo < fifo else not is_there
    if answer is UNKNOWN:
        yield state
    if answer is UNKNOWN or answer is expected:
        new = {(QUEUE, _THERE, True), *([(QUEUE, _FIFO, True)] if fifo else [])}
        yield state if is_there else state | new


def delete(spool: Spool, thing: str) -> bool:
    try:
        if thing == QUEUE:
            spool.delete_queue(QUEUE)
        elif thing == TOPIC:
            spool.delete_topic(TOPIC)
        elif thing == LOG:
            spool.log(LOG).delete()
        else:
            spool.log(LOG).channel(CHANNEL).delete()
    except (NoSuchQueue, NoSuchTopic, NoSuchLog, NoSuchChannel):
        return False
    return True


def after_delete(state: State, answer: Any, thing: str) -> Iterator[State]:
    is_there = _has(state, thing)
    if answer is UNKNOWN or (answer is False and not is_there):
        yield state
    if answer is not False and is_there:
        gone = {thing, CHANNEL} if thing == LOG else {thing}
        kept = {s for s in state if s[0] not in gone}
        yield frozenset(s for s in kept if s[:2] != (TOPIC, thing))


def subscribe(spool: Spool) -> None:
    spool.subscribe(TOPIC, QUEUE)


def after_subscribe(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN:
        yield state
    if _has(state, TOPIC) and _has(state, QUEUE):
        yield state | {(TOPIC, QUEUE, True)}


def inspect(spool: Spool) -> State:
    """All changed settings."""
    found: set[tuple[str, str, Any]] = set()
    with suppress(NoSuchQueue):
        settings = spool.settings(QUEUE)
        found |= {(QUEUE, name, getattr(settings, name)) for name in CHANGES[QUEUE]}
        found |= {(QUEUE, _FIFO, True)} if settings.fifo else set()
        found.add((QUEUE, _THERE, True))
    with suppress(NoSuchTopic):
        found |= {(TOPIC, queue, True) for queue in spool.subscriptions(TOPIC)}
        found.add((TOPIC, _THERE, True))
    with suppress(NoSuchLog, NoSuchChannel):
        log = spool.log(LOG)
        kept = log.settings()
        found |= {(LOG, name, getattr(kept, name)) for name in CHANGES[LOG]}
        found.add((LOG, _THERE, True))
        of = log.channel(CHANNEL).settings()
        found |= {(CHANNEL, name, getattr(of, name)) for name in CHANGES[CHANNEL]}
        found.add((CHANNEL, _THERE, True))
    defaults = {
        (thing, name, value) for thing in CHANGES for name, value in DEFAULTS[thing].items()
    }
    return frozenset(found - defaults)


def after_inspect(state: State, answer: Any) -> Iterator[State]:
    if answer is UNKNOWN or answer == state:
        yield state


CHANGES: dict[str, dict[str, Any]] = {
    QUEUE: {"max_depth": 77, "paused": True, "visibility_timeout": 44.0, "max_message_bytes": 555},
    LOG: {"retain_for": 5000.0, "dedupe_window": 77.0, "retain_bytes": 99_999_999},
    CHANNEL: {"paused": True, "max_deliveries": 7, "max_window": 555},
}
DEFAULTS: dict[str, dict[str, Any]] = {
    QUEUE: {
        "max_depth": None,
        "paused": None,
        "visibility_timeout": 30.0,
        "max_message_bytes": None,
    },
    LOG: {"retain_for": 7 * 86_400.0, "dedupe_window": 300.0, "retain_bytes": None},
    CHANNEL: {"paused": False, "max_deliveries": None, "max_window": 1 << 20},
}


def _configuring(*given: Any) -> Action:
    return lambda program: program.ask("configure", *given)


_CONFIGURES = {
    f"{name} of {thing}": (thing, name, value)
    for thing, changes in CHANGES.items()
    for name, value in changes.items()
}


def set_up(spool: Spool) -> None:
    spool.create_queue(QUEUE)
    spool.configure(QUEUE, {"max_message_bytes": 555})
    spool.create_topic(TOPIC)
    spool.log(LOG).create(retain_bytes=99_999_999)
    spool.log(LOG).channel(CHANNEL).create("first", max_window=555)


def last_inspection(program: Any) -> None:
    program.ask("inspect")


SETTINGS = Story(
    name="settings",
    first=frozenset(
        {
            *((thing, _THERE, True) for thing in (QUEUE, LOG, CHANNEL, TOPIC)),
            (QUEUE, "max_message_bytes", 555),
            (LOG, "retain_bytes", 99_999_999),
            (CHANNEL, "max_window", 555),
        }
    ),
    verbs={
        "configure": Verb(configure, after_configure),
        "create": Verb(create, after_create),
        "delete": Verb(delete, after_delete),
        "subscribe": Verb(subscribe, after_subscribe),
        "inspect": Verb(inspect, after_inspect),
    },
    actions={
        **{name: _configuring(*given) for name, given in _CONFIGURES.items()},
        "create": lambda p: p.ask("create", False),
        "create fifo": lambda p: p.ask("create", True),
        "subscribe": lambda p: p.ask("subscribe"),
        "delete queue": lambda p: p.ask("delete", QUEUE),
        "delete topic": lambda p: p.ask("delete", TOPIC),
        "delete log": lambda p: p.ask("delete", LOG),
        "delete channel": lambda p: p.ask("delete", CHANNEL),
        "delete, create fifo": lambda p: (p.ask("delete", QUEUE), p.ask("create", True)),
        "delete, create": lambda p: (p.ask("delete", QUEUE), p.ask("create", False)),
    },
    acts=(
        "max_depth of jobs",
        "retain_for of users",
        "max_deliveries of mailer",
        "subscribe",
        "create fifo",
        "delete queue",
        "delete topic",
        "delete log",
        "delete channel",
        "delete, create fifo",
        "delete, create",
    ),
    others=(*_CONFIGURES, "create fifo", "subscribe", "delete queue", "delete, create fifo"),
    returns=("delete, create fifo", "a library starts", "delete, create"),
    set_up=set_up,
    inspect=last_inspection,
    clocks=("create fifo", "delete queue", "delete log", "delete, create fifo"),
)
