"""Release and bury: how a message leaves ``delay/`` before its timer ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..context import Context, Prepared
from ..durability.sync import Dirty
from ..durability.unfinished import exists
from ..errors import InvalidValue, NoSuchMessage, NoSuchQueue, as_unavailable
from ..layout.claim_names import check_named, of_ended_claim
from ..layout.messages import dead_letter
from ..layout.messages.dead_letter import DeadLetter, check_reason, noted, used_up
from ..layout.messages.message import Message
from ..layout.names import check_id, check_queue, fits, renewed, split_entry
from ..layout.settings import MAX_DELAY_S, QueueSettings, check_seconds
from ..layout.steps import giving_way
from ..layout.transitions import BURIED, BURY, DELAY, QUEUES, RELEASE, RELEASED, State, Step
from ..records.journal import Details
from .backoff import back_off, end_in_place
from .latch import IsWanted, Latched, anyone, check_held, latch_patiently, not_held, restamp
from .queues.creation import create

# For the lock of a dead-letter queue that has to be created.
_PATIENCE_S = 0.1


def release(
    context: Context,
    queue: str,
    message_id: str,
    delay: float = 0.0,
    claim: str | None = None,
    reason: str | None = None,
) -> Prepared[None]:
    """Give a claimed message back: at once, or hidden for ``delay`` seconds more.

    Without a delay it is hidden for its queue's ``retry_backoff``. A message whose deliveries are
    used up goes to the dead-letter queue at once instead.

    claim: the name of the claim that is meant; in any other the message stays as it is. reason: why
    its consumer has failed, for the journal and for a dead letter.

    Raises:
        InvalidValue, NoSuchQueue, NoSuchMessage, ClaimEnded, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    check_named(claim)
    reason = check_reason(reason)
    check_seconds("delay", delay, MAX_DELAY_S)
    tree = context.tree
    dirty = Dirty(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
    with as_unavailable(f"cannot release in queue {queue!r}"):
        settings = context.settings_of(queue)
        if delay and not _is_dead(context, settings, queue, message_id):
            until_ms = context.now_ms() + round(delay * 1000)
            held = restamp(
                context,
                queue,
                message_id,
                until_ms,
                ends_claim=True,
                backs_off=True,
                claim=claim,
            )
            if held is None:
                raise not_held(context, queue, message_id, claim)
            dirty.files.append(held.fd)
        else:
            left = _release_one(context, settings, queue, message_id, claim, reason)
            left.add_to(dirty, context, queue)
            return Prepared(dirty, partial(left.record, context, queue))
    why = noted(reason)
    return Prepared(dirty, partial(context.record, RELEASED, queue, message_id, reason=why))


def release_many(
    context: Context, queue: str, message_ids: Sequence[str] | None = None
) -> Prepared[int]:
    """Release claimed messages, all of the queue by default; how many.

    If all of a queue are released, ``retry_backoff`` does not delay them. Messages that are not
    claimed (any more) are skipped.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    dirty = Dirty()
    released: list[_Left] = []
    with as_unavailable(f"cannot release in queue {queue!r}"):
        settings = context.settings_of(queue)
        if message_ids is None:
            settings = replace(settings, retry_backoff=None)
        ids = _claimed(context, queue) if message_ids is None else message_ids
        for message_id in giving_way(ids):
            check_id(queue, message_id)
            try:
                left = _release_one(context, settings, queue, message_id)
            except NoSuchMessage:
                continue
            dirty.folders |= {tree.folder(DELAY), tree.folder(QUEUES, queue)}
            left.add_to(dirty, context, queue)
            released.append(left)

    def commit() -> int:
        for left in released:
            left.record(context, queue)
        return len(released)

    return Prepared(dirty, commit)


class _Left(NamedTuple):
    """A message that was released, and the queue in which it is ready now; None: it waits."""

    message_id: str
    queue: str | None
    step: Step
    details: Details

    def add_to(self, dirty: Dirty, context: Context, queue: str) -> None:
        """Add what has to be synced."""
        if self.queue is not None:
            dirty.folders.add(context.tree.folder(QUEUES, self.queue))
        else:
            dirty.closed.append(context.tree.path(State.DELAY, queue, self.message_id))

    def record(self, context: Context, queue: str) -> None:
        context.record(self.step, queue, self.message_id, **self.details)


def _claimed(context: Context, queue: str) -> Iterator[str]:
    """The ids of a queue's claimed messages, without the delayed ones."""
    tree = context.tree
    for name in tree.names(tree.folder(DELAY)):
        parts = split_entry(name)
        if parts is None or parts[0] != queue:
            continue
        found = tree.stat(tree.folder(DELAY, name))
        if found is None:
            continue
        stamp = context.stamps.decode(parts[1], found.st_mtime_ns)
        if stamp is None or stamp.is_claim:
            yield parts[1]


def bury_now(
    context: Context,
    queue: str,
    message_id: str,
    reason: str | None = None,
    claim: str | None = None,
    *,
    is_wanted: IsWanted = anyone,
) -> Prepared[None]:
    """Move a claimed message to the dead-letter queue before its deliveries are used up.

    reason: kept in the dead letter. claim: the name of the claim that is meant; in any other the
    message stays as it is. is_wanted: whether a claimed file of this id is the one that is meant.

    Raises:
        InvalidValue: the queue has no dead-letter queue, or the reason is too long.
        NoSuchQueue, NoSuchMessage, ClaimEnded, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    check_named(claim)
    reason = check_reason(reason)
    tree = context.tree
    dirty = Dirty()
    with as_unavailable(f"cannot bury in queue {queue!r}"):
        dead_letters = context.settings_of(queue).dead_letter_queue
        if dead_letters is None:
            raise InvalidValue("dead_letter_queue", f"queue {queue!r} has none: set one")
        latched = latch_patiently(context, tree.path(State.DELAY, queue, message_id))
        if latched is None:
            raise not_held(context, queue, message_id, claim)
        details = None
        try:
            check_held(context, queue, message_id, latched, claim)
            if is_wanted(context, latched.fd, latched.found):
                details = bury(
                    context, latched, queue, message_id, dead_letters, reason, _PATIENCE_S
                )
        finally:
            if details is None:
                latched.close()
        if details is None:
            raise NoSuchMessage(queue, message_id, "that is in flight")
        dirty.files.append(latched.unlatch())  # the dead letter's header was written
    queues = {tree.folder(QUEUES, queue), tree.folder(QUEUES, dead_letters)}
    dirty.folders = {tree.folder(DELAY), *queues}
    return Prepared(dirty, partial(context.record, BURIED, queue, message_id, **details))


def is_used_up(settings: QueueSettings, deliveries: int) -> bool:
    """Whether a message with this many deliveries belongs in the dead-letter queue."""
    return settings.max_deliveries is not None and deliveries >= settings.max_deliveries


def dead_letters_for(settings: QueueSettings, deliveries: int) -> str | None:
    """The queue to which a message goes when this delivery ends; None if it is delivered again."""
    return settings.dead_letter_queue if is_used_up(settings, deliveries) else None


def _is_dead(context: Context, settings: QueueSettings, queue: str, message_id: str) -> bool:
    """Whether a release buries a message."""
    if settings.max_deliveries is None:
        return False
    found = context.tree.stat(context.tree.path(State.DELAY, queue, message_id))
    if found is None:
        return False
    deliveries = context.stamps.deliveries(message_id, found.st_mtime_ns)
    return dead_letters_for(settings, deliveries) is not None


def bury(
    context: Context,
    latched: Latched,
    queue: str,
    message_id: str,
    dead_letters: str,
    reason: str | None,
    patience_s: float = 0.0,
) -> Details | None:
    """Move a latched message from ``delay/`` to a dead-letter queue, where its count starts again.

    If that queue has a message of its id, or has no room for an id so long, it gets a new one: an
    own id must not keep a message from being buried.

    reason: as `check_reason` gives it. patience_s: how long to wait for a process that creates or
        deletes that queue: a mover does not wait.

    Returns the details to record when it is durable; None if it is not in ``delay/`` any more.

    Raises:
        InUse: that queue is missing, and cannot be created now; nothing was changed.
        Unavailable, OSError
    """
    tree = context.tree
    if not tree.has_queue(dead_letters):
        create(context, dead_letters, patience_s=patience_s)
    bury_as = partial(_bury_as, context, latched, queue, message_id, dead_letters, reason)
    # Hidden, too: a rename fails only if the other message is ready.
    if fits(dead_letters, message_id) and not exists(tree, dead_letters, message_id):
        with suppress(FileExistsError):  # it has just got a message of this id
            return bury_as(message_id)
    return bury_as(renewed(message_id))


def _bury_as(
    context: Context,
    latched: Latched,
    queue: str,
    message_id: str,
    dead_letters: str,
    reason: str | None,
    its_id: str,
) -> Details | None:
    """The same under this id, in a queue that exists; if it fails, nothing was changed.

    Raises FileExistsError, OSError.
    """
    stamps, source = context.stamps, context.tree.path(State.DELAY, queue, message_id)
    found = latched.found
    deliveries = stamps.deliveries(message_id, found.st_mtime_ns) or None
    # Before the rename: a consumer of the dead-letter queue may claim it at once, with this count.
    over_ms = of_ended_claim(stamps.decode(message_id, found.st_mtime_ns), context.now_ms())
    if not latched.stamp(context, source, stamps.encode(its_id, over_ms, 0)):
        return None
    # Also before the rename: so no crash leaves a dead letter that does not know its queue.
    before = dead_letter.read_raw(latched.fd)
    dead = DeadLetter(queue, reason, deliveries, context.clock())
    is_noted, buried = False, None
    try:
        is_noted = dead_letter.write_raw(latched.fd, dead_letter.pack(dead))
        buried = latched.move(context, BURY, queue, message_id, dead_letters, its_id)
    finally:
        if buried is None:
            latched.stamp(context, source, found.st_mtime_ns)
            if is_noted:
                with suppress(OSError):  # else it describes a burial that failed
                    dead_letter.write_raw(latched.fd, before)
    if buried is None:
        return None
    details: Details = {
        "size": found.st_size,
        "deliveries": deliveries,
        "target": dead_letters,
        "reason": noted(reason),
    }
    return details if its_id == message_id else {**details, "was": its_id}


def _release_one(
    context: Context,
    settings: QueueSettings,
    queue: str,
    message_id: str,
    claim: str | None = None,
    reason: str | None = None,
) -> _Left:
    """Return a message to its queue, bury it, or let it wait for its backoff."""
    tree = context.tree
    latched = latch_patiently(context, tree.path(State.DELAY, queue, message_id))
    if latched is None:
        raise not_held(context, queue, message_id, claim)
    try:
        check_held(context, queue, message_id, latched, claim)
        deliveries = context.stamps.deliveries(message_id, latched.found.st_mtime_ns)
        dead_letters = dead_letters_for(settings, deliveries)
        if dead_letters is not None:
            why = used_up(reason)
            details = bury(context, latched, queue, message_id, dead_letters, why, _PATIENCE_S)
            if details is not None:
                return _Left(message_id, dead_letters, BURIED, details)
        elif (
            settings.retry_backoff is not None
            and back_off(context, settings, latched, queue, message_id) is not None
        ):
            return _Left(message_id, None, RELEASED, {"reason": noted(reason)})
        elif (left := _release_latched(context, latched, queue, message_id)) is not None:
            return left._replace(details={"reason": noted(reason)})
    finally:
        latched.close()
    if not tree.has_queue(queue):
        raise NoSuchQueue(queue)
    raise NoSuchMessage(queue, message_id, "that is in flight")


def _release_latched(
    context: Context, latched: Latched, queue: str, message_id: str
) -> _Left | None:
    """Return a message to its queue, or end its claim where it is; None if it is gone."""
    try:
        is_out = latched.move(context, RELEASE, queue, message_id)
    except FileExistsError:
        is_ended = end_in_place(context, latched, queue, message_id)
        return _Left(message_id, None, RELEASED, {}) if is_ended else None
    return _Left(message_id, queue, RELEASED, {}) if is_out else None


def release_unseen(context: Context, message: Message) -> Prepared[None]:
    """Release a message that reached no consumer; its claim does not count as a delivery.

    Raises:
        NoSuchMessage: the claim is over.
        Unavailable
    """
    tree, queue = context.tree, message.queue
    dirty = Dirty(folders={tree.folder(DELAY), tree.folder(QUEUES, queue)})
    with as_unavailable(f"cannot release to queue {queue!r}"):
        release_uncounted(context, queue, message.id, claim_stamp(context, message))
    return Prepared(dirty, partial(context.record, RELEASED, queue, message.id))


def claim_stamp(context: Context, message: Message) -> int:
    """The mtime that the claim of a message has set."""
    deadline_ms = round((message.deadline or 0.0) * 1000)
    return context.stamps.encode(message.id, deadline_ms, message.deliveries or 0)


def release_uncounted(context: Context, queue: str, message_id: str, mtime_ns: int) -> None:
    """Rename a claimed message back to its queue, with its count reduced by one.

    mtime_ns: the stamp that the claim has set. Any other stamp means another claim.

    Raises:
        NoSuchMessage, Unavailable, OSError
    """
    stamps = context.stamps
    path = context.tree.path(State.DELAY, queue, message_id)
    latched = latch_patiently(context, path)
    if latched is None:
        raise NoSuchMessage(queue, message_id, "that is in flight")
    try:
        if latched.found.st_mtime_ns != mtime_ns:
            raise NoSuchMessage(queue, message_id, "that is in flight in this claim")
        stamp = stamps.decode(message_id, mtime_ns)
        deliveries = stamp.deliveries or 0 if stamp is not None else 0
        over_ms = of_ended_claim(stamp, context.now_ms())
        unseen_ns = stamps.encode(message_id, over_ms, max(0, deliveries - 1))
        if not (
            latched.stamp(context, path, unseen_ns)
            and latched.move(context, RELEASE, queue, message_id)
        ):
            raise NoSuchMessage(queue, message_id, "that is in flight")
    finally:
        latched.close()
