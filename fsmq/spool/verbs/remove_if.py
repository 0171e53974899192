"""Remove messages whose claims still hold: how a consumer acknowledges its own messages.

`fsmq.spool.verbs.removal` removes a message from wherever it is, whoever has claimed it; here the
caller names the claim. The message is latched from the look at its stamp to the rename, so its
timer cannot end in between, and nobody else can claim it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..durability.taken import bring_back_one
from ..durability.unfinished import exists
from ..errors import unavailable
from ..layout.claim_names import check_claim, is_claimed
from ..layout.names import check_id, check_queue, facts
from ..layout.steps import giving_way
from ..layout.transitions import (
    DELAY,
    NEW,
    QUEUES,
    REMOVE,
    REMOVE_DELAY,
    REMOVED,
    State,
)
from .latch import Latched, latch_patiently
from .removal import remove_from, remove_one

# The outcome for a message; "ended": the claim was over, and nothing was done.
Acked: TypeAlias = Literal["removed", "missing", "ended"]


def remove_if(
    context: Context, queue: str, message_ids: Sequence[str], claims: Sequence[str | None]
) -> Prepared[list[Acked]]:
    """Remove messages that are in these claims; returns the outcome for each.

    claims: for each id the name of its claim; None: in any claim and any state.

    Raises:
        InvalidValue: an id or a claim's name is invalid; nothing is removed then.
        Unavailable
    """
    check_queue(queue)
    for message_id, claim in zip(message_ids, claims, strict=True):
        check_id(queue, message_id)
        if claim is not None:
            check_claim(claim)
    tree = context.tree
    # As for any removal: each folder in which a message may have been, even if it is gone.
    dirty = Dirty(folders={tree.folder(name) for name in (NEW, DELAY, REMOVE)})
    dirty.folders.add(tree.folder(QUEUES, queue))
    try:
        outcomes = [
            _remove_one(context, queue, message_id, claim)
            for message_id, claim in giving_way(list(zip(message_ids, claims, strict=True)))
        ]
    except OSError as error:
        raise unavailable(error, f"cannot remove from queue {queue!r}") from error
    if "missing" in outcomes:
        # A purge or a deletion of the queue may have removed them, and not have synced that yet.
        dirty.folders.add(tree.folder(QUEUES))

    def commit() -> list[Acked]:
        pairs = zip(message_ids, outcomes, strict=True)
        removed = [message_id for message_id, outcome in pairs if outcome == "removed"]
        context.record_all(REMOVED, queue, [(message_id, {}) for message_id in removed])
        return outcomes

    return Prepared(dirty, commit)


def _remove_one(context: Context, queue: str, message_id: str, claim: str | None) -> Acked:
    if claim is None:
        return "removed" if remove_one(context, queue, message_id) else "missing"
    tree = context.tree
    path = tree.path(State.DELAY, queue, message_id)
    latched = latch_patiently(context, path)
    if latched is None and bring_back_one(tree, queue, message_id, context.clock()):
        latched = latch_patiently(context, path)  # an earlier try had taken it away and died
    if latched is not None:
        try:
            if not is_claimed(context.stamps, message_id, latched.found.st_mtime_ns, claim):
                return "ended"
            if _remove_held(context, latched, queue, message_id):
                return "removed"
        finally:
            latched.close()
    return "ended" if exists(tree, queue, message_id) else "missing"


def _remove_held(context: Context, latched: Latched, queue: str, message_id: str) -> bool:
    """Move a latched message to ``remove/``; False if somebody else has removed it."""
    tree = context.tree
    if facts(message_id).created_ms is None:
        # An own id can be used again: that other message must not be removed.
        return latched.move(context, REMOVE_DELAY, queue, message_id) is not None
    if remove_from(tree, (REMOVE_DELAY,), queue, message_id):
        return True
    if not tree.network:
        return False
    # A network filesystem may have renamed it and yet answered ENOENT, if its server restarted.
    gone = tree.stat(tree.path(State.REMOVE, queue, message_id))
    return gone is not None and gone.st_ino == latched.found.st_ino
