"""Verbs on one message by the id that its producer gave, in a queue with an index.

Each verb opens the link of the id, reads the message's name from the header block, and finds its
state by at most five lookups, however many messages there are. `upsert.py` puts them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from ...context import Context, Prepared
from ...durability.byte_locks import ByteLocks
from ...durability.ids import (
    IS_HELD,
    LOCK,
    Standing,
    has,
    hold_patiently,
    leads_to,
    link_path,
    number_of_id,
    open_link,
    settle,
)
from ...durability.sync import Dirty
from ...errors import ClaimEnded, FsmqError, InUse, NoSuchMessage, Unavailable, as_unavailable
from ...layout.claim_names import ANY, is_claimed, of_next_claim
from ...layout.messages.given_ids import check_given, link_name
from ...layout.messages.message import Message
from ...layout.names import check_id, check_queue, facts
from ...layout.settings import MAX_VISIBILITY_S, check_seconds
from ...layout.stamps import MAX_COUNT
from ...layout.steps import finish
from ...layout.transitions import CLAIMED, DELAY, IDS, NEW, QUEUES, REMOVE_DELAY, REMOVED, State
from ...layout.tree import Tree
from ...records.journal import Details
from ...views.look import look
from ...views.reading import UNLIMITED, read
from ..claim import Claim, claim_one, deadline_of
from ..deliver import deliver_one
from ..expire import expire_unclaimed
from ..latch import Latched, is_delayed, latch_patiently
from ..receive import claimed_message
from ..release import release, release_uncounted
from ..removal import dirty_of, remove_from, remove_one
from ..renew import renew
from .upsert import check_index

# The state in which messages are acknowledged comes first.
_STATES = (State.DELAY, State.NEW, State.READY, State.DELAY, State.READY)
ROUNDS = 20


def check_free(
    context: Context,
    queues: Sequence[str],
    given_ids: Sequence[str],
    *,
    to_put: bool = False,
    to_remove: bool = False,
) -> None:
    """Raise InUse if a verb by these ids would have to wait for others; InvalidValue.

    For callers that can try again later, without keeping a thread.
    to_put: the verb needs the locks of the ids in any case. to_remove: as in `standing`.
    """
    tree, links = context.tree, [link_name(check_given(given_id)) for given_id in given_ids]
    for queue in queues:
        with (
            suppress(OSError),  # the verb itself reports it
            closing(ByteLocks(tree, f"{tree.folder(IDS, queue)}/{LOCK}")) as file,
        ):
            for link in links:
                if file.is_held(number_of_id(link)) and (
                    to_put or _look(tree, queue, link, to_remove=to_remove)[1]
                ):
                    raise InUse(IS_HELD)


def standing(
    context: Context, queue: str, given_id: str, *, to_remove: bool = False
) -> Standing | None:
    """The message of an id, in whatever state; None if there is none.

    If a put of the id is under way this waits for it; one that died is finished first. to_remove:
    do so even if the id has a message: what a dead upsert has left goes first.

    Raises OSError, Unavailable.
    """
    tree, link = context.tree, link_name(given_id)
    found, is_open = _look(tree, queue, link, to_remove=to_remove)
    if not is_open:
        return found
    with hold_patiently(tree, {queue: [link]}):
        return settle(tree, queue, [link], only_looks=True).get(link)


def _look(tree: Tree, queue: str, link: str, *, to_remove: bool) -> tuple[Standing | None, bool]:
    """The same without the lock, and whether only the holder of the lock can tell."""
    at, coming = (link_path(tree, queue, link, coming=after) for after in (False, True))
    for _ in range(ROUNDS):
        tree.refresh(tree.folder(IDS, queue))
        opened = open_link(tree, queue, at)
        if opened is None:
            return None, False
        with opened:
            found = opened.look((*_STATES, State.REMOVE))
        is_there = found is not None and found.state is not State.REMOVE
        if (to_remove or not is_there) and has(tree, coming):
            return None, True
        if is_there:
            return found, False
        if leads_to(tree, at, opened.inode):
            return None, found is None
        # A put has just replaced the message.
    raise Unavailable("the message of this id keeps being replaced")


def find_id(context: Context, queue: str, given_id: str) -> Message | None:
    """Look at the message of an id, in whatever state; None if there is none.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    with at_index(context, queue, given_id, "find"):
        for _ in range(ROUNDS):
            found = standing(context, queue, given_id)
            if found is None:
                return None
            message = look(context, queue, found.name, found.state)
            if message is not None:
                return message
    return None


def claim_id(
    context: Context, queue: str, given_id: str, visibility: float | None
) -> Prepared[Message | None]:
    """Claim the message of an id, even if it is delayed; None if there is none, if it is claimed,
    and while the queue is paused or at a limit.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    tree = context.tree
    dirty = Dirty(folders={tree.folder(DELAY), tree.folder(QUEUES, queue), tree.folder(NEW)})
    try:
        with at_index(context, queue, given_id, "claim from"):
            settings = context.settings.get(queue)
            deadline_ms = deadline_of(context, settings, visibility)
            take = partial(_take, context, queue, given_id, deadline_ms, dirty)
            taken = context.limiter.one(queue, settings, take)
            if taken is None:
                dirty.close()
                return Prepared(Dirty(), lambda: None)
            known = facts(taken.claim.message_id)
            content = finish(read(context, taken.claim.fd, taken.claim.size, known, UNLIMITED))
    except BaseException:
        dirty.close()
        raise
    message = claimed_message(context, queue, taken.claim, known, content)

    def commit_claim() -> Message:
        claim_ms = taken.claim.deadline_ms - context.now_ms()
        context.record(CLAIMED, queue, message.id, deliveries=message.deliveries, claim_ms=claim_ms)
        return message

    return Prepared(dirty, commit_claim, partial(_release, context, queue, taken))


class _Taken(NamedTuple):
    """A claim. before: the earlier mtime of a delayed message, which was claimed in place."""

    claim: Claim
    before: int | None = None


def _take(
    context: Context, queue: str, given_id: str, deadline_ms: int, dirty: Dirty
) -> _Taken | None:
    for _ in range(ROUNDS):
        found = standing(context, queue, given_id)
        if found is None:
            return None
        if found.state is State.NEW:
            deliver_one(context, queue, found.name)
        elif found.state is State.READY:
            with suppress(BlockingIOError):  # another process acts on it
                claim = claim_one(context, queue, found.name, deadline_ms)
                if claim is not None:
                    dirty.files.append(claim.fd)
                    return _Taken(claim)
        else:
            path = context.tree.path(State.DELAY, queue, found.name)
            latched = latch_patiently(context, path)
            if latched is not None:
                dirty.files.append(latched.fd)
                try:
                    if not is_delayed(context, found.name, latched):
                        return None  # it is claimed
                    if expire_unclaimed(context, queue, found.name, latched):
                        return None
                    taken = _claim_delayed(context, path, found.name, latched, deadline_ms)
                finally:
                    latched.unlatch()
                if taken is not None:
                    return taken
    raise Unavailable(f"the message of the id {given_id!r} keeps moving")


def _claim_delayed(
    context: Context, path: str, name: str, latched: Latched, deadline_ms: int
) -> _Taken | None:
    """Claim a message where it waits; None if it has gone."""
    stamps, before = context.stamps, latched.found.st_mtime_ns
    stamp = stamps.decode(name, before)
    deliveries = min((stamp.deliveries or 0 if stamp is not None else 0) + 1, MAX_COUNT)
    deadline_ms = of_next_claim(stamp, deliveries, deadline_ms)
    mtime = stamps.encode(name, deadline_ms, deliveries)
    if not latched.stamp(context, path, mtime):
        return None
    claim = Claim(name, latched.fd, latched.found.st_size, deliveries, deadline_ms, mtime)
    return _Taken(claim, before)


def _release(context: Context, queue: str, taken: _Taken) -> None:
    name, mtime = taken.claim.message_id, taken.claim.mtime_ns
    with suppress(OSError, FsmqError):  # its timer brings it back
        if taken.before is None:
            release_uncounted(context, queue, name, mtime)
            return
        path = context.tree.path(State.DELAY, queue, name)
        latched = latch_patiently(context, path)
        if latched is None:
            return
        with closing(latched):
            if latched.found.st_mtime_ns == mtime:
                latched.stamp(context, path, taken.before)


def ack_ids(
    context: Context,
    queue: str,
    given_ids: Sequence[str],
    names: Mapping[str, str] | None = None,
) -> Prepared[list[bool]]:
    """Remove messages that are in flight; for each id whether its message was.

    names: for some ids, the name of the message that is meant. A later one with the id stays.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    names = names or {}
    for given_name in names.values():
        check_id(queue, given_name)
    with at_index(context, queue, given_ids, "acknowledge in"):
        acked = [_ack(context, queue, one, names.get(one)) for one in given_ids]
    return _removed(context, queue, acked)


def _ack(context: Context, queue: str, given_id: str, name: str | None) -> str | None:
    """Acknowledge the message of an id, by its name if that is known; its name."""
    if name is None:
        known = standing(context, queue, given_id)
        if known is None:
            return None
        name = known.name
    # No latch is needed: no other message ever has this name, and if it leaves delay/ after the
    # look, the rename does not find it.
    tree = context.tree
    found = tree.look(tree.path(State.DELAY, queue, name))
    if found is None or not is_claimed(context.stamps, name, found.st_mtime_ns):
        return None
    return name if remove_from(tree, (REMOVE_DELAY,), queue, name) else None


def remove_ids(context: Context, queue: str, given_ids: Sequence[str]) -> Prepared[list[bool]]:
    """Remove messages in any state; for each id whether there was one.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    with at_index(context, queue, given_ids, "remove from"):
        removed = [_remove(context, queue, given_id) for given_id in given_ids]
    return _removed(context, queue, removed)


def _remove(context: Context, queue: str, given_id: str) -> str | None:
    """Remove the message of an id, even if it is being replaced; returns its name."""
    for _ in range(ROUNDS):
        found = standing(context, queue, given_id, to_remove=True)
        if found is None or remove_one(context, queue, found.name):
            return None if found is None else found.name
    raise Unavailable(f"the message of the id {given_id!r} keeps being replaced")


def _removed(context: Context, queue: str, names: Sequence[str | None]) -> Prepared[list[bool]]:
    """Messages that were removed, or were not there."""

    def commit_removal() -> list[bool]:
        removed: list[tuple[str, Details]] = [(name, {}) for name in names if name is not None]
        context.record_all(REMOVED, queue, removed)
        return [name is not None for name in names]

    return Prepared(dirty_of(context.tree, queue), commit_removal)


def renew_id(context: Context, queue: str, given_id: str, visibility: float) -> Prepared[bool]:
    """Let the claim of an id's message end ``visibility`` seconds from now; False if not claimed.

    With 0 the message is released.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_seconds("visibility", visibility, MAX_VISIBILITY_S)
    renewed: Prepared[Any] | None = None
    with at_index(context, queue, given_id, "renew in"):
        found = standing(context, queue, given_id)
        if found is not None and found.state is State.DELAY:
            with suppress(NoSuchMessage, ClaimEnded):
                if visibility:
                    renewed = renew(context, queue, found.name, visibility, ANY)
                else:
                    renewed = release(context, queue, found.name, claim=ANY)
    if renewed is None:
        return Prepared(dirty_of(context.tree, queue), lambda: False)
    end = renewed.commit

    def commit_renewal() -> bool:
        end()
        return True

    return Prepared(renewed.dirty, commit_renewal)


@contextmanager
def at_index(context: Context, queue: str, given: str | Sequence[str], what: str) -> Iterator[None]:
    check_queue(queue)
    for given_id in (given,) if isinstance(given, str) else given:
        check_given(given_id)
    with as_unavailable(f"cannot {what} queue {queue!r}"):
        try:
            check_index(queue, context.settings_of(queue))
            yield
        except OSError as error:
            if error.errno == errno.ENOENT and not context.tree.has_queue(queue):
                context.settings_of(queue)  # raises NoSuchQueue
            raise
