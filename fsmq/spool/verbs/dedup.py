"""Dedup queues: equal messages that wait together become one.

A dedup queue x is two queues. Messages are sent to ``__dedupq_write:x``. There the id is made of
the content, so an equal message finds its id in use, on any host and without opening a file; and
the reservation of own ids keeps two writers apart. ``__dedupq_read:x`` has the messages that a poll
or a peek has shown, under new ids. There equal messages no longer collapse: a message that is sent
while a consumer works on an equal one must not be lost with it.

When a message is shown for the first time, one rename pulls it from the first queue to the second.
Names in the first sort as their contents do, so a batch comes in the order of its bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import islice

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..errors import NoRoom, as_unavailable, unavailable
from ..layout.digests import sha256
from ..layout.messages.message import Message, NewMessage
from ..layout.names import MAX_QUEUE_BYTES
from ..layout.steps import FEW, Steps, finish
from ..layout.transitions import NEW, PULL, QUEUES, State
from ..layout.uuids import uuid7
from ..views import browse
from ..views.look import Page
from ..views.reading import Room
from . import put, receive
from .deliver import deliver_one
from .put import Batch

_WRITE, _READ = "__dedupq_write:", "__dedupq_read:"
MAX_NAME_BYTES = MAX_QUEUE_BYTES - len(_WRITE)
# How many bytes of the content, in hexadecimal, the id begins with, for sorting.
_SORTED_BYTES = 10


def write_side(name: str) -> str:
    """The queue for messages that are sent to a dedup queue."""
    return _WRITE + name


def read_side(name: str) -> str:
    """The queue whose messages have been shown."""
    return _READ + name


def content_id(body: bytes) -> str:
    """The id of a message on the write side: equal for equal bytes, and in their order."""
    digest = base64.urlsafe_b64encode(sha256(body)).decode().rstrip("=")
    return f"{body[:_SORTED_BYTES].hex()}.{digest}"


def send(
    context: Context,
    name: str,
    bodies: Sequence[bytes],
    batch: Batch | None = None,
) -> Prepared[list[str]]:
    """Store messages, all or none, except those that equal a waiting one.

    Raises:
        Reserved: an equal message is being stored right now; try again.
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    messages = (NewMessage(body, id=content_id(body)) for body in bodies)
    return put.put(context, write_side(name), messages, collapse=True, batch=batch)


def poll(
    context: Context, name: str, count: int, visibility: float | None
) -> Prepared[list[Message]]:
    """Claim up to ``count`` messages: first what was shown before, then new ones, sorted.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    return finish(poll_in(context, name, count, visibility))


def poll_in(
    context: Context, name: str, count: int, visibility: float | None, room: Room | None = None
) -> Steps[Prepared[list[Message]]]:
    """The same in steps.

    room: the memory for their bodies.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    side = read_side(name)
    first = yield from receive.claims_in(context, side, count, visibility, room)
    parts = [first]
    pulled: set[str] = set()
    dirty = Dirty()
    dirty.take(first.dirty)
    try:
        if len(first.messages) < count and not context.limiter.is_shut(side):
            pulled = yield from _pull(context, name, count - len(first.messages), dirty)
        if pulled:
            more = yield from receive.claims_in(context, side, len(pulled), visibility, room)
            parts.append(more)
            dirty.take(more.dirty)
    except BaseException as error:
        if not isinstance(error, NoRoom) or not first.messages:
            dirty.close()
            first.release()
            raise

    def commit() -> list[Message]:
        found = [message for part in parts for message in part.give_out()]
        fresh = [m for m in found if m.id in pulled]
        return [*(m for m in found if m.id not in pulled), *sorted(fresh, key=lambda m: m.body)]

    def abort() -> None:
        for part in parts:
            part.release()

    return Prepared(dirty, commit, abort)


def peek(
    context: Context, name: str, limit: int, room: Room | None = None
) -> Prepared[list[Message]]:
    """Look at up to ``limit`` messages, claimed ones too. New ones are pulled first.

    room: the memory for their bodies; the list ends early if it is used up.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    read, write = read_side(name), write_side(name)
    dirty = Dirty()
    with Page(limit, room) as page:
        browse.fill(context, read, page)
        shown, page.messages = page.messages, []
        with as_unavailable(f"cannot look into dedup queue {name!r}"):
            if not page.is_full:
                for message_id in islice(browse.ids(context, write, State.NEW), limit):
                    deliver_one(context, write, message_id)
            while not page.is_full and (pulled := finish(_pull(context, name, 1, dirty))):
                for message_id in pulled:
                    page.look(context, read, message_id, State.READY)
    messages = [*shown, *sorted(page.messages, key=lambda m: m.body)]
    return Prepared(dirty, lambda: messages)


def _pull(context: Context, name: str, count: int, dirty: Dirty) -> Steps[set[str]]:
    """Move up to ``count`` messages to the read side; their ids there."""
    read, write = read_side(name), write_side(name)
    pulled: set[str] = set()
    try:
        for tried, old in enumerate(context.ready.popped(write), 1):
            new = _pull_one(context, write, old, read)
            if new is not None:
                pulled.add(new)
            if len(pulled) == count:
                break
            if tried % FEW == 0:
                yield
    except OSError as error:
        if not pulled:
            raise unavailable(error, f"cannot read dedup queue {name!r}") from error
    if pulled:
        tree = context.tree
        dirty.folders |= {tree.folder(QUEUES, read), tree.folder(QUEUES, write), tree.folder(NEW)}
    return pulled


def _pull_one(context: Context, write: str, old: str, read: str) -> str | None:
    try:
        new = _new_id(context, context.tree.path(State.READY, write, old))
        return new if context.make(PULL, write, old, read, new) else None
    except OSError:
        context.ready.quarantine(write, old)
        raise


def _new_id(context: Context, path: str) -> str:
    """An id with which the file's time is not a claim's stamp by chance."""
    found = context.tree.stat(path)
    while True:
        new = uuid7()
        if found is None or not context.stamps.deliveries(new, found.st_mtime_ns):
            return new
