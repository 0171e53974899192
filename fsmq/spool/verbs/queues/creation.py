"""Create queues, and change their settings: the one way for the library and every dialect."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...context import Context
from ...durability.settings_lock import no_ids, settings_held
from ...durability.shared_names import claims_name, limits_name
from ...errors import InUse, InvalidValue, NoSuchQueue, as_unavailable, understood
from ...layout.files import write_at
from ...layout.names import check_queue
from ...layout.settings import DEFAULTS, SETTINGS, QueueSettings
from ...layout.transitions import CONFIG, IDS, QUEUES
from ...layout.tree import Tree
from .deletion import forget

# Called under the lock with the current settings and all members of their file: returns those to
# change, or raises.
Change: TypeAlias = Callable[[QueueSettings, Mapping[str, Any]], Mapping[str, Any]]
_KINDS = ("index", "fifo")  # fixed when a queue is created
_SHARED_BYTES = 80


def create(
    context: Context,
    queue: str,
    members: Mapping[str, Any] | None = None,
    *,
    of_any_kind: bool = False,
    patience_s: float | None = None,
) -> bool:
    """Create a queue durably, with the members of its file; False if it existed, unchanged.

    of_any_kind: an existing queue may differ in whether it has an index or is fifo.
    patience_s: how long to wait for its lock; some seconds by default.

    Raises:
        InvalidValue: a member is wrong, or the queue exists and is of another kind.
        InUse: another process has its lock.
        Unavailable
    """
    members = members or {}
    wanted = QueueSettings.of(members)
    tree = context.tree

    def lacks() -> list[str]:
        now = context.settings.get(queue)
        return [k for k in _KINDS if not of_any_kind and getattr(wanted, k) > getattr(now, k)]

    with as_unavailable(f"cannot create queue {queue!r}"):
        # Starting programs create their queues: for existing ones they must not wait for a lock.
        if tree.has_queue(queue) and not lacks():
            tree.sync_folder(tree.folder(QUEUES))  # its creator may not have done so yet
            if tree.has_queue(queue):
                return False
        with settings_held(tree, queue, patience_s), no_ids(tree, queue, patience_s):
            is_new = not tree.has_queue(queue)
            if is_new:
                forget(context, queue)  # left by a dead creation or deletion
                if wanted.index:
                    tree.make_folder(IDS, queue)
                if members:
                    _make_shared(tree, queue, wanted)
                    context.settings.write(queue, members)
            # The folder comes last: so a queue never exists without its settings and index.
            created = tree.make_folder(QUEUES, queue)
            if is_new and not created:
                forget(context, queue)  # somebody has just made it by hand, without them
            if kinds := lacks():
                raise InvalidValue(kinds[0], f"queue {queue!r} was created without it")
    return created


def finish_for_dead(context: Context, queue: str) -> bool:
    """Remove what a dead or failed creation or deletion of a queue has left.

    The caller has the lock of the queue's name. False if an id of it is locked; OSError.
    """
    if context.tree.has_queue(queue):
        return True
    try:
        with no_ids(context.tree, queue, patience_s=0.0):
            forget(context, queue)
    except InUse:
        return False
    return True


def change(context: Context, queue: str, change: Change, keeps: str | None = None) -> QueueSettings:
    """Change members of a queue's file, durably; returns the new settings. Other members stay.

    A missing dead-letter queue is created. keeps: a member that belongs to a dialect.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable, and whatever ``change`` raises.
    """
    check_queue(queue)
    with (
        as_unavailable(f"cannot change the settings of {queue!r}"),
        settings_held(context.tree, queue),
    ):
        if not context.tree.has_queue(queue):
            raise NoSuchQueue(queue)
        with understood(context.settings.path(queue)):
            document = context.settings.document(queue)
            now = QueueSettings.of(document)
        members = change(now, document)
        settings = changed(queue, now, {n: value for n, value in members.items() if n != keeps})
        if settings.dead_letter_queue is not None:
            create(context, settings.dead_letter_queue)
        for name, value in members.items():
            document[name] = getattr(settings, name, value)
            if name in SETTINGS and document[name] == getattr(DEFAULTS, name):
                del document[name]
        _make_shared(context.tree, queue, settings)
        context.settings.write(queue, document)
    return settings


def changed(queue: str, now: QueueSettings, changes: Mapping[str, Any]) -> QueueSettings:
    """The settings of a queue after changes. Raises InvalidValue if they cannot be made."""
    settings = now.changed(changes)
    if fixed := [k for k in _KINDS if getattr(settings, k) != getattr(now, k)]:
        raise InvalidValue(fixed[0], "is fixed when the queue is created")
    if settings.dead_letter_queue == queue:
        raise InvalidValue("dead_letter_queue", "is the queue itself")
    return settings


def _make_shared(tree: Tree, queue: str, settings: QueueSettings) -> None:
    """Create the files that claimers share, with room for their lines, which the first claim could
    not do on a full disk. Raises OSError.
    """
    names = [claims_name(queue)] if settings.in_groups else []
    if settings.max_in_flight is not None or settings.max_rate is not None:
        names.append(limits_name(queue))
    for name in names:
        fd = tree.create(tree.folder(CONFIG, name), os.O_RDWR | os.O_CREAT)
        try:
            if not os.fstat(fd).st_size:
                write_at(fd, b" " * _SHARED_BYTES, 0)
        finally:
            os.close(fd)
