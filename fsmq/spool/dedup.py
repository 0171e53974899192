"""Dedup queues: equal messages that wait together become one.

A dedup queue x is two queues. ``__dedupq_write:x`` takes what is sent; an id there is made of the
message's content, so an equal one finds its id taken: nothing is opened to find that out, on
whatever host, and the reservation of own ids keeps two writers apart. ``__dedupq_read:x`` has what
a poll or a peek has shown, under ids of its own; there nothing collapses any more, since a change
that comes while an old copy is worked on must not be lost with that copy.

From the first to the second a message is pulled, by one rename, when it is shown for the first
time. Names in the first sort as their contents do, so a batch comes in the order of its bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from . import browse, claim, put
from .context import Context, Pending, join
from .counts import Depths
from .errors import unavailable
from .message import Message, NewMessage
from .names import MAX_QUEUE_BYTES
from .put import Batch
from .sync import Work
from .transitions import DELIVER, NEW, PULL, QUEUES, State
from .uuids import uuid7

_WRITE, _READ = "__dedupq_write:", "__dedupq_read:"
MAX_NAME_BYTES = MAX_QUEUE_BYTES - len(_WRITE)
# So much of the content stands at the start of its id, in hexadecimal, to sort by.
_SORTED_BYTES = 10


def write_side(name: str) -> str:
    """The queue that takes what is sent to a dedup queue."""
    return _WRITE + name


def read_side(name: str) -> str:
    """The queue whose messages have been shown."""
    return _READ + name


def content_id(body: bytes) -> str:
    """The id of a message on the write side: equal for equal bytes, and in their order."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
    return f"{body[:_SORTED_BYTES].hex()}.{digest}"


def send(
    context: Context,
    depths: Depths,
    name: str,
    bodies: Sequence[bytes],
    batch: Batch | None = None,
) -> Pending[list[str]]:
    """Store messages, all or none, but for those that wait already.

    Raises:
        Reserved: an equal message is being stored right now; try again.
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    messages = [NewMessage(body, id=content_id(body)) for body in bodies]
    return put.put(context, depths, write_side(name), messages, collapse=True, batch=batch)


def poll(
    context: Context, name: str, count: int, visibility: float | None
) -> Pending[list[Message]]:
    """Claim up to ``count`` messages: first what was shown before, then new ones, sorted.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    first = claim.claim(context, read_side(name), count, visibility)
    messages = first.finish()
    if len(messages) == count:
        return first
    parts = [first]
    try:
        pulled = _pull(context, name, count - len(messages), first.work)
        if pulled:
            parts.append(claim.claim(context, read_side(name), len(pulled), visibility))
    except BaseException:
        first.work.close()
        first.abandon()
        raise
    both = join(parts)
    fresh = parts[-1].finish() if len(parts) > 1 else []
    order = [m for m in fresh if m.id not in pulled], [m for m in fresh if m.id in pulled]
    found = [*messages, *order[0], *sorted(order[1], key=lambda m: m.body)]
    return Pending(both.work, lambda: found, both.abandon, both.size)


def peek(context: Context, name: str, limit: int) -> Pending[list[Message]]:
    """Look at up to ``limit`` messages, claimed ones too. What it shows is shown: pulled.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    read, write = read_side(name), write_side(name)
    messages = browse.peek_all(context, read, limit)
    work = Work()
    try:
        if len(messages) < limit:
            for message_id in browse.ids(context, write, State.NEW)[:limit]:
                _deliver(context, write, message_id)
            pulled = _pull(context, name, limit - len(messages), work)
            looks = (browse.look(context, read, i, State.READY) for i in pulled)
            messages += sorted((m for m in looks if m is not None), key=lambda m: m.body)
    except OSError as error:
        raise unavailable(error, f"cannot look into dedup queue {name!r}") from error
    return Pending(work, lambda: messages)


def _pull(context: Context, name: str, count: int, work: Work) -> set[str]:
    """Bring up to ``count`` messages to the read side; the ids that they have there."""
    read, write = read_side(name), write_side(name)
    tree = context.tree
    pulled: set[str] = set()
    try:
        ids = context.ready.popped(write)
        while len(pulled) < count and (old := next(ids, None)) is not None:
            new = uuid7()
            try:
                is_ours = tree.move(PULL, write, old, read, new)
            except OSError:
                context.ready.set_apart(write, old)
                raise
            if is_ours:
                context.ready.add(read, new)
                context.journal.note("moved", read, new, source=write, was=old)
                pulled.add(new)
    except OSError as error:
        if not pulled:
            raise unavailable(error, f"cannot read dedup queue {name!r}") from error
    if pulled:
        work.folders |= {tree.folder(QUEUES, read), tree.folder(QUEUES, write), tree.folder(NEW)}
    return pulled


def _deliver(context: Context, queue: str, message_id: str) -> None:
    try:
        if context.tree.move(DELIVER, queue, message_id):
            context.ready.add(queue, message_id)
            context.journal.note("delivered", queue, message_id)
    except FileExistsError:
        pass  # an equal message is ready there
