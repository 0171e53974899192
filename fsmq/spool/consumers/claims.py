"""Claims of many messages by their ids and sizes, without reading a body into memory.

The programs that work on a batch may be on other hosts, and read each message in place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NamedTuple

from ..context import Context, Pending
from ..durability.sync import Work
from ..errors import FsmqError, InvalidValue, as_unavailable, unavailable
from ..layout.identity import UNKNOWN, Identity, identify
from ..layout.settings import check_number
from ..layout.stamps import MAX_COUNT
from ..layout.transitions import CLAIMED, DELAY, NEW, QUEUES, RELEASED, RENEWED, State
from ..records.journal import Details
from ..verbs.claim import Claim, claim_one, claims_of, deadline_of
from ..verbs.deliver import deliver_one
from ..verbs.latch import PATIENCE_S, latch, latch_patiently
from ..verbs.release import release_uncounted
from .window import Window

MAX_BATCH = 1_000_000


class Claimed(NamedTuple):
    """A claim. size: bytes of the file. deliveries: how often it was claimed, this time included;
    0 where the filesystem cannot keep the count. inode, generation: the file's identity."""

    id: str
    size: int
    deliveries: int
    inode: int = UNKNOWN.inode
    generation: int = UNKNOWN.generation

    @property
    def identity(self) -> Identity | None:
        """Which file it is; None if that is not known."""
        known = Identity(self.inode, self.generation)
        return None if known == UNKNOWN else known

    def is_file(self, context: Context, fd: int, found: os.stat_result) -> bool:
        """Whether an open file is the message that was claimed, and no other one of its id.

        Without an identity, it compares the size and the count. Raises OSError.
        """
        known = self.identity if context.keeps_inodes else None
        if known is not None:
            if identify(fd, found) != known:
                return False
            if known.generation:
                return True
        count = context.stamps.deliveries(self.id, found.st_mtime_ns)
        return found.st_size == self.size and count >= self.deliveries

    def is_held(self, context: Context, fd: int, found: os.stat_result) -> bool:
        """Whether an open file of ``delay/`` is held by this claim still. Raises OSError."""
        if not stat.S_ISREG(found.st_mode) or not self.is_file(context, fd, found):
            return False
        # Else its timer had ended, and another consumer has claimed it.
        stamp = context.stamps.decode(self.id, found.st_mtime_ns)
        return stamp is None or stamp.deliveries in (None, self.deliveries)


def claim_ids(
    context: Context,
    window: Window,
    count: int,
    *,
    max_bytes: int | None = None,
    visibility: float | None = None,
    before_ns: int | None = None,
) -> Pending[list[Claimed]]:
    """Claim the next messages of a window, up to ``count`` of them.

    max_bytes: the most bytes of their files together; the first one may have more.
    visibility: seconds; None: the queue's setting.
    before_ns: leave messages that came into the queue later than this ctime.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_number("count", count, 1, MAX_BATCH)
    tree, queue = context.tree, window.queue
    claimed: list[Claimed] = []
    mtimes: list[int] = []  # that the claims have set
    work = Work()
    try:
        settings = context.settings_of(queue)
        if settings.in_groups:
            raise InvalidValue("queue", f"{queue!r} is claimed by groups: claim from it")
        wanted = _Wanted(context, window, max_bytes, before_ns)
        with closing(claims_of(context, queue, settings, wanted.ids(), visibility)) as found:
            for claim in islice(filter(None, found), count):
                claimed.append(_claimed(context, claim))
                mtimes.append(claim.mtime_ns)
                wanted.size += claim.size
                work.closed.append(tree.path(State.DELAY, queue, claim.message_id))
    except OSError as error:
        # What was claimed before the fault is given out.
        if not claimed:
            raise unavailable(error, f"cannot claim from queue {queue!r}") from error

    release = partial(_undo, context, queue, claimed, mtimes)
    with as_unavailable(f"cannot claim from queue {queue!r}"):
        if claimed and not context.is_same_kind(queue, settings):
            release()  # another queue has the name now, whose messages are claimed by groups
            return Pending(Work(), list)
    if claimed:
        work.folders = {tree.folder(QUEUES, queue), tree.folder(DELAY)}

    def give_out() -> list[Claimed]:
        claim_ms = deadline_of(context, settings, visibility) - context.now_ms()
        steps: list[tuple[str, Details]] = [
            (claim.id, {"deliveries": claim.deliveries or None, "claim_ms": claim_ms})
            for claim in claimed
        ]
        context.record_all(CLAIMED, queue, steps)
        return claimed

    return Pending(work, give_out, release)


def _undo(context: Context, queue: str, claims: list[Claimed], mtimes: list[int]) -> None:
    """Release what has been claimed a moment ago, with these stamps."""
    for claim, mtime_ns in zip(claims, mtimes, strict=True):
        try:
            release_uncounted(context, queue, claim.id, mtime_ns)
        except (OSError, FsmqError):
            continue  # its timer brings it back


def release_claims(context: Context, queue: str, claims: Sequence[Claimed]) -> Pending[int]:
    """Release claims whose messages no one has seen, so that they count as no delivery; how many.

    A claim that is over is left alone. One that cannot be released ends now, by its timer, and
    counts as no delivery either. Raises nothing; ``finish`` neither.
    """
    tree = context.tree
    released: list[str] = []
    for claim in claims:
        try:
            mtime_ns = _stamp_of(context, queue, claim)
            if mtime_ns is not None:
                release_uncounted(context, queue, claim.id, mtime_ns)
                released.append(claim.id)
        except (OSError, FsmqError):
            continue
    work = Work()
    if released:
        work.folders = {tree.folder(DELAY), tree.folder(QUEUES, queue)}

    def finish() -> int:
        context.record_all(RELEASED, queue, [(message_id, {}) for message_id in released])
        return len(released)

    return Pending(work, finish)


def _stamp_of(context: Context, queue: str, claim: Claimed) -> int | None:
    """The mtime that a claim has set; None if it is over. Raises OSError."""
    latched = latch(context, context.tree.path(State.DELAY, queue, claim.id), PATIENCE_S)
    if latched is None:
        return None
    try:
        is_held = claim.is_held(context, latched.fd, latched.found)
        return latched.found.st_mtime_ns if is_held else None
    finally:
        latched.close()


def _claimed(context: Context, claim: Claim) -> Claimed:
    """What is remembered of a claim; closes its descriptor."""
    try:
        identity = identify(claim.fd) if context.keeps_inodes else UNKNOWN
    finally:
        os.close(claim.fd)
    deliveries = 0 if context.stamps.coarse else claim.deliveries
    return Claimed(claim.message_id, claim.size, deliveries, *identity)


class _Wanted:
    """Which ids are to be claimed: those that are old enough, as long as there is room."""

    def __init__(
        self, context: Context, window: Window, max_bytes: int | None, before_ns: int | None
    ) -> None:
        self._tree = context.tree
        self._window = window
        self._max_bytes = max_bytes
        self._before_ns = before_ns
        self.size = 0  # bytes that have been claimed

    def ids(self) -> Iterator[str]:
        if self._max_bytes is None and self._before_ns is None:
            yield from self._window.ids()
            return
        for message_id in self._window.ids():
            found = self._tree.stat(self._tree.path(State.READY, self._window.queue, message_id))
            if found is None or not self._is_old(found):
                continue
            if self._max_bytes and self.size and self.size + found.st_size > self._max_bytes:
                self._window.repeat(message_id)
                return
            yield message_id

    def _is_old(self, found: os.stat_result) -> bool:
        return self._before_ns is None or found.st_ctime_ns <= self._before_ns


def renew_claims(
    context: Context,
    queue: str,
    claims: Sequence[Claimed],
    visibility: float | None,
    *,
    counts: bool = True,
) -> Pending[list[Claimed | None]]:
    """Let claims end ``visibility`` seconds from now (None: the queue's setting).

    Returns each claim as it is now: with another count if the message was ready again and has been
    claimed again; None if it is gone, or another consumer's claim by now. A claim on which another
    process acts right now stays as it was, and so do all claims after a fault.

    counts: whether to claim it again is a delivery.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    tree = context.tree
    work = Work()
    renewed: list[Claimed | None] = []
    try:
        deadline_ms = deadline_of(context, context.settings_of(queue), visibility)
        for claim in claims:
            renewed.append(_renew_one(context, queue, claim, deadline_ms, work, counts))
    except OSError as error:
        # The caller has to know what was claimed again, or it takes that for another's claim.
        if not renewed:
            raise unavailable(error, f"cannot renew in queue {queue!r}") from error
        renewed += claims[len(renewed) :]
    if work.closed:
        work.folders = {tree.folder(NEW), tree.folder(DELAY), tree.folder(QUEUES, queue)}

    def finish() -> list[Claimed | None]:
        claim_ms = deadline_ms - context.now_ms()
        held = (claim.id for claim in renewed if claim is not None)
        context.record_all(RENEWED, queue, [(i, {"claim_ms": claim_ms}) for i in held])
        return renewed

    return Pending(work, finish)


def _renew_one(
    context: Context, queue: str, claim: Claimed, deadline_ms: int, work: Work, counts: bool
) -> Claimed | None:
    tree, stamps = context.tree, context.stamps
    path = tree.path(State.DELAY, queue, claim.id)
    try:
        latched = latch(context, path, PATIENCE_S)
    except BlockingIOError:
        return claim  # the next renewal finds out what has become of it
    if latched is not None:
        try:
            if not claim.is_held(context, latched.fd, latched.found):
                return None
            mtime_ns = stamps.encode(claim.id, deadline_ms, claim.deliveries)
            if latched.stamp(context, path, mtime_ns):
                work.closed.append(path)
                return claim
        finally:
            latched.close()
    deliver_one(context, queue, claim.id)  # a crash may have undone the delivery too
    try:
        count = 0 if counts else claim.deliveries
        again = claim_one(context, queue, claim.id, deadline_ms, claim.is_file, count=count)
    except BlockingIOError:
        return None  # another process is about to claim it
    if again is None:
        return None
    work.closed.append(path)
    return _claimed(context, again)


def count_delivery(
    context: Context, queue: str, claim: Claimed, visibility: float | None
) -> Pending[Claimed | None]:
    """Let a claim be another delivery of its message; the claim as it is now, None if it is over.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    tree, stamps = context.tree, context.stamps
    path = tree.path(State.DELAY, queue, claim.id)
    work = Work(folders={tree.folder(DELAY)})
    counted: Claimed | None = None
    with as_unavailable(f"cannot claim from queue {queue!r}"):
        deadline_ms = deadline_of(context, context.settings_of(queue), visibility)
        latched = latch_patiently(context, path)
        if latched is not None:
            try:
                if claim.is_held(context, latched.fd, latched.found):
                    deliveries = min(claim.deliveries + 1, MAX_COUNT)
                    mtime_ns = stamps.encode(claim.id, deadline_ms, deliveries)
                    if latched.stamp(context, path, mtime_ns):
                        counted = claim._replace(deliveries=deliveries)
                        work.closed.append(path)
            finally:
                latched.close()

    def finish() -> Claimed | None:
        if counted is not None:
            claim_ms = deadline_ms - context.now_ms()
            context.record(
                CLAIMED, queue, claim.id, deliveries=counted.deliveries, claim_ms=claim_ms
            )
        return counted

    return Pending(work, finish)
