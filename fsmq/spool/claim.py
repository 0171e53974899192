"""Claim, renew, release: who holds a message, and until when.

The stamp is set before the rename that starts its timer, so the mover never sees a message in
``delay/`` without its deadline. Two claimers that race may overwrite each other's stamp; the one
whose rename succeeded looks at it again.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, replace

from .context import Context, Pending
from .errors import FsmqError, NoSuchMessage, NoSuchQueue, unavailable
from .message import Message, unpack
from .names import check_id, check_queue, facts
from .settings import MAX_DELAY_S, MAX_VISIBILITY_S, QueueSettings, check_number, check_seconds
from .stamps import MAX_COUNT
from .sync import Work
from .tree import (
    BURY,
    CLAIM,
    DELAY,
    QUEUES,
    RELEASE,
    REMOVE_READY,
    STRAY,
    State,
)

MAX_CLAIMS = 1000
# Far longer than the rename that follows takes.
_BURY_MS = 1000
# A claim of many messages ends early when their bodies reach this many bytes.
MAX_CLAIM_BYTES = 64 * 1024 * 1024
# A claim passes over so many messages that cannot be claimed: a file that only another user may
# read or stamp must not hold up those behind it.
_MAX_FAULTS = 100


@dataclass(slots=True)
class _Taken:
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
    context.counters["claim"] += len(messages)

    def give_back() -> None:
        for message in messages:
            try:
                _hand_back(context, QueueSettings(), queue, message.id)
            except (OSError, FsmqError):
                continue  # its timer brings it back

    return Pending(work if messages else Work(), lambda: messages, give_back)


def _claim_ready(
    context: Context,
    queue: str,
    count: int,
    visibility: float | None,
    messages: list[Message],
    work: Work,
) -> None:
    settings = context.settings_of(queue)
    deadline_ms = _deadline_ms(context, settings, visibility)
    size = 0
    faults: list[tuple[str, OSError]] = []
    try:
        while len(messages) < count and size < MAX_CLAIM_BYTES and len(faults) < _MAX_FAULTS:
            message_id = context.ready.pop(queue)
            if message_id is None:
                break
            try:
                taken = _take_if_alive(context, settings, queue, message_id, deadline_ms)
            except OSError as error:
                faults.append((message_id, error))
                continue
            if taken is not None:
                work.files.append(taken.fd)
                messages.append(_read(context, queue, taken))
                size += taken.size
    finally:
        for message_id, _ in faults:
            context.ready.add(queue, message_id)
    if faults and not messages:
        raise faults[0][1]


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
        deadline_ms = _deadline_ms(context, settings, visibility)
        path = tree.path(State.DELAY, queue, message_id)
        work = Work(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
        held = _restamp(context, path, message_id, deadline_ms)
        if held is None:
            held = _take(context, queue, message_id, deadline_ms)
        if held is None:
            raise NoSuchMessage(queue, message_id, "that is in flight or ready")
        work.files.append(held.fd)
    except OSError as error:
        raise unavailable(error, f"cannot renew in queue {queue!r}") from error
    deliveries = held.deliveries
    return Pending(work, lambda: _confirm(context, queue, message_id, deadline_ms, deliveries))


def _confirm(
    context: Context, queue: str, message_id: str, deadline_ms: int, deliveries: int
) -> float:
    """Make sure that a renewal holds, as the last act before it is acknowledged.

    A mover that looked before our stamp may have sent the message on after it. In the queue we
    claim it again (unsynced: after a crash it comes early); what someone else holds is lost.
    """
    tree = context.tree
    try:
        found = tree.stat(tree.path(State.DELAY, queue, message_id))
        if found is not None:
            lost = context.stamps.deliveries(message_id, found.st_mtime_ns) > deliveries
        else:
            taken = _take(context, queue, message_id, deadline_ms)
            lost = taken is None
            if taken is not None:
                os.close(taken.fd)
    except OSError as error:
        raise unavailable(error, f"cannot renew in queue {queue!r}") from error
    if lost:
        raise NoSuchMessage(queue, message_id, "that is in flight for this renewal any more")
    context.counters["renew"] += 1
    return deadline_ms / 1000


def release(context: Context, queue: str, message_id: str, delay: float = 0.0) -> Pending[None]:
    """Give a claimed message back: at once, or hidden for ``delay`` seconds more (back-off).

    One whose deliveries are used up goes to the dead-letter queue instead.

    Raises:
        InvalidValue, NoSuchQueue, NoSuchMessage, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    check_seconds("delay", delay, MAX_DELAY_S)
    tree = context.tree
    work = Work(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
    try:
        settings = context.settings_of(queue)
        if delay:
            path = tree.path(State.DELAY, queue, message_id)
            held = _restamp(context, path, message_id, context.now_ms() + round(delay * 1000))
            if held is None:
                raise NoSuchMessage(queue, message_id, "that is in flight")
            work.files.append(held.fd)
        else:
            target = _hand_back(context, settings, queue, message_id)
            work.folders.add(tree.folder(QUEUES, target))
    except OSError as error:
        raise unavailable(error, f"cannot release in queue {queue!r}") from error
    context.counters["release"] += 1
    return Pending(work, lambda: None)


def is_used_up(settings: QueueSettings, deliveries: int) -> bool:
    """Whether a message that was claimed so often belongs to the dead letters."""
    return settings.max_deliveries is not None and deliveries >= settings.max_deliveries


def bury(context: Context, queue: str, message_id: str, dead_letters: str) -> bool:
    """Move a message from ``delay/`` to a dead-letter queue, where its count starts again.

    False if it is not in ``delay/`` any more. Raises OSError.
    """
    tree = context.tree
    if not tree.has_queue(dead_letters):
        tree.make_queue(dead_letters)
    source = tree.path(State.DELAY, queue, message_id)
    found = tree.stat(source)
    # Before the rename: who waits for dead letters may claim it at once, and would count on. The
    # deadline keeps other movers, which see a count of 0 now, from redelivering it meanwhile.
    mtime = context.stamps.encode(message_id, context.now_ms() + _BURY_MS, 0)
    if found is None or not tree.stamp(source, mtime):
        return False
    try:
        if not tree.move(BURY, queue, message_id, dead_letters):
            return False
    except FileExistsError:
        tree.stamp(source, found.st_mtime_ns)
        raise
    context.ready.add(dead_letters, message_id)
    context.counters["bury"] += 1
    return True


def _deadline_ms(context: Context, settings: QueueSettings, visibility: float | None) -> int:
    seconds = settings.visibility_timeout if visibility is None else visibility
    check_seconds("visibility", seconds, MAX_VISIBILITY_S)
    return context.now_ms() + round(seconds * 1000)


def _take_if_alive(
    context: Context, settings: QueueSettings, queue: str, message_id: str, deadline_ms: int
) -> _Taken | None:
    if context.is_expired(facts(message_id), settings):
        if context.tree.move(REMOVE_READY, queue, message_id):
            context.counters["expire"] += 1
        return None
    taken = _take(context, queue, message_id, deadline_ms)
    if taken is None:
        context.counters["lost_race"] += 1
    return taken


def _take(context: Context, queue: str, message_id: str, deadline_ms: int) -> _Taken | None:
    """Try to win a ready message; None if someone else has it, or if it is no message."""
    tree, stamps = context.tree, context.stamps
    path = tree.path(State.READY, queue, message_id)
    try:
        fd = tree.open(path)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    won = False
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return None
        deliveries = min(stamps.deliveries(message_id, before.st_mtime_ns) + 1, MAX_COUNT)
        mtime = stamps.encode(message_id, deadline_ms, deliveries)
        if not tree.stamp(path, mtime):
            return None
        try:
            won = tree.move(CLAIM, queue, message_id)
        except FileExistsError:
            return None  # the same id stands in delay/ too: fsck reports it
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None  # a shell user's name that leaves no room for the queue's
            raise
        if not won:
            return None
    finally:
        if not won:
            os.close(fd)
    taken = _Taken(message_id, fd, before.st_size, deliveries, deadline_ms)
    return taken if os.fstat(fd).st_mtime_ns == mtime else _hold_on(context, queue, taken, mtime)


def _hold_on(context: Context, queue: str, taken: _Taken, mtime: int) -> _Taken | None:
    """Set our stamp again, which a racer that lost has overwritten.

    None if the message left meanwhile: the racer's deadline may have been over at once. The file
    is opened again: an id may have been removed and put anew since we opened the first one.
    """
    tree = context.tree
    os.close(taken.fd)
    path = tree.path(State.DELAY, queue, taken.message_id)
    if not tree.stamp(path, mtime):
        return None
    try:
        fd = tree.open(path)
    except FileNotFoundError:
        return None
    return replace(taken, fd=fd, size=os.fstat(fd).st_size)


def _restamp(context: Context, path: str, message_id: str, deadline_ms: int) -> _Taken | None:
    """Set a new deadline in ``delay/`` and keep the count; None if the message is not there."""
    tree, stamps = context.tree, context.stamps
    try:
        fd = tree.open(path)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    stamped = False
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return None
        deliveries = stamps.deliveries(message_id, before.st_mtime_ns)
        stamped = tree.stamp(path, stamps.encode(message_id, deadline_ms, deliveries))
    finally:
        if not stamped:
            os.close(fd)
    return _Taken(message_id, fd, before.st_size, deliveries, deadline_ms) if stamped else None


def _hand_back(context: Context, settings: QueueSettings, queue: str, message_id: str) -> str:
    """Rename a message out of ``delay/``; the queue that it went to."""
    tree = context.tree
    found = tree.stat(tree.path(State.DELAY, queue, message_id))
    if found is None:
        raise NoSuchMessage(queue, message_id, "that is in flight")
    deliveries = context.stamps.deliveries(message_id, found.st_mtime_ns)
    dead_letters = settings.dead_letter_queue
    if dead_letters is not None and is_used_up(settings, deliveries):
        if bury(context, queue, message_id, dead_letters):
            return dead_letters
    elif tree.move(RELEASE, queue, message_id):
        context.ready.add(queue, message_id)
        return queue
    if not tree.has_queue(queue):
        raise NoSuchQueue(queue)
    raise NoSuchMessage(queue, message_id, "that is in flight")


def _read(context: Context, queue: str, taken: _Taken) -> Message:
    known = facts(taken.message_id)
    raw = read_all(taken.fd, taken.size)
    body, content_type, attributes = unpack(raw, known)
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
