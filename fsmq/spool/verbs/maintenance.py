"""What jobs do to messages that stand in their queues: remove some, and leave what is in flight."""

from __future__ import annotations

from collections.abc import Sequence

from ..context import Pending
from ..durability.sync import Work
from ..errors import telling
from ..layout.names import check_queue, is_id
from ..layout.transitions import QUEUES, REMOVE, REMOVE_READY
from ..spool import Spool


def remove_ready(spool: Spool, queue: str, message_ids: Sequence[str]) -> int:
    """Remove messages that are ready, durably; how many. Others are left where they are.

    Raises:
        InvalidValue, Unavailable
    """
    check_queue(queue)
    tree, context = spool.tree, spool.context
    work = Work(folders={tree.folder(QUEUES, queue), tree.folder(REMOVE)})
    removed = 0
    with telling(f"cannot remove from {queue!r}"):
        for message_id in message_ids:
            # A claimer that is quicker has taken it away: then it is in flight.
            if is_id(message_id) and tree.move(REMOVE_READY, queue, message_id):
                removed += 1
                context.journal.note("removed", queue, message_id)
    context.metrics.count(("remove", queue), removed)
    return spool.complete(Pending(work, lambda: removed))
