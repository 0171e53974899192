"""Create, change and delete topics, and the subscriptions of queues and logs to them.

Each verb holds the lock of the topic from the look to the last change (`durability.settings_lock`).
Writing an entry also takes the lock of the subscriber, so that no deletion of it misses the entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...context import Context
from ...durability.settings_lock import LOG, TOPIC, settings_held
from ...errors import (
    BY_HAND_S,
    InvalidValue,
    NoSuchLog,
    NoSuchQueue,
    NoSuchTopic,
    Unavailable,
    as_unavailable,
    understood,
)
from ...layout.names import check_queue, entry
from ...layout.settings import QueueSettings
from ...layout.topics.deliveries import MAX_ENTRY_BYTES
from ...layout.topics.filters import Filter
from ...layout.topics.topics import ABOUT, MAX_ABOUT_BYTES, log_of
from ...layout.transitions import REMOVE, TOPICS
from ...layout.uuids import uuid7


@contextmanager
def _changing(
    context: Context, topic: str, *, is_there: bool = True, writes: bool = True
) -> Iterator[None]:
    """Hold a topic's lock; raise NoSuchTopic if it must exist but does not."""
    check_queue(topic, "topic")
    with (
        as_unavailable(f"cannot change topic {topic!r}"),
        settings_held(context.tree, TOPIC + topic, writes=writes),
    ):
        if is_there and not context.topics.has(topic):
            raise NoSuchTopic(topic)
        try:
            yield
        except FileNotFoundError:
            if context.topics.has(topic):
                raise  # a mover has removed our draft after an hour
            raise NoSuchTopic(topic) from None  # somebody has removed it by hand
        finally:
            context.topics.forget(topic)


@contextmanager
def _subscribing(
    context: Context, topic: str, subscriber: str, *, is_there: bool = True
) -> Iterator[str]:
    """Hold the lock of a subscriber, too; yields the path of its entry.

    is_there: the subscriber must exist.
    """
    path, log = context.topics.entry(topic, subscriber), log_of(subscriber)
    name = subscriber if log is None else LOG + log
    with _changing(context, topic), settings_held(context.tree, name):
        if is_there and not context.topics.has_subscriber(subscriber):
            raise NoSuchQueue(subscriber) if log is None else NoSuchLog(log)
        yield path


def create_topic(context: Context, topic: str) -> bool:
    """Create a topic durably; False if it was there. Raises InvalidValue, Unavailable."""
    check_queue(topic, "topic")
    with as_unavailable(f"cannot create topic {topic!r}"):
        return context.tree.make_folder(TOPICS, topic)  # one call, which needs no lock


def describe_topic(
    context: Context,
    topic: str,
    change: Callable[[dict[str, Any]], Mapping[str, Any]],
    *,
    creates: bool = False,
) -> None:
    """Change the document that a dialect keeps for a topic, durably.

    change: called with the current document, returns the new one, or raises. creates: create the
        topic, without a document, if it is missing.

    Raises InvalidValue, NoSuchTopic, Unavailable.
    """
    topics = context.topics
    with _changing(context, topic, is_there=not creates):
        if creates:
            context.tree.make_folder(TOPICS, topic)
        path = f"{topics.folder(topic)}/{ABOUT}"
        with understood(path):
            found = topics.document(topic)
        about = change(found)
        text = json.dumps(about).encode() + b"\n"
        if len(text) > MAX_ABOUT_BYTES:
            raise InvalidValue("attributes", f"take more than {MAX_ABOUT_BYTES} bytes")
        context.tree.replace(path, text)


def delete_topic(context: Context, topic: str) -> None:
    """Delete a topic and its subscriptions durably; queues and messages stay.

    Raises InvalidValue, NoSuchTopic, Unavailable.
    """
    tree = context.tree
    with _changing(context, topic, is_there=False, writes=False):
        trash = tree.folder(REMOVE, entry(topic, uuid7()))
        was_there = context.topics.has(topic) and tree.rename(context.topics.folder(topic), trash)
        # Even if it was gone: its deletion may not be synced yet.
        for name in (TOPICS, REMOVE):
            tree.sync_folder(tree.folder(name))
        if not was_there:
            raise NoSuchTopic(topic)


def subscribe(
    context: Context,
    topic: str,
    subscriber: str,
    filter: Filter | None = None,
    *,
    keep: bool = False,
    check: Callable[[QueueSettings], object] = lambda settings: None,
) -> bool:
    """Subscribe a queue durably, or replace its filter; False if it was subscribed.

    subscriber: a queue, or ``logs/<log>``. keep: leave an existing subscription as it is. check:
        called with the settings of the queue, which nobody changes meanwhile; it can raise.

    Raises InvalidValue, NoSuchTopic, NoSuchQueue, NoSuchLog, Unavailable, and as ``check``.
    """
    with _subscribing(context, topic, subscriber) as path:
        if log_of(subscriber) is None:
            check(context.settings.get(subscriber))
        _remove_folder(context, path)
        is_new = context.tree.look(path) is None
        if keep and not is_new:
            # Its subscriber may not have synced it yet.
            context.tree.sync_folder(context.topics.folder(topic))
        else:
            _write(context, path, filter)
    return is_new


def change_filter(
    context: Context,
    topic: str,
    subscriber: str,
    change: Callable[[Filter | None], Filter | None],
) -> bool:
    """Change the filter of a subscription durably; False if there is none.

    change: called with the current filter, returns the new one, or raises.

    Raises InvalidValue, NoSuchTopic, Unavailable.
    """
    with _subscribing(context, topic, subscriber, is_there=False) as path:
        try:
            with understood(path):
                now = context.topics.filter(path)
        except FileNotFoundError:
            return False
        _write(context, path, change(now))
    return True


def unsubscribe(context: Context, topic: str, subscriber: str) -> bool:
    """End a subscription durably; False if there was none.

    Raises InvalidValue, NoSuchTopic, Unavailable.
    """
    path = context.topics.entry(topic, subscriber)
    with _changing(context, topic, writes=False):
        _remove_folder(context, path)
        was_there = context.tree.unlink(path)
        # Even if it was gone: the process that ended it may not have synced that yet.
        context.tree.sync_folder(context.topics.folder(topic))
        return was_there


def _write(context: Context, path: str, filter: Filter | None) -> None:
    text = filter.text() if filter is not None else b""
    if len(text) > MAX_ENTRY_BYTES:  # it could not be read again
        raise InvalidValue("subscription", f"takes more than {MAX_ENTRY_BYTES} bytes")
    context.tree.replace(path, text)


def _remove_folder(context: Context, path: str) -> None:
    """Remove an empty folder that someone made in an entry's place; it subscribes nothing.

    Raises Unavailable if it is not empty.
    """
    tree = context.tree
    if tree.is_folder(path) and not tree.remove_folder(path):
        place = tree.root / path
        raise Unavailable(f"{place} is a folder with files in it: move it away", BY_HAND_S)
