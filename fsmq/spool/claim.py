"""Claim and renew: who holds a message, and until when.

The stamp is set before the rename that starts its timer, so the mover never sees a message in
``delay/`` without its deadline. From the look at a stamp to the rename the message is held.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from .context import Context, Pending
from .errors import FsmqError, NoSuchMessage, unavailable
from .hold import hold, restamp
from .message import Message, unpack
from .names import check_id, check_queue, facts
from .release import return_unseen
from .settings import MAX_VISIBILITY_S, QueueSettings, check_number, check_seconds
from .stamps import MAX_COUNT
from .sync import Work
from .transitions import CLAIM, DELAY, DELIVER, NEW, QUEUES, REMOVE_READY, State

MAX_CLAIMS = 1000
# How long a claim, which others wait behind, waits for another holder.
_CLAIM_PATIENCE_S = 0.001
# A claim of many messages ends early when their bodies reach this many bytes.
MAX_CLAIM_BYTES = 64 * 1024 * 1024
# A claim passes over so many messages that cannot be claimed: a file that only another user may
# read or stamp must not hold up those behind it.
_MAX_FAULTS = 100
# A claim removes so many expired messages that it meets; others it passes over, for the sweep.
_MAX_EXPIRED = 200


@dataclass(slots=True)
class Taken:
    """A message whose claim has been won; ``fd`` is open on it."""

    message_id: str
    fd: int
    size: int
    deliveries: int
    deadline_ms: int


def claim(
    context: Context, queue: str, count: int = 1, visibility: float | None = None
) -> Pending[list[Message]]:
    """Claim up to ``count`` ready messages for ``visibility`` seconds (None: the queue's setting).

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    check_number("count", count, 1, MAX_CLAIMS)
    tree = context.tree
    work = Work(folders={tree.folder(QUEUES, queue), tree.folder(DELAY)})
    messages: list[Message] = []
    try:
        _claim_ready(context, queue, count, visibility, messages, work)
    except OSError as error:
        # What was won before the fault is given out; a message whose reading failed comes back
        # when its timer ends.
        if not messages:
            work.close()
            raise unavailable(error, f"cannot claim from queue {queue!r}") from error
    except BaseException:
        work.close()
        raise
    context.metrics.count(("claim", queue), len(messages))

    def give_back() -> None:
        for message in messages:
            try:
                return_unseen(context, queue, message.id)
            except (OSError, FsmqError):
                continue  # its timer brings it back

    def give_out() -> list[Message]:
        now = context.clock()
        for message in messages:
            claim_ms = round(((message.deadline or now) - now) * 1000)
            context.journal.note(
                "claimed", queue, message.id, deliveries=message.deliveries, claim_ms=claim_ms
            )
        return messages

    size = sum(len(message.body) for message in messages)
    return Pending(work if messages else Work(), give_out, give_back, size)


def _claim_ready(
    context: Context,
    queue: str,
    count: int,
    visibility: float | None,
    messages: list[Message],
    work: Work,
) -> None:
    settings = context.settings_of(queue)
    context.ready.divide(queue, settings)
    won = win(context, queue, settings, _popped(context, queue), visibility)
    size = 0
    with closing(won):
        while len(messages) < count and size < MAX_CLAIM_BYTES:
            taken = next(won, None)
            if taken is None:
                break
            work.files.append(taken.fd)
            message = _read(context, queue, taken)
            messages.append(message)
            size += max(taken.size, len(message.body))


def win(
    context: Context,
    queue: str,
    settings: QueueSettings,
    ids: Iterator[str],
    visibility: float | None,
) -> Generator[Taken, None, None]:
    """Claim ready messages one after the other, as they are asked for; close it when done.

    ids: what may be ready, in the order in which it is tried.

    Raises:
        InvalidValue
        OSError: nothing could be claimed, and not since others were quicker.
    """
    deadline_ms = deadline_of(context, settings, visibility)
    faults: list[tuple[str, OSError]] = []
    busy: list[str] = []
    won = 0
    try:
        for message_id in _alive(context, settings, queue, ids):
            try:
                taken = _take(context, queue, message_id, deadline_ms)
            except BlockingIOError:
                context.metrics.count(("lost_race", queue))
                busy.append(message_id)  # its holder was stopped in the middle
                continue
            except OSError as error:
                faults.append((message_id, error))
                if len(faults) == _MAX_FAULTS:
                    break
                continue
            if taken is None:
                context.metrics.count(("lost_race", queue))
                continue
            won += 1
            yield taken
    finally:
        for message_id in busy:
            context.ready.postpone(queue, message_id)
        for message_id, _ in faults:
            context.ready.add(queue, message_id)
    # Another user's file (fsck tells) is passed over as if it were not there.
    errors = [error for _, error in faults if not isinstance(error, PermissionError)]
    if errors and not won:
        raise errors[0]


def renew(
    context: Context, queue: str, message_id: str, visibility: float | None
) -> Pending[float]:
    """Let a claim (or a delay) end ``visibility`` seconds from now; gives the new deadline.

    A message that went back to its queue meanwhile is claimed again.

    Raises:
        InvalidValue, NoSuchQueue, NoSuchMessage, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    tree = context.tree
    try:
        settings = context.settings_of(queue)
        deadline_ms = deadline_of(context, settings, visibility)
        path = tree.path(State.DELAY, queue, message_id)
        work = Work(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
        fd = restamp(context, path, message_id, deadline_ms)
        if fd is None:
            fd = take_back(context, queue, message_id, deadline_ms)
        if fd is None:
            raise NoSuchMessage(queue, message_id, "that is in flight or ready")
        work.files.append(fd)
    except OSError as error:
        raise unavailable(error, f"cannot renew in queue {queue!r}") from error
    context.metrics.count(("renew", queue))

    def finish() -> float:
        context.journal.note("renewed", queue, message_id, claim_ms=deadline_ms - context.now_ms())
        return deadline_ms / 1000

    return Pending(work, finish)


def extend(
    context: Context, queue: str, message_ids: Sequence[str], visibility: float
) -> Pending[list[bool]]:
    """Hold messages for ``visibility`` seconds from now at least; tells for each if it is held.

    A claim that ends later stays as it is, and one that is over, or never was, is made. A message
    that is gone is passed over.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    for message_id in message_ids:
        check_id(queue, message_id)
    tree = context.tree
    work = Work()
    try:
        deadline_ms = deadline_of(context, context.settings_of(queue), visibility)
        held = [_extend(context, queue, i, deadline_ms, work) for i in message_ids]
    except OSError as error:
        work.close()
        raise unavailable(error, f"cannot renew in queue {queue!r}") from error
    except BaseException:
        work.close()
        raise
    if work.files:
        work.folders |= {tree.folder(NEW), tree.folder(DELAY), tree.folder(QUEUES, queue)}
    context.metrics.count(("renew", queue), len(work.files))

    def finish() -> list[bool]:
        claim_ms = deadline_ms - context.now_ms()
        for message_id, is_held in zip(message_ids, held, strict=True):
            if is_held:
                context.journal.note("renewed", queue, message_id, claim_ms=claim_ms)
        return held

    return Pending(work, finish)


def _extend(context: Context, queue: str, message_id: str, deadline_ms: int, work: Work) -> bool:
    tree = context.tree
    path = tree.path(State.DELAY, queue, message_id)
    found = tree.stat(path)
    fd = None
    if found is not None:
        stamp = context.stamps.decode(message_id, found.st_mtime_ns)
        if stamp is not None and stamp.deadline_ms >= deadline_ms:
            return True
        fd = restamp(context, path, message_id, deadline_ms)
    if fd is None:
        # It may be on its way there; whoever needs it there may take it along.
        try:
            if tree.move(DELIVER, queue, message_id):
                context.journal.note("delivered", queue, message_id)
        except FileExistsError:
            pass
        fd = take_back(context, queue, message_id, deadline_ms)
    if fd is None:
        return False
    work.files.append(fd)
    return True


def deadline_of(context: Context, settings: QueueSettings, visibility: float | None) -> int:
    seconds = settings.visibility_timeout if visibility is None else visibility
    check_seconds("visibility", seconds, MAX_VISIBILITY_S)
    return context.now_ms() + round(seconds * 1000)


def _popped(context: Context, queue: str) -> Iterator[str]:
    """The ids of the ready index, each taken out of it."""
    first = True
    while (message_id := context.ready.pop(queue, refresh=first)) is not None:
        first = False
        yield message_id


def _alive(
    context: Context, settings: QueueSettings, queue: str, ids: Iterator[str]
) -> Iterator[str]:
    """Those of the ids that have not expired."""
    expired = 0
    for message_id in ids:
        can_expire = settings.retention is not None or ".x" in message_id
        if not can_expire or not context.is_expired(facts(message_id), settings):
            yield message_id
            continue
        expired += 1
        if expired <= _MAX_EXPIRED and context.tree.move(REMOVE_READY, queue, message_id):
            context.metrics.count(("expire", queue))
            context.journal.note("expired", queue, message_id)


def _take(context: Context, queue: str, message_id: str, deadline_ms: int) -> Taken | None:
    """Try to win a ready message; None if someone else has it, or if it is no message.

    Raises:
        BlockingIOError: someone else acts on it right now.
        OSError
    """
    tree, stamps = context.tree, context.stamps
    path = tree.path(State.READY, queue, message_id)
    # A mover that has just brought it lets it go in a moment, and no event will tell when.
    held = hold(context, path, _CLAIM_PATIENCE_S)
    if held is None:
        return None
    won = stamped = kept = False
    found = held.found
    try:
        if not stat.S_ISREG(found.st_mode):
            return None
        deliveries = min(stamps.deliveries(message_id, found.st_mtime_ns) + 1, MAX_COUNT)
        mtime = stamps.encode(message_id, deadline_ms, deliveries)
        stamped = tree.stamp(path, mtime)
        won = stamped and _move_to_delay(context, queue, message_id)
        if won and os.fstat(held.fd).st_mtime_ns != mtime:
            # Only where there are no locks: a racer that lost has stamped after us.
            tree.stamp(tree.path(State.DELAY, queue, message_id), mtime)
        if won:
            held.let_go()
            kept = True
    finally:
        try:
            if stamped and not won:
                tree.stamp(path, found.st_mtime_ns)  # a claim that failed is no delivery
        finally:
            if not kept:
                os.close(held.fd)  # whatever failed: an open hold would keep it for ever
    if not won:
        return None
    return Taken(message_id, held.fd, found.st_size, deliveries, deadline_ms)


def _move_to_delay(context: Context, queue: str, message_id: str) -> bool:
    try:
        return context.tree.move(CLAIM, queue, message_id)
    except FileExistsError:
        return False  # the same id stands in delay/ too: fsck reports it
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False  # a shell user's name that leaves no room for the queue's
        raise


def take_back(context: Context, queue: str, message_id: str, deadline_ms: int) -> int | None:
    """Claim a certain message again that went back to its queue; its descriptor, or None."""
    try:
        taken = _take(context, queue, message_id, deadline_ms)
    except BlockingIOError:
        return None  # someone else is about to claim it
    return None if taken is None else taken.fd


def _read(context: Context, queue: str, taken: Taken) -> Message:
    known = facts(taken.message_id)
    raw = read_all(taken.fd, taken.size)
    body, content_type, attributes = unpack(raw, known, context.max_plain_bytes)
    return Message(
        queue=queue,
        id=taken.message_id,
        body=body,
        deliveries=None if context.stamps.coarse else taken.deliveries,
        deadline=taken.deadline_ms / 1000,
        content_type=content_type,
        attributes=attributes,
        priority=known.priority,
        created_at=None if known.created_ms is None else known.created_ms / 1000,
        expires_at=known.expires_s,
        state="in_flight",
    )


def read_all(fd: int, size: int) -> bytes:
    """A file's bytes from its start."""
    raw = os.pread(fd, size + 1, 0)
    if len(raw) == size:
        return raw
    parts = [raw]
    got = len(raw)
    while part := os.pread(fd, 1 << 20, got):
        parts.append(part)
        got += len(part)
    return b"".join(parts)
