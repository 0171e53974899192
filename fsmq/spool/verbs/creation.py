"""Create a queue with an index of the ids that producers give."""

from __future__ import annotations

from ..context import Context
from ..errors import InvalidValue
from ..layout.settings import DEFAULTS
from ..layout.transitions import IDS


def create_indexed(context: Context, queue: str) -> bool:
    """Create a queue that has an index, durably; False if it was there.

    The queue comes last: at no moment is there one that should have an index and has none.

    Raises:
        InvalidValue: it is there without an index.
        OSError
    """
    tree = context.tree
    if not tree.has_queue(queue):
        tree.make_folder(IDS, queue)
        context.settings.prepare(queue, DEFAULTS.changed({"index": True}))
        created = tree.make_queue(queue)
    else:
        created = tree.make_queue(queue)  # who created it may not have synced it yet
    if not context.settings.get(queue).index:
        raise InvalidValue("index", f"queue {queue!r} was created without one")
    return created
