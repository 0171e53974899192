"""Topics: ``topics/<topic>/<queue>``, an entry for each subscribed queue.

The entry is an empty file, or holds the subscription's filter as JSON. Each publish looks at the
folder, so ``touch`` subscribes a queue and ``rm`` unsubscribes it. A log is subscribed by an entry
``_log:<log>``; as a subscriber it is called ``logs/<log>``. A dialect keeps its data about the
topic itself in ``_about.json``.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import NoSuchTopic, as_unavailable
from .. import documents
from ..documents import Version, version_of, version_to_keep
from ..names import check_queue, is_queue
from ..of_queues import WhileThere
from ..transitions import LOGS, TOPICS
from ..tree import Tree
from . import deliveries
from .deliveries import MAX_ENTRY_BYTES, Delivery, work_of_look
from .filters import Filter

# A listing counts until the folder's version shows that an entry came or went, but for this time
# at most: the clock may be set, or a change missed.
FRESH_S = 1.0
_LOG_ENTRY = "_log:"  # no queue's name begins like this
_LOG_SUBSCRIBER = f"{LOGS}/"
# No queue's name begins like this, either.
ABOUT = "_about.json"
MAX_ABOUT_BYTES = 64 * 1024
# Making a copy of a message takes as long as copying this many bytes.
_WORK_OF_COPY = 4096


def log_of(subscriber: str) -> str | None:
    """The log that a subscriber is; None for a queue."""
    if not subscriber.startswith(_LOG_SUBSCRIBER):
        return None
    return check_queue(subscriber[len(_LOG_SUBSCRIBER) :], "log")


def subscriber_of(log: str) -> str:
    """The name of a log as a subscriber."""
    return _LOG_SUBSCRIBER + log


def entry_of(subscriber: str) -> str:
    """The name of a subscriber's entries. Raises InvalidValue."""
    log = log_of(subscriber)
    return check_queue(subscriber) if log is None else _LOG_ENTRY + log


def log_of_entry(name: str) -> str | None:
    """The log that an entry subscribes; None if it subscribes no log."""
    log = name[len(_LOG_ENTRY) :]
    return log if name.startswith(_LOG_ENTRY) and is_queue(log) else None


class Subscription(NamedTuple):
    """A subscription of a topic.

    target: the queue or log that gets its messages: the subscriber; if that is gone, the
    dead-letter queue that a client of SNS has named; None if nobody gets them.
    """

    subscriber: str
    filter: Filter | None
    target: str | None


def work_of(
    subscriptions: Sequence[Subscription], bodies: int, attributes: int, messages: int = 1
) -> int:
    """The cost of filtering and copying some messages, as a number of bytes that could be copied in
    the same time. bodies, attributes: their bytes."""
    copies = len(subscriptions) * (bodies + attributes + messages * _WORK_OF_COPY)
    return copies + sum(work_of_look(one.filter, bodies, attributes) for one in subscriptions)


@dataclass(slots=True)
class _Listing:
    """The entries of a topic when ``version`` of its folder was listed."""

    version: Version
    until: float  # monotonic seconds
    queues: list[str]
    logs: list[str]
    # By entry: its version, and its filter then; None: no filter.
    filters: dict[str, tuple[Version, Filter | None]] = field(default_factory=dict)


class Topics:
    """The topics of a spool and their subscriptions.

    `fsmq.spool.verbs.queues.subscribing` changes them. Methods that read a single topic raise
    Unavailable; the others raise OSError.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: WhileThere[_Listing] = WhileThere(self.has)

    # -- topics ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All topics, sorted, except those whose folders only another user may open.

        Nothing could be subscribed there, and fsck reports them.
        """
        may = os.R_OK | os.W_OK | os.X_OK
        ids = os.access in os.supports_effective_ids
        return [
            name
            for name in self._tree.folders(self._tree.folder(TOPICS))
            if os.access(self.folder(name), may, dir_fd=self._tree.fd, effective_ids=ids)
        ]

    def has(self, topic: str) -> bool:
        return self._tree.is_folder(self.folder(topic))

    def about(self, topic: str) -> dict[str, Any]:
        """A dialect's data about a topic; empty if there is none, or it does not parse.

        Raises:
            InvalidValue, NoSuchTopic, Unavailable
        """
        check_queue(topic, "topic")
        with as_unavailable(f"cannot read topic {topic!r}"):
            if not self.has(topic):
                raise NoSuchTopic(topic)
            try:
                return self.document(topic)
            except ValueError:
                return {}

    def document(self, topic: str) -> dict[str, Any]:
        """The same, but raises ValueError if it does not parse, OSError."""
        try:
            return documents.read(self._tree, f"{self.folder(topic)}/{ABOUT}", MAX_ABOUT_BYTES)
        except FileNotFoundError:
            return {}

    def forget(self, topic: str) -> None:
        """Forget the listing: this process has changed the topic."""
        self._known.pop(topic, None)

    # -- subscriptions ---------------------------------------------------------------------------

    def subscriptions(self, topic: str) -> dict[str, Filter | None]:
        """The subscribed queues that exist, sorted, each with its filter; then ``logs/<log>``.

        Raises what `subscribed` raises.
        """
        found = self.subscribed(topic)
        return {one.subscriber: one.filter for one in found if one.target == one.subscriber}

    def filters(self, topic: str) -> dict[str, Filter | None]:
        """The filters of all subscriptions, those whose queues are gone included.

        Raises what `subscribed` raises.
        """
        return {one.subscriber: one.filter for one in self.subscribed(topic)}

    def subscribed(self, topic: str) -> list[Subscription]:
        """All subscriptions: first those of queues, sorted, which may be gone, then those of logs.

        A subscription whose queue is gone has ended, except those by clients of SNS. If an entry's
        filter does not parse, or only another user may read it, the last valid version stays in
        force, so that a typo loses no message. Without a valid version there is no filter.

        Raises:
            InvalidValue, NoSuchTopic, Unavailable
        """
        with _cannot_read(topic):
            return self._read_all(topic, self._listing(topic))

    def known(self, topic: str, most: int) -> list[Subscription] | None:
        """The same without a listing; None if one is needed, there are more than ``most``, or one
        is a log, which takes longer."""
        with _cannot_read(topic):
            _, listing = self._known_listing(topic)
            if listing is None or len(listing.queues) > most or listing.logs:
                return None
            return self._read_all(topic, listing)

    def _read_all(self, topic: str, listing: _Listing) -> list[Subscription]:
        result: list[Subscription] = []
        for queue in listing.queues:
            found = self._tree.stat(f"{self.folder(topic)}/{queue}")
            if found is None or not stat.S_ISREG(found.st_mode):
                continue
            filter = self._filter(listing, topic, queue, found)
            if self._tree.has_queue(queue):
                result.append(Subscription(queue, filter, queue))
            elif isinstance(filter, Delivery):
                result.append(Subscription(queue, filter, self.for_dead_letters(filter)))
        for log in listing.logs:
            found = self._tree.stat(f"{self.folder(topic)}/{_LOG_ENTRY}{log}")
            if (
                found is not None
                and stat.S_ISREG(found.st_mode)
                and self.has_subscriber(subscriber_of(log))
            ):
                filter = self._filter(listing, topic, _LOG_ENTRY + log, found)
                result.append(Subscription(subscriber_of(log), filter, subscriber_of(log)))
        return result

    def takes(self, topic: str, passes: Callable[[Filter | None], bool], one: Subscription) -> bool:
        """Whether a subscription still exists and lets a message pass. Raises OSError."""
        path = self.entry(topic, one.subscriber)
        found = self._tree.look(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return False
        listing = self._known.get(topic) or _Listing((0, 0, 0), 0.0, [], [])
        now = self._filter(listing, topic, path.rpartition("/")[2], found)
        return now is one.filter or passes(now)

    def for_dead_letters(self, delivery: Delivery) -> str | None:
        """Its dead-letter queue, if it has one that exists. Raises OSError."""
        queue = delivery.dead_letter_queue
        return queue if queue is not None and self._tree.has_queue(queue) else None

    def has_subscriber(self, subscriber: str) -> bool:
        """Whether a queue or a log exists."""
        log = log_of(subscriber)
        if log is None:
            return self._tree.has_queue(subscriber)
        return self._tree.is_folder(self._tree.folder(LOGS, log))

    def folders(self) -> list[str]:
        """The folders of all topics."""
        return list(map(self.folder, self.names()))

    def entries_of(self, queue: str) -> Iterator[str]:
        """The paths of a subscriber's entries."""
        for folder in self.folders():
            path = f"{folder}/{entry_of(queue)}"
            found = self._tree.stat(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                yield path

    def outlives_its_queue(self, path: str) -> bool:
        """Whether an entry stays when its queue is deleted. Raises OSError."""
        try:
            return deliveries.outlives_its_queue(self._read(path))
        except (FileNotFoundError, PermissionError, ValueError):
            return False

    def filter(self, path: str) -> Filter | None:
        """The filter of an entry now; None if it takes all. Raises ValueError, OSError."""
        return deliveries.parse(self._read(path))

    def dead_letters_of(self, path: str) -> str | None:
        """The queue that gets an entry's messages when its own is gone, if any."""
        try:
            filter = self.filter(path)
        except (OSError, ValueError):
            return None
        return self.for_dead_letters(filter) if isinstance(filter, Delivery) else None

    def problem(self, path: str) -> str | None:
        """Why an entry's filter does not parse; None if it does."""
        try:
            self.filter(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def entry(self, topic: str, subscriber: str) -> str:
        """The path of an entry. Raises InvalidValue."""
        return f"{self.folder(topic)}/{entry_of(subscriber)}"

    def folder(self, topic: str) -> str:
        """The folder of a topic's entries, relative to the root."""
        return self._tree.folder(TOPICS, topic)

    # -- reading ---------------------------------------------------------------------------------

    def _known_listing(self, topic: str) -> tuple[os.stat_result, _Listing | None]:
        """The lstat of a topic's folder, and its last listing if that is still valid."""
        check_queue(topic, "topic")
        folder = self._tree.look(self.folder(topic))
        if folder is None or not stat.S_ISDIR(folder.st_mode):
            self._known.pop(topic, None)
            raise NoSuchTopic(topic)
        known = self._known.get(topic)
        if known is None or time.monotonic() >= known.until:
            return folder, None
        return folder, known if known.version == version_of(folder) else None

    def _listing(self, topic: str) -> _Listing:
        folder, listing = self._known_listing(topic)
        if listing is not None:
            return listing
        known = self._known.get(topic)
        before = known.filters if known is not None else {}
        version = version_to_keep(folder)
        # A network filesystem caches the mtime; a listing asks the server, at little extra cost.
        until = 0.0 if self._tree.network else time.monotonic() + FRESH_S
        names = self._tree.names(self.folder(topic))
        listing = _Listing(
            version=version,
            until=until,
            queues=sorted(filter(is_queue, names)),
            logs=sorted(filter(None, map(log_of_entry, names))),
            filters={name: before[name] for name in names if name in before},
        )
        self._known[topic] = listing
        return listing

    def _filter(
        self, listing: _Listing, topic: str, queue: str, found: os.stat_result
    ) -> Filter | None:
        known = listing.filters.get(queue)
        if known is not None and known[0] == version_of(found):
            return known[1]
        version = version_to_keep(found)
        try:
            filter = self.filter(f"{self.folder(topic)}/{queue}")
        except (ValueError, PermissionError):  # another user's
            filter = known[1] if known is not None else None
        except FileNotFoundError:
            return None  # just unsubscribed
        listing.filters[queue] = (version, filter)
        return filter

    def _read(self, path: str) -> bytes:
        return documents.read_bytes(self._tree, path, MAX_ENTRY_BYTES)


def _cannot_read(topic: str) -> AbstractContextManager[None]:
    return as_unavailable(f"cannot read the subscriptions of {topic!r}")


def as_json(subscriptions: Mapping[str, Filter | None]) -> list[dict[str, object]]:
    """Subscriptions as JSON can hold them."""
    return [
        {**named_subscriber(subscriber), "filter": None if filter is None else filter.policy}
        for subscriber, filter in subscriptions.items()
    ]


def named_subscriber(subscriber: str) -> dict[str, object]:
    """A subscriber as a member of JSON."""
    log = log_of(subscriber)
    return {"queue": subscriber} if log is None else {"log": log}
