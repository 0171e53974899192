"""Renew: extend a claim, or claim again a message that is ready again."""

from __future__ import annotations

from functools import partial

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..errors import NoSuchMessage, as_unavailable
from ..layout.claim_names import Renewal, check_named, claim_name
from ..layout.names import check_id, check_queue
from ..layout.transitions import DELAY, QUEUES, RENEWED
from .claim import Claim, claim_one, deadline_of
from .expire import expire_unclaimed
from .latch import Restamped, not_held, restamp


def renew(
    context: Context,
    queue: str,
    message_id: str,
    visibility: float | None,
    claim: str | None = None,
    *,
    though_over: bool = False,
) -> Prepared[Renewal]:
    """Let a claim (or a delay) end ``visibility`` seconds from now.

    A message that is ready again is claimed again, except in a fifo queue, or if it has expired.

    claim: the name of the claim that is meant; nothing else is renewed.
    though_over: continue that claim, without counting a delivery, if its message is ready again and
        nobody has claimed it since.

    Raises:
        InvalidValue, NoSuchQueue, NoSuchMessage, ClaimEnded, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    check_named(claim)
    tree = context.tree
    with as_unavailable(f"cannot renew in queue {queue!r}"):
        settings = context.settings_of(queue)
        deadline_ms = deadline_of(context, settings, visibility)
        dirty = Dirty(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
        held: Restamped | Claim | None
        is_gone = partial(expire_unclaimed, context, queue, message_id)
        held = restamp(context, queue, message_id, deadline_ms, claim=claim, is_gone=is_gone)
        if held is None and not settings.fifo and (claim is None or though_over):
            held = reclaim(context, queue, message_id, deadline_ms, claim)
        if held is None and claim is not None:
            raise not_held(context, queue, message_id, claim)
        if held is None:
            raise NoSuchMessage(queue, message_id, "that is in flight or ready")
        dirty.files.append(held.fd)
    until_ms, deliveries = held.deadline_ms, held.deliveries

    def commit() -> Renewal:
        context.record(RENEWED, queue, message_id, claim_ms=until_ms - context.now_ms())
        is_claim = deliveries or context.stamps.coarse
        name = claim_name(context.stamps, deliveries, until_ms) if is_claim else None
        return Renewal(until_ms / 1000, name)

    return Prepared(dirty, commit)


def reclaim(
    context: Context, queue: str, message_id: str, deadline_ms: int, was: str | None = None
) -> Claim | None:
    """Claim a message that is ready again. was: as in `claim_one`."""
    try:
        return claim_one(context, queue, message_id, deadline_ms, was=was)
    except BlockingIOError:
        return None  # another process is about to claim it
