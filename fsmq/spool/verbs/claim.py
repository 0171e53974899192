"""Claim: hide a message from other consumers until a deadline.

The stamp is set before the rename that starts its timer, so the mover never sees a message in
``delay/`` without its deadline. From the look at the stamp to the rename the message is latched.

Two messages of one own id can meet in a queue if a move, or a shell user, brings one while the
other is put. Then they are claimed one after the other: the one in ``delay/`` first, in place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from ..context import Context
from ..layout.claim_names import of_next_claim, of_same_claim, was_last
from ..layout.settings import MAX_VISIBILITY_S, QueueSettings, check_seconds
from ..layout.stamps import MAX_COUNT, Stamp
from ..layout.steps import FEW
from ..layout.transitions import (
    CLAIM,
    EXPIRE_READY,
)
from .expire import expire
from .latch import IsWanted, Latched, anyone, latch

# How long a claim waits for another process's latch; the next messages wait behind it.
_CLAIM_PATIENCE_S = 0.001
# A claim skips up to this many messages that only another user may read or stamp, so that they do
# not hide later ones. A disk error counts for many: it will likely affect all messages.
_MAX_FOREIGN = 10_000
_FAULT = 100
# A claim, unless by groups, removes this many expired messages and leaves others to the mover.
_MAX_EXPIRED = 200


@dataclass(slots=True)
class Claim:
    """A message that has just been claimed; ``fd`` is open on it."""

    message_id: str
    fd: int
    size: int
    deliveries: int
    deadline_ms: int
    mtime_ns: int  # that the claim has set


def claims_of(
    context: Context,
    queue: str,
    settings: QueueSettings,
    ids: Iterator[str],
    visibility: float | None,
    is_wanted: IsWanted = anyone,
    whole_groups: bool = False,
) -> Generator[Claim | None, None, None]:
    """Claim ready messages one after the other, as they are asked for; close it when done.

    Yields None after every few ids tried, for callers that must not block for long.

    This is the one place that checks, for all claims, whether the queue is paused or at a limit. In
    a fifo queue, or with the `fetch_order` fair, the order of the groups chooses, not ``ids``.

    The caller has just seen that the queue exists.

    ids: those that may be ready, in the order to try them. is_wanted: see `claim_one`.
    whole_groups: claim as many messages of a fifo queue's group together as there is room for, and
    more of the group only once none of these is hidden.

    Raises:
        InvalidValue
        NoRoom: raised by ``is_wanted``; that message stays where it was.
        Unlisted: the claims have to be counted first, by a thread that may list folders.
        OSError: nothing was claimed because of an error, not a lost race.
    """
    if settings.is_open and not context.limiter.shut:
        return _claims_of(context, queue, settings, ids, visibility, is_wanted)

    def claims(candidates: Iterator[str]) -> Generator[Claim | None, None, None]:
        return _claims_of(context, queue, settings, candidates, visibility, is_wanted)

    if settings.in_groups:
        return context.groups.claims(
            queue,
            settings,
            lambda candidates: context.limiter.limited(queue, settings, candidates, claims),
            attrgetter("message_id"),
            whole_groups,
        )
    return context.limiter.limited(queue, settings, ids, claims)


def _claims_of(
    context: Context,
    queue: str,
    settings: QueueSettings,
    ids: Iterator[str],
    visibility: float | None,
    is_wanted: IsWanted,
) -> Generator[Claim | None, None, None]:
    deadline_ms, in_groups = deadline_of(context, settings, visibility), settings.in_groups
    faults: dict[str, OSError] = {}
    busy: list[str] = []
    won, room = 0, _MAX_FOREIGN
    try:
        for message_id in _alive(context, settings, queue, ids):
            if message_id is None:
                yield None
                continue
            busy.append(message_id)  # unless it turns out to be something else
            try:
                claim = claim_one(
                    context,
                    queue,
                    message_id,
                    # A claim by groups may have waited for a lock: the time counts from then on.
                    deadline_of(context, settings, visibility) if in_groups else deadline_ms,
                    is_wanted,
                    is_checked=True,
                    has_index=settings.index,
                )
            except BlockingIOError:
                context.metrics.count(("lost_race", queue))
                continue  # the process that has latched it is stopped
            except OSError as error:
                faults[busy.pop()] = error
                room -= 1 if isinstance(error, PermissionError) else _FAULT
                if room <= 0:
                    break
                continue
            busy.pop()
            if claim is None:
                context.metrics.count(("lost_race", queue))
                continue
            won += 1
            yield claim
    finally:
        if not in_groups:  # with groups, the source of the ids sets them aside
            _put_back(context, queue, busy, faults)
    # Another user's file, which fsck reports, is skipped as if it were not there.
    of_disk = [e for e in faults.values() if room <= 0 or not isinstance(e, PermissionError)]
    if of_disk and not won:
        raise of_disk[0]


def _put_back(context: Context, queue: str, busy: Iterable[str], faulty: Iterable[str]) -> None:
    """Put ids that could not be claimed back into the index."""
    for message_id in busy:
        context.ready.postpone(queue, message_id)
    for message_id in faulty:
        context.ready.quarantine(queue, message_id)


def deadline_of(context: Context, settings: QueueSettings, visibility: float | None) -> int:
    seconds = settings.visibility_timeout if visibility is None else visibility
    check_seconds("visibility", seconds, MAX_VISIBILITY_S)
    return context.now_ms() + round(seconds * 1000)


def too_large() -> OSError:
    """The error for a message that is too large to be read into memory."""
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _alive(
    context: Context, settings: QueueSettings, queue: str, ids: Iterator[str]
) -> Iterator[str | None]:
    """The ids that have not expired, and None after every few."""
    expired, retention = 0, settings.retention
    for number, message_id in enumerate(ids, 1):
        can_expire = retention is not None or ".x" in message_id
        # In a group a message can be claimed only when all earlier ones are gone.
        removes = expired < _MAX_EXPIRED or settings.in_groups
        if not can_expire or not expire(
            context, EXPIRE_READY, queue, message_id, retention, removes=removes
        ):
            yield message_id
        else:
            expired += 1
        if number % FEW == 0:
            yield None


def claim_one(
    context: Context,
    queue: str,
    message_id: str,
    deadline_ms: int,
    is_wanted: IsWanted = anyone,
    *,
    is_checked: bool = False,
    has_index: bool = False,
    was: str | None = None,
    count: int = 0,
) -> Claim | None:
    """Try to claim one ready message; None if another process has it, if it has expired, or if it
    is no message.

    If another one of its id is in ``delay/``, and its time there is over, that one is claimed.

    is_wanted: called with the open file, which may be another message of this id. is_checked: the
    caller has just seen that its queue exists, and that it has not expired. has_index: the queue
    has one. was: the name of a claim to continue; returns None if the last claim of the message was
    another one. count: the deliveries to note; 0: one more than before.

    Raises:
        BlockingIOError: another process acts on it right now.
        OSError
    """
    if not is_checked and expire(
        context, EXPIRE_READY, queue, message_id, context.settings.get(queue).retention
    ):
        return None
    try:
        return _claim_ready(
            context, queue, message_id, deadline_ms, is_wanted, is_checked, has_index, was, count
        )
    except FileExistsError:
        if was is not None:
            return None
    context.ready.quarantine(queue, message_id)  # it stays ready, behind that one
    return _claim_in_place(context, queue, message_id, deadline_ms, is_wanted, count)


def _claim_ready(
    context: Context,
    queue: str,
    message_id: str,
    deadline_ms: int,
    is_wanted: IsWanted,
    is_checked: bool,
    has_index: bool,
    was: str | None,
    count: int,
) -> Claim | None:
    """`claim_one`, but raises FileExistsError if ``delay/`` has another message of the id."""
    stamps, tree = context.stamps, context.tree
    path = tree.path(CLAIM.source, queue, message_id)
    # A mover that is delivering it will unlatch it in a moment, which raises no event: wait.
    latched = latch(context, path, _CLAIM_PATIENCE_S, checks_name=False)
    if latched is None:
        return None
    fd, found, locked = latched.fd, latched.found, latched.locked
    won = stamped = False
    try:
        stamp = stamps.decode(message_id, found.st_mtime_ns)
        if not stat.S_ISREG(found.st_mode) or not _is_here(context, latched, path, stamp):
            return None
        if not is_wanted(context, fd, found):
            return None
        if was is None:
            new = _next_stamp(stamp, deadline_ms, count)
        elif stamp is None or not was_last(stamps, stamp, was):
            return None
        else:
            new = Stamp(of_same_claim(stamp, deadline_ms), stamp.deliveries or 0)
        mtime = stamps.encode(message_id, new.deadline_ms, new.deliveries or 0)
        stamped = latched.stamp(context, path, mtime)
        if stamped and (is_checked or tree.has_queue(queue)):
            target = tree.path(CLAIM.target, queue, message_id)
            # A second name is the link of a given id: then its own name is generated, and never
            # reused.
            is_unique = has_index and locked and found.st_nlink > 1
            won = _move_to_delay(context, latched, path, target, mtime, is_unique)
    finally:
        try:
            if stamped and not won:
                # A claim that failed does not count as a delivery.
                latched.stamp(context, path, found.st_mtime_ns)
        finally:
            if won:
                latched.unlatch()
            else:
                latched.close()  # whatever failed: an open latch would lock it forever
    if not won:
        return None
    return Claim(message_id, fd, found.st_size, new.deliveries or 0, new.deadline_ms, mtime)


def _next_stamp(before: Stamp | None, deadline_ms: int, count: int) -> Stamp:
    """The stamp of a new claim. count: as in `claim_one`."""
    delivered = 0 if before is None else before.deliveries or 0
    deliveries = count or min(delivered + 1, MAX_COUNT)
    return Stamp(of_next_claim(before, deliveries, deadline_ms), deliveries)


def _claim_in_place(
    context: Context,
    queue: str,
    message_id: str,
    deadline_ms: int,
    is_wanted: IsWanted,
    count: int,
) -> Claim | None:
    """Claim a message of ``delay/`` whose claim or delay is over, by a new stamp without a rename.

    It could not leave because another one of its id is ready.
    """
    stamps = context.stamps
    path = context.tree.path(CLAIM.target, queue, message_id)
    latched = latch(context, path, _CLAIM_PATIENCE_S)
    if latched is None:
        return None
    fd, found, won = latched.fd, latched.found, False
    try:
        stamp = stamps.decode(message_id, found.st_mtime_ns)
        runs = stamp is not None and stamp.deadline_ms > context.now_ms()
        # Only a mover may end a claim: its message may be used up, or have to wait for a backoff.
        is_held = stamp is not None and stamp.is_claim and not stamps.coarse
        if runs or is_held or not stat.S_ISREG(found.st_mode):
            return None
        if is_wanted(context, fd, found):
            new = _next_stamp(stamp, deadline_ms, count)
            mtime = stamps.encode(message_id, new.deadline_ms, new.deliveries or 0)
            won = latched.stamp(context, path, mtime)
    finally:
        if won:
            latched.unlatch()
        else:
            latched.close()
    if not won:
        return None
    return Claim(message_id, fd, found.st_size, new.deliveries or 0, new.deadline_ms, mtime)


def _is_here(context: Context, latched: Latched, path: str, stamp: Stamp | None) -> bool:
    """Whether a latched message may be stamped, that is, still is where it was opened.

    Between the open and the lock it may have been claimed: then its timer runs, and only then is a
    look needed. If any other message has moved on, the rename finds nothing, and the message gets
    its old stamp back before its latch ends.
    """
    runs = stamp is not None and stamp.deadline_ms > context.now_ms()
    if runs or not latched.locked or context.tree.network:
        return latched.is_at(context.tree, path)
    return True


def _move_to_delay(
    context: Context, latched: Latched, path: str, target: str, mtime_ns: int, is_unique: bool
) -> bool:
    """Rename a stamped message to ``delay/``; whether it is claimed.

    is_unique: no other message can ever have its name. Raises FileExistsError if ``delay/`` has
    another message of the id.
    """
    tree = context.tree
    try:
        if not tree.rename(path, target):
            return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False  # a shell user's name, too long with the queue in front
        raise
    if is_unique:
        return True
    here = tree.stat(target)
    if here is None or here.st_ino != latched.found.st_ino:
        # It has just been removed. Either another process has claimed the next message of its id,
        # or we renamed that one: it has no timer, so the mover redelivers it.
        return False
    if here.st_mtime_ns == mtime_ns:
        return True
    # This happens only without locks: a process that lost the race stamped after us.
    return latched.stamp(context, target, mtime_ns)
