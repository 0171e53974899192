"""Publish: one message for each subscribed queue, and one sync for all of them.

A log that is subscribed has the message before any queue shows it: what cannot be published there
reaches nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ..context import Context, Pending
from ..durability.pending import Send
from ..errors import FsmqError, NoSuchLog, NoSuchQueue
from ..layout.filters import Filter
from ..layout.message import NewMessage
from ..layout.settings import QueueSettings
from ..layout.topics import log_of, subscriber_of
from ..views.counts import Depths
from .put import Batch, put

ToLog = Callable[[str, NewMessage], Callable[[], int]]
"""Checks whether a log takes a message; what it returns publishes it, and gives its offset."""


class Copies(NamedTuple):
    """A message, who takes it, and what those queues get that get it in another form."""

    message: NewMessage
    to: Mapping[str, Filter | None]
    forms: Mapping[str, NewMessage]


def publish(
    context: Context,
    depths: Depths,
    to: Mapping[str, Filter | None],
    message: NewMessage,
    settings: Mapping[str, QueueSettings] | None = None,
    to_log: ToLog | None = None,
    forms: Mapping[str, NewMessage] | None = None,
    batch: Batch | None = None,
) -> Pending[dict[str, str]]:
    """Write a copy into every subscribed queue whose filter it passes; all or none.

    to: the topic's subscriptions. settings: those of their queues, if they have just been read.
    forms: what queues get in place of the message. batch: that of other puts, to share a sync.

    ``finish`` gives the id of the copy for each queue, the offset for each log; it is not short
    where there are logs. A queue or a log that is deleted during the publish is left out: its
    subscription has ended.

    Raises:
        InvalidValue, Unavailable
        MessageTooLarge, QueueFull, LogFull: one does not take it; then none has got it.
    """
    copies = _Copies(context, depths, message, batch or Batch(context.tree))
    try:
        for queue, filter in to.items():
            if filter is None or filter.matches(message.attributes, message.body):
                if "/" in queue:
                    assert to_log is not None
                    copies.feed(queue, to_log)
                else:
                    copy = message if forms is None else forms.get(queue, message)
                    copies.write(queue, copy, settings[queue] if settings is not None else None)
    except BaseException:  # of a signal's handler, too
        copies.work.close()
        copies.abandon()
        raise
    return Pending(copies.work, copies.finish, copies.abandon, copies.sends, copies.publish)


class _Copies:
    """The copies of one publish; ``work`` is the common one."""

    def __init__(self, context: Context, depths: Depths, message: NewMessage, batch: Batch) -> None:
        self._batch = batch
        self.work = batch.work
        self._context = context
        self._depths = depths
        self._message = message
        self._puts: dict[str, Pending[list[str]]] = {}
        self._feeds: dict[str, Callable[[], int]] = {}
        self._offsets: dict[str, str] = {}

    @property
    def sends(self) -> list[Send]:
        return [send for put in self._puts.values() for send in put.sends]

    def feed(self, subscriber: str, to_log: ToLog) -> None:
        """Check that a log takes it; raises what a publish there raises."""
        log = log_of(subscriber)
        assert log is not None
        try:
            self._feeds[log] = to_log(log, self._message)
        except NoSuchLog:
            return

    def write(self, queue: str, copy: NewMessage, settings: QueueSettings | None) -> None:
        """Write one copy; raises what a put raises, but for a queue that is gone."""
        try:
            self._puts[queue] = put(
                self._context, self._depths, queue, [copy], settings, batch=self._batch
            )
        except NoSuchQueue:
            return

    def publish(self) -> None:
        """Publish in the logs, once: what cannot be published there reaches nobody."""
        feeds, self._feeds = self._feeds, {}
        for log, publish in feeds.items():
            with suppress(NoSuchLog):
                self._offsets[subscriber_of(log)] = str(publish())

    def finish(self) -> dict[str, str]:
        ids = {}
        try:
            self.publish()
            for queue, copy in self._puts.items():
                try:
                    [ids[queue]] = copy.finish()
                except NoSuchQueue:
                    continue
        except FsmqError:
            self.abandon()  # visible copies too, but for those in fifo queues
            raise
        self._context.metrics.count(("publish",))
        return {**ids, **self._offsets}

    def abandon(self) -> None:
        for copy in self._puts.values():
            copy.abandon()
