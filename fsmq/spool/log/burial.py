"""Burials: messages of a channel go to its dead-letter queue, durably, and tell of their death."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..context import OpenSpool
from ..errors import DuplicateMessage
from ..layout import dead_letter
from ..layout.names import check_queue
from ..layout.uuids import derived_uuid7
from ..verbs.creation import create
from ..verbs.put import put
from ..views.counts import Depths, count
from .channels import ChannelStore
from .feeding import copy_of
from .record import LogMessage

log = logging.getLogger(__name__)
_MAX_DELIVERIES = 9999  # as many as the attribute has room for


def bury(
    spool: OpenSpool,
    store: ChannelStore,
    messages: Sequence[LogMessage],
    deliveries: int,
    reason: str | None,
) -> None:
    """Store messages in a channel's dead-letter queue, each under an id of its own: once.

    deliveries: how often they were handed out. reason: what the letters tell.
    """
    context, of = spool.context, store.store
    queue = check_queue(store.settings().dead_letter_queue or "")
    depths = Depths(
        context.tree, lambda name: count(context.tree, context.stamps, name, context.now_ms()).total
    )
    create(context, queue)
    told = dead_letter.DeadLetter(
        dead_letter.of_channel(of.disk.name, store.name),
        reason,
        min(deliveries, _MAX_DELIVERIES),
        context.clock(),
    )
    for message in messages:
        seed = f"{of.uuid} {store.name} {message.offset}".encode()
        derived = derived_uuid7(message.time_us * 1000, seed)
        new = copy_of(message, derived, log=of.disk.name, channel=store.name)
        try:
            letter = put(context, depths, queue, [new])
            try:
                for fd in letter.work.files:  # before its sync
                    dead_letter.write_raw(fd, dead_letter.pack(told))
            except OSError:
                letter.abandon()
                raise
            spool.complete(letter)
        except DuplicateMessage:
            continue  # it was buried, and the power failed before it was done here
        log.info("message %s of channel %r goes to %s", message.offset, store.name, queue)
