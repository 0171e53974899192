"""Publish: one message for each subscribed queue, and one sync for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from ..context import Context, Pending
from ..errors import FsmqError, NoSuchQueue
from ..layout.filters import Filter
from ..layout.message import NewMessage
from ..layout.settings import QueueSettings
from ..views.counts import Depths
from .put import Batch, put


def publish(
    context: Context,
    depths: Depths,
    to: Mapping[str, Filter | None],
    message: NewMessage,
    settings: Mapping[str, QueueSettings] | None = None,
) -> Pending[dict[str, str]]:
    """Write a copy into every subscribed queue whose filter it passes; all or none.

    to: the topic's subscriptions. settings: those of their queues, if they have just been read.

    ``finish`` gives the id of the copy for each queue. A queue that is deleted during
    the publish is left out: its subscription has ended.

    Raises:
        InvalidValue, Unavailable
        MessageTooLarge, QueueFull: one of the queues does not take it; then none has got it.
    """
    copies = _Copies(context, depths, message)
    try:
        for queue, filter in to.items():
            if filter is None or filter.matches(message.attributes):
                copies.write(queue, settings[queue] if settings is not None else None)
    except FsmqError:
        copies.work.close()
        copies.abandon()
        raise
    return Pending(copies.work, copies.finish, copies.abandon)


class _Copies:
    """The copies of one publish; ``work`` is the common one."""

    def __init__(self, context: Context, depths: Depths, message: NewMessage) -> None:
        self._batch = Batch(context.tree)
        self.work = self._batch.work
        self._context = context
        self._depths = depths
        self._message = message
        self._puts: dict[str, Pending[list[str]]] = {}

    def write(self, queue: str, settings: QueueSettings | None) -> None:
        """Write one copy; raises what a put raises, but for a queue that is gone."""
        try:
            self._puts[queue] = put(
                self._context, self._depths, queue, [self._message], settings, batch=self._batch
            )
        except NoSuchQueue:
            return

    def finish(self) -> dict[str, str]:
        ids = {}
        try:
            for queue, copy in self._puts.items():
                try:
                    [ids[queue]] = copy.finish()
                except NoSuchQueue:
                    continue
        except FsmqError:
            self.abandon()  # visible copies too: the publish has failed
            raise
        self._context.metrics.count(("publish",))
        return ids

    def abandon(self) -> None:
        for copy in self._puts.values():
            copy.abandon()
