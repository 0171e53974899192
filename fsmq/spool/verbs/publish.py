"""Publish: one message for each subscribed queue, and one sync for all of them.

A subscription by a client of SNS outlives its queue: then its dead-letter queue gets the copy.

Subscribed logs get the message before any queue shows it: if a log refuses it, nobody gets it. Then
come the queues without order, and the fifo queues last. A message that is in a log, or on its way
into a fifo queue, cannot be taken back, so from then on all subscribers get it: a copy that fails
is left as by a dead put, for a mover to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ..context import Context, Prepared
from ..durability.prepared import Send
from ..errors import FsmqError, NoSuchLog, NoSuchQueue, as_unavailable
from ..layout.messages.message import NewMessage
from ..layout.settings import QueueSettings
from ..layout.steps import giving_way
from ..layout.topics.filters import Filter
from ..layout.topics.topics import Subscription, Topics, log_of
from .put import Batch, put


class Copy(NamedTuple):
    """The copy for one queue or log.

    still: whether it is subscribed and takes the message; called when it can no longer be another
        one of the same name. Raises OSError.
    letter_of: the subscription whose dead letter it is, if any.
    """

    to: str
    message: NewMessage
    still: Callable[[], bool] = lambda: True
    letter_of: str | None = None


def copy_of(
    topics: Topics,
    topic: str,
    passes: Callable[[Filter | None], bool],
    one: Subscription,
    to: str,
    message: NewMessage,
) -> Copy:
    """The copy for a subscription, or for its dead-letter queue.

    passes: whether a filter takes the message.
    """
    letter_of = None if to == one.subscriber else f"{topic}/{one.subscriber}"
    return Copy(to, message, partial(topics.takes, topic, passes, one), letter_of)


def copies_of(
    topics: Topics, topic: str, message: NewMessage, subscriptions: Iterable[Subscription]
) -> list[Copy]:
    """The copies of a message, one for each subscription that takes it."""

    def passes(filter: Filter | None) -> bool:
        return filter is None or filter.matches(message.attributes, message.body)

    return [
        copy_of(topics, topic, passes, one, one.target, message)
        for one in subscriptions
        if one.target is not None and passes(one.filter)
    ]


def publish(context: Context, topic: str, message: NewMessage) -> Prepared[dict[str, str]]:
    """Write a copy of a message for each queue and log that takes it; see `publish_copies`.

    Raises NoSuchTopic, and whatever that raises.
    """
    topics = context.topics
    return publish_copies(context, copies_of(topics, topic, message, topics.subscribed(topic)))


def publish_copies(
    context: Context,
    copies: Iterable[Copy],
    settings: Mapping[str, QueueSettings] | None = None,
    batch: Batch | None = None,
) -> Prepared[dict[str, str]]:
    """Write the copies of a message; all or none.

    settings: of the queues, if just read. batch: that of other puts, to share a sync.

    ``commit`` returns the copy's id for each queue and its offset for each log; with logs it takes
    long. A queue or log that is deleted during the publish is left out: its subscription has ended.

    Raises:
        InvalidValue, Unavailable
        MessageTooLarge, QueueFull, LogFull: one does not take it; then none gets it.
    """
    found = _Copies(context, batch or Batch(context.tree))
    try:
        for copy in giving_way(copies):
            if log_of(copy.to) is not None:
                found.feed(copy)
            else:
                found.write(copy, settings[copy.to] if settings is not None else None)
    except BaseException:  # also from a signal handler
        found.dirty.close()
        found.abort()
        raise
    return Prepared(found.dirty, found.commit, found.abort, found.sends, found.reach)


class _Copies:
    """The copies of one publish; ``dirty`` is the common one."""

    def __init__(self, context: Context, batch: Batch) -> None:
        self._batch = batch
        self.dirty = batch.dirty
        self._context = context
        self._feeds: list[tuple[Copy, Callable[[], int]]] = []
        self._plain: list[tuple[str, Prepared[list[str]]]] = []
        self._ordered: list[tuple[str, Prepared[list[str]]]] = []  # of fifo queues
        self._ids: dict[str, str] = {}
        self._offsets: dict[str, str] = {}
        self._sends: list[Send] = []
        self._is_begun = False
        self._first: FsmqError | None = None

    @property
    def sends(self) -> list[Send]:
        return self._sends

    def feed(self, copy: Copy) -> None:
        """Check that a log takes it; raises what a publish there raises."""
        log = log_of(copy.to)
        assert log is not None
        try:
            self._feeds.append((copy, self._context.to_log(log, copy.message)))
        except NoSuchLog:
            return

    def write(self, copy: Copy, settings: QueueSettings | None) -> None:
        """Write one copy; raises what a put raises, but for a queue that is gone."""
        try:
            one = put(
                self._context,
                copy.to,
                [copy.message],
                settings,
                batch=self._batch,
                still=copy.still,
                stands=partial(_stand, self._offsets, self._sends),  # by us it would be a cycle
                letter_of=copy.letter_of,
            )
        except NoSuchQueue:
            return
        (self._ordered if one.sends else self._plain).append((copy.to, one))
        self._sends += one.sends

    def _stands(self) -> bool:
        """Whether something is where nothing can be taken back from."""
        return _stand(self._offsets, self._sends)

    def reach(self) -> None:
        """Publish in the logs and show the copies of queues without order, once.

        What fails before something stands is raised, and reaches nobody. From then on all others
        get it as far as they can; ``commit`` raises then.
        """
        if self._is_begun:
            return
        self._is_begun = True
        steps = [
            *(partial(self._publish, *feed) for feed in self._feeds),
            *(partial(self._show, *copy) for copy in self._plain),
        ]
        for step in giving_way(steps):
            try:
                step()
            except FsmqError as error:
                if not self._stands():
                    raise
                self._first = self._first or error

    def _publish(self, copy: Copy, publish: Callable[[], int]) -> None:
        with as_unavailable(f"cannot publish to {copy.to!r}"):
            is_wanted = copy.still()
        if is_wanted:
            with suppress(NoSuchLog):
                self._offsets[copy.to] = str(publish())

    def _show(self, queue: str, one: Prepared[list[str]]) -> None:
        with suppress(NoSuchQueue):
            [self._ids[queue]] = one.commit()

    def commit(self) -> dict[str, str]:
        try:
            self.reach()
            for queue, one in self._ordered:
                self._show(queue, one)
        except BaseException:  # also from a signal handler
            self.abort()
            raise
        if self._first is not None:
            raise self._first
        self._context.metrics.count(("publish",))
        return {**self._ids, **self._offsets}

    def abort(self) -> None:
        """Take back the copies, visible ones too, unless something stands."""
        for _, copy in self._plain:
            copy.abort()


def _stand(offsets: Mapping[str, str], sends: Sequence[Send]) -> bool:
    """Whether something is in a log, or was sent, where nothing can be taken back from."""
    return bool(offsets) or any(send.stands for send in sends)
