"""What happens to a message whose batch failed with it alone."""

from __future__ import annotations

from functools import partial

from ..context import Context, OpenSpool, Prepared
from ..durability.sync import Dirty
from ..errors import InvalidValue, NoSuchMessage, NoSuchQueue, as_unavailable
from ..layout.messages.dead_letter import USED_UP
from ..layout.stamps import MAX_COUNT
from ..layout.transitions import CLAIMED, DELAY, State
from ..verbs.latch import latch_patiently
from ..verbs.release import bury_now, dead_letters_for
from .claims import Claimed, Renewals
from .renewals import Until


def retry(
    spool: OpenSpool, queue: str, claim: Claimed, until: Until, renewals: Renewals
) -> Claimed | None:
    """Deliver it once more, or bury it if its deliveries are used up; returns any claim.

    renewals: deadlines that earlier ones may have set. Raises Unavailable, OSError.
    """
    if isinstance(until, OSError):
        raise until
    try:
        if until is None:
            return None
        context = spool.context
        settings = context.settings_of(queue)
        if dead_letters_for(settings, claim.deliveries) is None:
            return spool.complete(_count_delivery(context, queue, claim, until, renewals))
        is_held = partial(claim.is_held, renewals=renewals)
        spool.complete(bury_now(context, queue, claim.id, USED_UP, is_wanted=is_held))
    except (InvalidValue, NoSuchQueue, NoSuchMessage):
        pass  # it is over, or its queue has changed just now: the message comes back by its timer
    return None


def _count_delivery(
    context: Context, queue: str, claim: Claimed, deadline_ms: int, renewals: Renewals
) -> Prepared[Claimed | None]:
    """Count a claim as another delivery; returns the claim as it is now, None if it is over.

    Raises Unavailable.
    """
    tree, stamps = context.tree, context.stamps
    path = tree.path(State.DELAY, queue, claim.id)
    dirty = Dirty(folders={tree.folder(DELAY)})
    counted: Claimed | None = None
    with as_unavailable(f"cannot claim from queue {queue!r}"):
        latched = latch_patiently(context, path)
        if latched is not None:
            try:
                if claim.is_held(context, latched.fd, latched.found, renewals):
                    before = stamps.deliveries(claim.id, latched.found.st_mtime_ns)
                    deliveries = min((before or claim.deliveries) + 1, MAX_COUNT)
                    mtime_ns = stamps.encode(claim.id, deadline_ms, deliveries)
                    if latched.stamp(context, path, mtime_ns):
                        kept_ms = stamps.kept(deadline_ms)
                        counted = claim._replace(deliveries=deliveries, deadline_ms=kept_ms)
                        dirty.closed.append(path)
            finally:
                latched.close()

    def finish() -> Claimed | None:
        if counted is not None:
            claim_ms = deadline_ms - context.now_ms()
            context.record(
                CLAIMED, queue, claim.id, deliveries=counted.deliveries, claim_ms=claim_ms
            )
        return counted

    return Prepared(dirty, finish)
