"""Postpone: let a message that nobody has claimed be ready later, by the id that was given to it.

First it is hidden where it is, then it is put anew with the other delay
(`fsmq.spool.indexed.Indexed.postpone`): so it has its place among those that are due then.
"""

from __future__ import annotations

from ..context import Context
from ..durability.ids import Standing
from ..errors import Unavailable
from ..layout.message import Message
from ..layout.settings import MAX_DELAY_S, check_seconds
from ..layout.transitions import DEFER, POSTPONE, State
from ..views.look import look
from .by_id import ROUNDS, at_index, standing
from .latch import Latched, is_delayed, latch_patiently

# So long a message that is put anew with another delay stays hidden at least, if the put fails.
_LEAST_HIDDEN_S = 30.0


def hide_id(context: Context, queue: str, given_id: str, delay: float) -> Message | None:
    """Hide a message that nobody has claimed, to be put anew with this delay; None if it is not.

    The first step of a postponement. The put then takes the id from it. After a crash in between
    it comes out at its new time, or half a minute later; its count of deliveries starts again.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_seconds("delay", delay, MAX_DELAY_S)
    with at_index(context, queue, given_id, "postpone in"):
        for _ in range(ROUNDS):
            found = standing(context, queue, given_id)
            if found is None:
                return None
            deadline_ms = context.now_ms() + round(max(delay, _LEAST_HIDDEN_S) * 1000)
            path = context.tree.path(found.state, queue, found.name)
            latched = latch_patiently(context, path)
            if latched is None:
                continue
            try:
                if found.state is State.DELAY and not is_delayed(context, found.name, latched):
                    return None
                if _hide(context, queue, found, latched, deadline_ms):
                    return look(context, queue, found.name, State.DELAY)
            finally:
                latched.close()
    raise Unavailable(f"the message of the id {given_id!r} keeps moving from folder to folder")


def _hide(
    context: Context, queue: str, found: Standing, latched: Latched, deadline_ms: int
) -> bool:
    path = context.tree.path(found.state, queue, found.name)
    mtime = context.stamps.encode(found.name, deadline_ms, 0)
    if not latched.stamp(context, path, mtime):
        return False
    if found.state is State.DELAY:
        return True
    how = DEFER if found.state is State.NEW else POSTPONE
    try:
        if latched.move(context, how, queue, found.name) is not None:
            context.record(how.step, queue, found.name)
            return True
    except FileExistsError:
        pass
    latched.stamp(context, path, latched.found.st_mtime_ns)
    return False
