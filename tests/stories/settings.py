"""Settings of queues, topics, logs and channels: each change is of what it names, and lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fsmq.spool import NoSuchQueue, Spool
from fsmq.spool.errors import InvalidValue, NoSuchChannel, NoSuchLog, NoSuchTopic
from tests.stories.story import UNKNOWN, Deed, Story, Verb

QUEUE, LOG, CHANNEL, TOPIC = "jobs", "users", "mailer", "news"
# Of each thing what was changed of it; a thing that is not there has no entry.
Stands = frozenset[tuple[str, str, Any]]
_THERE = "is there"
_FIFO = "fifo"


def _has(stands: Stands, thing: str) -> bool:
    return (thing, _THERE, True) in stands


def _of(stands: Stands, thing: str) -> dict[str, Any]:
    return {name: value for of, name, value in stands if of == thing}


def configure(spool: Spool, thing: str, name: str, value: Any) -> None:
    if thing == QUEUE:
        spool.configure(QUEUE, {name: value})
    elif thing == LOG:
        spool.log(LOG).configure(**{name: value})
    else:
        spool.log(LOG).channel(CHANNEL).configure(**{name: value})


def means_configure(
    stands: Stands, answer: Any, thing: str, name: str, value: Any
) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if _has(stands, thing):
        others = {s for s in stands if s[:2] != (thing, name)}
        yield frozenset(others | {(thing, name, value)})


def create(spool: Spool, fifo: bool) -> bool | None:
    """Whether it is made now; None if it is there, and of another kind."""
    try:
        return spool.create_queue(QUEUE, fifo=fifo)
    except InvalidValue:
        return None


def means_create(stands: Stands, answer: Any, fifo: bool) -> Iterator[Stands]:
    is_there = _has(stands, QUEUE)
    is_fifo = (QUEUE, _FIFO, True) in stands
    told = None if is_there and is_fifo < fifo else not is_there
    if answer is UNKNOWN:
        yield stands
    if answer is UNKNOWN or answer is told:
        new = {(QUEUE, _THERE, True), *([(QUEUE, _FIFO, True)] if fifo else [])}
        yield stands if is_there else stands | new


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


def means_delete(stands: Stands, answer: Any, thing: str) -> Iterator[Stands]:
    is_there = _has(stands, thing)
    if answer is UNKNOWN or (answer is False and not is_there):
        yield stands
    if answer is not False and is_there:
        gone = {thing, CHANNEL} if thing == LOG else {thing}
        kept = {s for s in stands if s[0] not in gone}
        yield frozenset(s for s in kept if s[:2] != (TOPIC, thing))


def subscribe(spool: Spool) -> None:
    spool.subscribe(TOPIC, QUEUE)


def means_subscribe(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN:
        yield stands
    if _has(stands, TOPIC) and _has(stands, QUEUE):
        yield stands | {(TOPIC, QUEUE, True)}


def look(spool: Spool) -> Stands:
    """All that was changed of anything."""
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
    at_first = {
        (thing, name, value) for thing in CHANGES for name, value in AT_FIRST[thing].items()
    }
    return frozenset(found - at_first)


def means_look(stands: Stands, answer: Any) -> Iterator[Stands]:
    if answer is UNKNOWN or answer == stands:
        yield stands


CHANGES: dict[str, dict[str, Any]] = {
    QUEUE: {"max_depth": 77, "paused": True, "visibility_timeout": 44.0, "max_message_bytes": 555},
    LOG: {"retain_for": 5000.0, "dedupe_window": 77.0, "retain_bytes": 99_999_999},
    CHANNEL: {"paused": True, "max_deliveries": 7, "max_window": 555},
}
AT_FIRST: dict[str, dict[str, Any]] = {
    QUEUE: {
        "max_depth": None,
        "paused": None,
        "visibility_timeout": 30.0,
        "max_message_bytes": None,
    },
    LOG: {"retain_for": 7 * 86_400.0, "dedupe_window": 300.0, "retain_bytes": None},
    CHANNEL: {"paused": False, "max_deliveries": None, "max_window": 1 << 20},
}


def _configuring(*given: Any) -> Deed:
    return lambda program: program.ask("configure", *given)


_CONFIGURES = {
    f"{name} of {thing}": (thing, name, value)
    for thing, changes in CHANGES.items()
    for name, value in changes.items()
}


def lay(spool: Spool) -> None:
    spool.create_queue(QUEUE)
    spool.configure(QUEUE, {"max_message_bytes": 555})
    spool.create_topic(TOPIC)
    spool.log(LOG).create(retain_bytes=99_999_999)
    spool.log(LOG).channel(CHANNEL).create("first", max_window=555)


def last_look(program: Any) -> None:
    program.ask("look")


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
        "configure": Verb(configure, means_configure),
        "create": Verb(create, means_create),
        "delete": Verb(delete, means_delete),
        "subscribe": Verb(subscribe, means_subscribe),
        "look": Verb(look, means_look),
    },
    deeds={
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
    lay=lay,
    look=last_look,
    clocks=("create fifo", "delete queue", "delete log", "delete, create fifo"),
)
