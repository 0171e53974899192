"""Reprioritize: give a ready message another priority, and so another name in its queue."""

from __future__ import annotations

from functools import partial

from ..context import Context, Prepared
from ..durability.locks import patiently, reserve
from ..durability.new_names import may_rename
from ..durability.sync import Dirty
from ..durability.unfinished import exists, found_as
from ..errors import DuplicateMessage, InvalidValue, NoSuchMessage, Unavailable, as_unavailable
from ..layout.names import (
    MAX_PRIORITY,
    check_id,
    check_queue,
    fits,
    siblings,
    with_priority,
)
from ..layout.settings import check_number
from ..layout.transitions import NEW, QUEUES, REPRIORITIZE, State
from .deliver import deliver_one
from .latch import Latched, latch_patiently

_PATIENCE_S = 1.0


def reprioritize(context: Context, queue: str, message_id: str, priority: int) -> Prepared[str]:
    """Change the priority of a message that is ready; returns its new id.

    Raises:
        InvalidValue: also if the id carries no priority, or the queue has an index.
        DuplicateMessage: the queue has a message of the new id.
        NoSuchQueue, NoSuchMessage, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    check_number("priority", priority, 0, MAX_PRIORITY)
    tree = context.tree
    dirty = Dirty(folders={tree.folder(NEW), tree.folder(QUEUES, queue)})
    with as_unavailable(f"cannot change a priority in queue {queue!r}"):
        _check_kind(context, queue)
        deliver_one(context, queue, message_id)  # it may still be new
        new_id = _new_id(context, queue, message_id, priority)
        if new_id == message_id:
            dirty.files.append(_latched(context, queue, message_id).unlatch())
            return Prepared(dirty, lambda: new_id)
        # A put of the new id must not come in between.
        held = patiently(lambda: reserve(tree, queue, siblings(new_id)[0]), _PATIENCE_S)
        if held is None:
            raise Unavailable(f"another process is storing {new_id!r} right now")
        names = None
        try:
            names = may_rename(tree, queue)
            others = [name for name in siblings(new_id) if name != message_id]
            if found_as(tree, queue, others) is not None:
                _latched(context, queue, message_id).close()  # raises if it is gone
                raise DuplicateMessage(queue, new_id)
            dirty.files.append(_rename(context, queue, message_id, new_id))
        finally:
            held.free()
            if names is not None:
                names.close()
    record = partial(context.record, REPRIORITIZE.step, queue, new_id, source=queue, was=message_id)

    def commit() -> str:
        record()
        return new_id

    return Prepared(dirty, commit)


def _new_id(context: Context, queue: str, message_id: str, priority: int) -> str:
    new_id = with_priority(message_id, priority)
    if new_id is not None and fits(queue, new_id):
        return new_id
    if not exists(context.tree, queue, message_id):
        raise NoSuchMessage(queue, message_id, "that is ready")
    if new_id is None:
        raise InvalidValue("priority", f"{message_id[:200]!r} is a file name that carries none")
    raise InvalidValue("priority", f"queue {queue!r} leaves no room for it in the id")


def _latched(context: Context, queue: str, message_id: str) -> Latched:
    latched = latch_patiently(context, context.tree.path(State.READY, queue, message_id))
    if latched is None:
        raise NoSuchMessage(queue, message_id, "that is ready")
    try:
        _check_kind(context, queue)  # the queue may have been created anew
    except BaseException:
        latched.close()
        raise
    return latched


def _check_kind(context: Context, queue: str) -> None:
    settings = context.settings_of(queue)
    if settings.index or settings.fifo:
        kind = "a queue with an index" if settings.index else "a fifo queue"
        raise InvalidValue("priority", f"cannot change in {kind}")


def _rename(context: Context, queue: str, message_id: str, new_id: str) -> int:
    """Rename a message within its queue, keeping its stamp; returns its open descriptor."""
    latched = _latched(context, queue, message_id)
    path = context.tree.path(State.READY, queue, message_id)
    before_ns = latched.found.st_mtime_ns
    stamp = context.stamps.decode(message_id, before_ns)
    moved = None
    try:
        if stamp is not None:
            # A stamp verifies with one id only. It is set before the rename so that a claim sees
            # the count; a crash in between makes that 0.
            count = stamp.deliveries or 0
            latched.stamp(context, path, context.stamps.encode(new_id, stamp.deadline_ms, count))
        moved = latched.move(context, REPRIORITIZE, queue, message_id, to_id=new_id)
    except FileExistsError:
        raise DuplicateMessage(queue, new_id) from None
    finally:
        if moved is None:
            if stamp is not None:
                latched.stamp(context, path, before_ns)
            latched.close()
    if moved is None:
        raise NoSuchMessage(queue, message_id, "that is ready")
    return latched.unlatch()
