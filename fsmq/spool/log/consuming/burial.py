"""Burials: moving messages of a channel to its dead-letter queue, durably, with a reason."""

from __future__ import annotations

import logging

from ...context import Context, OpenSpool
from ...errors import DuplicateMessage, InvalidValue
from ...layout.messages import dead_letter
from ...layout.names import check_queue
from ...layout.uuids import derived_uuid7
from ...verbs.put import put
from ...verbs.queues.creation import create
from ..segment.record import LogMessage
from .channels import ChannelStore
from .forwarding import copy_of

log = logging.getLogger(__name__)
_PATIENCE_S = 0.1
_MAX_DELIVERIES = 9999  # what the attribute has room for


def choose_queue(context: Context, queue: str) -> None:
    """Create the dead-letter queue of a channel, if it is missing.

    Raises InvalidValue if no dead letter could ever go there.
    """
    create(context, queue)
    check_dead_letters(context, queue)


def check_dead_letters(context: Context, queue: str) -> None:
    """Raises InvalidValue if no dead letter of a channel could ever go to a queue."""
    if context.settings.get(queue).fifo:
        why = f"{queue!r} is a fifo queue, and a channel's dead letters have no group"
        raise InvalidValue("dead_letter_queue", why)


def bury(
    spool: OpenSpool,
    store: ChannelStore,
    message: LogMessage,
    deliveries: int,
    reason: str | None,
) -> None:
    """Store a message in a channel's dead-letter queue, durably, and once by its derived id.

    deliveries: how often it was handed out. reason: kept in the dead letter.
    """
    context, of = spool.context, store.store
    queue = check_queue(store.settings().dead_letter_queue or "")
    # This runs under the channel's lock: so do not wait long for the lock of a missing queue.
    create(context, queue, patience_s=_PATIENCE_S)
    dead = dead_letter.DeadLetter(
        dead_letter.of_channel(of.disk.name, store.name),
        reason,
        min(deliveries, _MAX_DELIVERIES),
        context.clock(),
    )
    seed = f"{of.uuid} {store.name} {message.offset}".encode()
    derived = derived_uuid7(message.time_us * 1000, seed)
    new = copy_of(message, derived, log=of.disk.name, channel=store.name)
    try:
        spool.complete(put(context, queue, [new], dead=dead_letter.pack(dead)))
    except DuplicateMessage:
        return  # buried before; a power cut came before it was done here
    log.info("message %s of channel %r goes to %s", message.offset, store.name, queue)
