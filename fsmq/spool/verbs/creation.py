"""Create a queue with settings, with an index of the ids that producers give, or with an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..context import Context
from ..errors import InvalidValue
from ..layout.settings import DEFAULTS, QueueSettings
from ..layout.transitions import IDS
from .settled import settings_held


def create(context: Context, queue: str, *, index: bool = False, fifo: bool = False) -> bool:
    """Create a queue durably; False if it was there. Raises InvalidValue, OSError."""
    if index and fifo:
        raise InvalidValue("fifo", "a queue with an index cannot be one")
    if index:
        return create_indexed(context, queue)
    return create_fifo(context, queue) if fifo else context.tree.make_queue(queue)


def check_unchanged(now: QueueSettings, wanted: QueueSettings) -> None:
    """Check that a change leaves what is fixed when a queue is created. Raises InvalidValue."""
    for field in ("index", "fifo"):
        if getattr(wanted, field) != getattr(now, field):
            raise InvalidValue(field, "is fixed when the queue is created")


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


def create_with(
    context: Context, queue: str, settings: QueueSettings, members: Mapping[str, Any]
) -> bool:
    """Create a queue that has these settings from its first moment; False if it was there.

    members: what else stands in the file of settings. A queue that was there stays as it is.

    Raises:
        InvalidValue, Unavailable, OSError
    """
    tree = context.tree
    if tree.has_queue(queue):
        return False
    with settings_held(context, queue):
        if tree.has_queue(queue):
            return False
        context.settings.prepare(queue, settings, members)
        return tree.make_queue(queue)


def create_fifo(context: Context, queue: str) -> bool:
    """Create a fifo queue, durably; False if it was there.

    Raises:
        InvalidValue: it is there and is none.
        OSError
    """
    tree = context.tree
    if not tree.has_queue(queue):
        context.settings.prepare(queue, DEFAULTS.changed({"fifo": True}))
    created = tree.make_queue(queue)  # who created it may not have synced it yet
    if not context.settings.get(queue).fifo:
        raise InvalidValue("fifo", f"queue {queue!r} was created without it")
    return created
