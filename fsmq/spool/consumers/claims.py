"""Claims of many messages by their ids and sizes, without reading a body into memory.

The programs that work on a batch can be on other hosts, and read each message in place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..errors import FsmqError, InvalidValue, unavailable
from ..layout.settings import check_number
from ..layout.transitions import CLAIMED, DELAY, QUEUES, RELEASED, State
from ..records.journal import Details
from ..verbs.claim import Claim, claims_of, deadline_of
from ..verbs.latch import PATIENCE_S, latch
from ..verbs.release import release_uncounted
from .identity import UNKNOWN, Identity, identify
from .window import Window

MAX_BATCH = 1_000_000

# Deadlines that renewals may have set, in Unix milliseconds as the filesystem keeps them.
Renewals: TypeAlias = Sequence[int]


class Claimed(NamedTuple):
    """A claim. size: bytes of the file. deliveries: how often it was claimed, this time included; 0
    if the filesystem cannot keep the count. deadline_ms: set by the claim or a renewal of it.
    inode, generation: the file's identity."""

    id: str
    size: int
    deliveries: int
    deadline_ms: int
    inode: int = UNKNOWN.inode
    generation: int = UNKNOWN.generation

    @property
    def identity(self) -> Identity | None:
        """Which file it is; None if unknown."""
        known = Identity(self.inode, self.generation)
        return None if known == UNKNOWN else known

    def is_file(self, context: Context, fd: int, found: os.stat_result) -> bool:
        """Whether an open file is the claimed message, not another one of its id.

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

    def is_done(self, context: Context, fd: int, found: os.stat_result, renewals: Renewals) -> bool:
        """Whether an open file is the message of this claim, which is committed.

        In a copied tree nothing may have claimed it since: its id can have been used again. Raises
        OSError.
        """
        if not self.is_file(context, fd, found):
            return False
        if self.identity is not None or not context.keeps_inodes:
            return True
        stamp = context.stamps.decode(self.id, found.st_mtime_ns)
        return stamp is not None and stamp.deadline_ms in (self.deadline_ms, *renewals)

    def is_held(
        self, context: Context, fd: int, found: os.stat_result, renewals: Renewals = ()
    ) -> bool:
        """Whether an open file of ``delay/`` is still held by this claim. Raises OSError.

        renewals: the deadlines that renewals of it may have set.
        """
        if not stat.S_ISREG(found.st_mode) or not self.is_file(context, fd, found):
            return False
        # The deadline identifies the claim: the next claim of the message sets a later one, even if
        # a redrive resets the count.
        stamp = context.stamps.decode(self.id, found.st_mtime_ns)
        return stamp is None or (
            not stamp.backs_off and stamp.deadline_ms in (self.deadline_ms, *renewals)
        )


@dataclass
class PreparedClaims(Prepared[list[Claimed]]):
    """Claims that are not durable yet: ``claims``."""

    claims: Sequence[Claimed] = ()


def claim_ids(
    context: Context,
    window: Window,
    count: int,
    *,
    room: Room | None = None,
    visibility: float | None = None,
    before_ns: int | None = None,
) -> PreparedClaims:
    """Claim the next messages of a window, up to ``count`` of them.

    room: for the bytes of their files.
    visibility: seconds; None: the queue's setting.
    before_ns: skip messages that came into the queue later than this ctime.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_number("count", count, 1, MAX_BATCH)
    tree, queue = context.tree, window.queue
    taken: list[Claimed] = []
    mtimes: list[int] = []  # set by the claims
    dirty = Dirty()
    try:
        settings = context.settings_of(queue)
        if settings.in_groups:
            raise InvalidValue("queue", f"{queue!r} is claimed by groups: use claim instead")
        wanted = _Wanted(context, window, room, before_ns)
        with closing(claims_of(context, queue, settings, wanted.ids(), visibility)) as found:
            for claim in islice(filter(None, found), count):
                taken.append(claimed(context, claim))
                mtimes.append(claim.mtime_ns)
                if room is not None:
                    room.take(claim.size)
                dirty.closed.append(tree.path(State.DELAY, queue, claim.message_id))
    except OSError as error:
        # Messages that were claimed before the error are handed out.
        if not taken:
            raise unavailable(error, f"cannot claim from queue {queue!r}") from error

    release = partial(_undo, context, queue, taken, mtimes)
    try:
        is_same = not taken or context.is_same_kind(queue, settings)
    except OSError as error:
        release()
        raise unavailable(error, f"cannot claim from queue {queue!r}") from error
    if not is_same:
        release()  # the name now belongs to a queue that is claimed by groups
        return PreparedClaims(Dirty(), list)
    if taken:
        dirty.folders = {tree.folder(QUEUES, queue), tree.folder(DELAY)}

    def give_out() -> list[Claimed]:
        claim_ms = deadline_of(context, settings, visibility) - context.now_ms()
        steps: list[tuple[str, Details]] = [
            (claim.id, {"deliveries": claim.deliveries or None, "claim_ms": claim_ms})
            for claim in taken
        ]
        context.record_all(CLAIMED, queue, steps)
        return taken

    return PreparedClaims(dirty, give_out, release, claims=taken)


def _undo(context: Context, queue: str, claims: list[Claimed], mtimes: list[int]) -> None:
    """Release messages that were just claimed, with these stamps."""
    for claim, mtime_ns in zip(claims, mtimes, strict=True):
        try:
            release_uncounted(context, queue, claim.id, mtime_ns)
        except (OSError, FsmqError):
            continue  # its timer brings it back


def release_claims(
    context: Context, queue: str, claims: Sequence[Claimed], renewals: Renewals = ()
) -> Prepared[int]:
    """Release claims whose messages nobody has seen, without counting a delivery; how many.

    renewals: as for `Claimed.is_held`.

    A claim that is over is left alone. One whose rename fails ends at once by its timer, uncounted
    as well. Neither this nor ``finish`` raises.
    """
    tree = context.tree
    released: list[str] = []
    for claim in claims:
        try:
            mtime_ns = _stamp_of(context, queue, claim, renewals)
            if mtime_ns is not None:
                release_uncounted(context, queue, claim.id, mtime_ns)
                released.append(claim.id)
        except (OSError, FsmqError):
            continue
    dirty = Dirty()
    if released:
        dirty.folders = {tree.folder(DELAY), tree.folder(QUEUES, queue)}

    def finish() -> int:
        context.record_all(RELEASED, queue, [(message_id, {}) for message_id in released])
        return len(released)

    return Prepared(dirty, finish)


def _stamp_of(context: Context, queue: str, claim: Claimed, renewals: Renewals) -> int | None:
    """The mtime that a claim has set; None if it is over. Raises OSError."""
    latched = latch(context, context.tree.path(State.DELAY, queue, claim.id), PATIENCE_S)
    if latched is None:
        return None
    try:
        is_held = claim.is_held(context, latched.fd, latched.found, renewals)
        return latched.found.st_mtime_ns if is_held else None
    finally:
        latched.close()


def claimed(context: Context, claim: Claim) -> Claimed:
    """The record of a claim; closes its descriptor."""
    stamps = context.stamps
    try:
        identity = identify(claim.fd) if context.keeps_inodes else UNKNOWN
    finally:
        os.close(claim.fd)
    deliveries = 0 if stamps.coarse else claim.deliveries
    deadline_ms = stamps.kept(claim.deadline_ms)
    return Claimed(claim.message_id, claim.size, deliveries, deadline_ms, *identity)


class Room:
    """Room for the bytes of a batch, and of one queue's share of it; each takes any first message.

    max_bytes: of the batch.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = self._share = max_bytes
        self._taken = self._of_share = 0

    @property
    def is_full(self) -> bool:
        return self._taken >= self.max_bytes

    def begin(self, share: int) -> None:
        """Begin the share of another queue, of so many bytes."""
        self._share, self._of_share = share, 0

    def fits(self, size: int) -> bool:
        return (not self._taken or self._taken + size <= self.max_bytes) and (
            not self._of_share or self._of_share + size <= self._share
        )

    def take(self, size: int) -> None:
        self._taken += size
        self._of_share += size


class _Wanted:
    """The ids to claim: those that are old enough, as long as there is room."""

    def __init__(
        self, context: Context, window: Window, room: Room | None, before_ns: int | None
    ) -> None:
        self._tree = context.tree
        self._window = window
        self._room = room
        self._before_ns = before_ns

    def ids(self) -> Iterator[str]:
        if self._room is None and self._before_ns is None:
            yield from self._window.ids()
            return
        for message_id in self._window.ids():
            found = self._tree.stat(self._tree.path(State.READY, self._window.queue, message_id))
            if found is None or not self._is_old(found):
                continue
            if self._room is not None and not self._room.fits(found.st_size):
                self._window.repeat(message_id)
                return
            yield message_id

    def _is_old(self, found: os.stat_result) -> bool:
        return self._before_ns is None or found.st_ctime_ns <= self._before_ns
