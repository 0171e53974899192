"""Publish: one message for each subscribed queue, and one sync for all of them.

A log that is subscribed has the message before any queue shows it: what cannot be published there
reaches nobody. What is in a log cannot be taken back, so from there on the queues get it, too:
what fails then is left as by a put that died, for a mover to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ..context import Context, Pending
from ..durability.pending import Send
from ..errors import FsmqError, NoSuchLog, NoSuchQueue, as_unavailable
from ..layout.filters import Filter
from ..layout.message import NewMessage
from ..layout.settings import QueueSettings
from ..layout.topics import log_of, subscriber_of
from ..views.counts import Depths
from .put import Batch, put

ToLog = Callable[[str, NewMessage], Callable[[], int]]
"""Checks whether a log takes a message; what it returns publishes it, and gives its offset."""


Passes = Callable[[Filter | None], bool]
"""Whether a filter lets a message pass."""


class Copies(NamedTuple):
    """A message, who takes it, and what those queues get that get it in another form.

    passes: which filters it passes; None: by its attributes and its body.
    """

    message: NewMessage
    to: Mapping[str, Filter | None]
    forms: Mapping[str, NewMessage]
    passes: Passes | None = None


def publish(
    context: Context,
    depths: Depths,
    to: Mapping[str, Filter | None],
    message: NewMessage,
    settings: Mapping[str, QueueSettings] | None = None,
    to_log: ToLog | None = None,
    forms: Mapping[str, NewMessage] | None = None,
    batch: Batch | None = None,
    still: Callable[[str], bool] = lambda subscriber: True,
) -> Pending[dict[str, str]]:
    """Write a copy into every subscribed queue whose filter it passes; all or none.

    to: the topic's subscriptions. settings: those of their queues, if they have just been read.
    forms: what queues get in place of the message. batch: that of other puts, to share a sync.
    still: whether a subscriber is subscribed, and takes the message, asked when it can be no other
        one of the same name any more.

    ``finish`` gives the id of the copy for each queue, the offset for each log; it is not short
    where there are logs. A queue or a log that is deleted during the publish is left out: its
    subscription has ended.

    Raises:
        InvalidValue, Unavailable
        MessageTooLarge, QueueFull, LogFull: one does not take it; then none has got it.
    """
    copies = _Copies(context, depths, message, batch or Batch(context.tree), still)
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

    def __init__(
        self,
        context: Context,
        depths: Depths,
        message: NewMessage,
        batch: Batch,
        still: Callable[[str], bool],
    ) -> None:
        self._still = still
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
                self._context,
                self._depths,
                queue,
                [copy],
                settings,
                batch=self._batch,
                still=partial(self._still, queue),
                stands=lambda: bool(self._offsets),
            )
        except NoSuchQueue:
            return

    def publish(self) -> None:
        """Publish in the logs, once: what cannot be published in the first reaches nobody.

        From then on nothing is taken back, and all others get it as far as they can.
        """
        feeds, self._feeds = self._feeds, {}
        first: FsmqError | None = None
        for log, publish in feeds.items():
            subscriber = subscriber_of(log)
            with as_unavailable(f"cannot publish to {subscriber!r}"):
                is_wanted = self._still(subscriber)
            try:
                if is_wanted:
                    self._offsets[subscriber] = str(publish())
            except NoSuchLog:
                continue
            except FsmqError as error:
                if not self._offsets:
                    raise
                first = first or error
        if first is not None:
            raise first

    def finish(self) -> dict[str, str]:
        ids: dict[str, str] = {}
        steps: list[Callable[[], None]] = [
            self.publish,
            *(partial(self._show, ids, queue) for queue in self._puts),
        ]
        first: FsmqError | None = None
        for step in steps:
            try:
                step()
            except FsmqError as error:
                if not self._offsets:
                    self.abandon()  # visible copies too, but for those in fifo queues
                    raise
                first = first or error
        if first is not None:
            raise first
        self._context.metrics.count(("publish",))
        return {**ids, **self._offsets}

    def _show(self, ids: dict[str, str], queue: str) -> None:
        with suppress(NoSuchQueue):
            [ids[queue]] = self._puts[queue].finish()

    def abandon(self) -> None:
        for copy in self._puts.values():
            copy.abandon()
