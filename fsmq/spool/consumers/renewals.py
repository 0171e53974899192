"""Renewals of the claims of a batch, and new claims of messages that are free again.

The deadlines that a renewal may set are noted before it sets one (see `manifest.py`): so whoever
continues with the batch can recognise its claims, even if the renewal was interrupted or failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..context import Context, OpenSpool, Prepared
from ..durability.sync import Dirty
from ..errors import FsmqError, NoSuchQueue
from ..layout.claim_names import of_next_claim
from ..layout.stamps import MAX_COUNT
from ..layout.transitions import DELAY, NEW, QUEUES, RENEWED, State
from ..verbs.claim import claim_one, deadline_of
from ..verbs.deliver import deliver_one
from ..verbs.expire import expire_unclaimed
from ..verbs.latch import PATIENCE_S, Latched, latch
from .claims import Claimed, Renewals, claimed

# In Unix milliseconds. An error: why it is unknown. None: the queue is gone.
Until: TypeAlias = int | OSError | None


class Renewed(NamedTuple):
    """The result of a renewal.

    claims: each as it is now: with another count if its message was free and has been claimed
        again; None if the message is gone, or claimed by another. A claim that could not be
        renewed, or on whose message another process acts, is unchanged.
    faults: the errors of claims that could not be renewed.
    """

    claims: Sequence[Claimed | None]
    faults: Sequence[Exception] = ()


def until_of(context: Context, queues: Iterable[str], visibility: float | None) -> dict[str, Until]:
    """The deadlines for renewing the claims of each queue now."""
    until: dict[str, Until] = {}
    for queue in queues:
        try:
            until[queue] = deadline_of(context, context.settings_of(queue), visibility)
        except NoSuchQueue:
            until[queue] = None
        except OSError as error:
            until[queue] = error
    return until


def renewals_until(context: Context, until: Mapping[str, Until]) -> Renewals:
    """The deadlines that such renewals may set; new claims may be 1 ms later."""
    deadlines = [one for one in until.values() if isinstance(one, int)]
    kept = context.stamps.kept
    return sorted({kept(one + ms) for one in deadlines for ms in (0, 1)})


def are_renewed(
    context: Context, claims: Mapping[str, Sequence[Claimed]], until: Mapping[str, Until]
) -> bool:
    """Whether these renewals set the deadlines of all claims: then earlier notes do not matter."""
    return all(
        claim.deadline_ms in renewals_until(context, {queue: until[queue]})
        for queue, of_queue in claims.items()
        for claim in of_queue
    )


def renew(
    spool: OpenSpool,
    queue: str,
    claims: Sequence[Claimed],
    until: Until,
    renewals: Renewals,
    *,
    counts: bool,
    unnoted: OSError | None,
) -> Renewed:
    """`renew_claims`, durably. Raises nothing."""
    if until is None:
        return Renewed([None] * len(claims))
    if isinstance(until, OSError):
        return Renewed(claims, [until])
    prepared = renew_claims(
        spool.context, queue, claims, until, renewals, counts=counts, unnoted=unnoted
    )
    try:
        return spool.complete(prepared)
    except FsmqError as error:
        return Renewed(claims, [error])


def renew_claims(
    context: Context,
    queue: str,
    claims: Sequence[Claimed],
    deadline_ms: int,
    renewals: Renewals,
    *,
    counts: bool = True,
    unnoted: OSError | None = None,
) -> Prepared[Renewed]:
    """Set a deadline for claims. An error of one does not affect the others.

    renewals: deadlines that earlier ones may have set. counts: whether claiming a message again is
    a delivery. unnoted: the error of noting this renewal. Then nothing is claimed again: messages
    that would be get this error.
    """
    tree, dirty = context.tree, Dirty()
    renewal = _Renewal(context, queue, deadline_ms, renewals, counts, unnoted)
    renewed: list[Claimed | None] = []
    faults: list[Exception] = []
    for claim in claims:
        try:
            now = renewal.of(claim)
        except OSError as error:
            now = claim
            faults.append(error)
        renewed.append(now)
        if now is not None and now is not claim:
            dirty.closed.append(tree.path(State.DELAY, queue, claim.id))
    if dirty.closed:
        dirty.folders = {tree.folder(NEW), tree.folder(DELAY), tree.folder(QUEUES, queue)}

    def finish() -> Renewed:
        claim_ms = deadline_ms - context.now_ms()
        held = (claim.id for claim in renewed if claim is not None)
        context.record_all(RENEWED, queue, [(i, {"claim_ms": claim_ms}) for i in held])
        return Renewed(renewed, faults)

    return Prepared(dirty, finish)


class _Renewal(NamedTuple):
    context: Context
    queue: str
    deadline_ms: int
    renewals: Renewals
    counts: bool
    unnoted: OSError | None

    def of(self, claim: Claimed) -> Claimed | None:
        """One claim as it is now, None if it is over. Raises OSError."""
        path = self.context.tree.path(State.DELAY, self.queue, claim.id)
        try:
            latched = latch(self.context, path, PATIENCE_S)
        except BlockingIOError:
            return claim  # the next renewal finds out what happened
        if latched is not None:
            try:
                new = self._of_hidden(claim, latched)
                if new is None or self._stamp(new, latched, path):
                    return new
            finally:
                latched.close()
        return self._claim_again(claim)

    def _of_hidden(self, claim: Claimed, latched: Latched) -> Claimed | None:
        """The claim to set on a message in ``delay/``, if our claim holds it, or nobody does."""
        context = self.context
        stamp = context.stamps.decode(claim.id, latched.found.st_mtime_ns)
        if claim.is_held(context, latched.fd, latched.found, self.renewals):
            # The count may have been noted before it was set.
            count = claim.deliveries if stamp is None else stamp.deliveries or claim.deliveries
            deadline_ms = self.deadline_ms
        elif (
            stamp is not None
            and stamp.backs_off
            and claim.is_file(context, latched.fd, latched.found)
            and not expire_unclaimed(context, self.queue, claim.id, latched)
        ):
            self._check_noted()
            count = min((stamp.deliveries or 0) + 1, MAX_COUNT) if self.counts else claim.deliveries
            deadline_ms = of_next_claim(stamp, count, self.deadline_ms)
        else:
            return None
        return claim._replace(deliveries=count, deadline_ms=context.stamps.kept(deadline_ms))

    def _stamp(self, new: Claimed, latched: Latched, path: str) -> bool:
        mtime_ns = self.context.stamps.encode(new.id, new.deadline_ms, new.deliveries)
        return latched.stamp(self.context, path, mtime_ns)

    def _claim_again(self, claim: Claimed) -> Claimed | None:
        self._check_noted()
        deliver_one(self.context, self.queue, claim.id)  # a crash may have undone its delivery, too
        count = 0 if self.counts else claim.deliveries
        try:
            again = claim_one(
                self.context, self.queue, claim.id, self.deadline_ms, claim.is_file, count=count
            )
        except BlockingIOError:
            return claim  # being delivered or claimed: the next renewal finds out
        return None if again is None else claimed(self.context, again)

    def _check_noted(self) -> None:
        """Raise if a new claim could not be recognised as one of the batch later."""
        if self.unnoted is not None:
            raise self.unnoted
