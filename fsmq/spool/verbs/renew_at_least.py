"""Renew several claims for at least a given time; claim messages that are no longer claimed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..errors import as_unavailable
from ..layout.names import check_id, check_queue
from ..layout.settings import QueueSettings
from ..layout.steps import giving_way
from ..layout.transitions import DELAY, NEW, QUEUES, RENEWED
from .claim import Claim, deadline_of
from .deliver import deliver_one
from .expire import expire_unclaimed
from .latch import Restamped, restamp
from .renew import reclaim


def renew_at_least(
    context: Context, queue: str, message_ids: Sequence[str], visibility: float
) -> Prepared[list[bool]]:
    """Let claims end ``visibility`` seconds from now or later; for each, whether it is claimed now.

    A later deadline stays. A message that is ready or new is claimed; one that is gone, or has
    expired, is skipped.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    for message_id in message_ids:
        check_id(queue, message_id)
    tree = context.tree
    dirty = Dirty()
    try:
        with as_unavailable(f"cannot renew in queue {queue!r}"):
            settings = context.settings_of(queue)
            deadline_ms = deadline_of(context, settings, visibility)
            renewed = [
                _renew_one(context, queue, one, deadline_ms, dirty, settings)
                for one in giving_way(message_ids)
            ]
    except BaseException:
        dirty.close()
        raise
    if dirty.files or dirty.closed:
        dirty.folders |= {tree.folder(NEW), tree.folder(DELAY), tree.folder(QUEUES, queue)}

    def commit() -> list[bool]:
        claim_ms = deadline_ms - context.now_ms()
        for message_id, is_renewed in zip(message_ids, renewed, strict=True):
            if is_renewed:
                context.record(RENEWED, queue, message_id, claim_ms=claim_ms)
        return renewed

    return Prepared(dirty, commit)


def _renew_one(
    context: Context,
    queue: str,
    message_id: str,
    deadline_ms: int,
    dirty: Dirty,
    settings: QueueSettings,
) -> bool:
    held: Restamped | Claim | None
    is_gone = partial(expire_unclaimed, context, queue, message_id)
    postpone = partial(
        restamp, context, queue, message_id, deadline_ms, later_only=True, is_gone=is_gone
    )
    # A claim that ends late enough is synced too: the process that made it may not have done so.
    held = postpone()
    if held is None and not settings.fifo:
        # It may still be new: then deliver it as the mover would.
        deliver_one(context, queue, message_id)
        held = reclaim(context, queue, message_id, deadline_ms)
    if held is None:
        held = postpone()
    if held is None:
        return False
    dirty.files.append(held.fd)
    return True
