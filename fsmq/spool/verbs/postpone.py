"""Postpone: let a message that nobody has claimed be ready later, by the id that was given to it.

It is put anew with the other delay, so that it has its place among those that are due then. First
it is taken out, back to the dot-name under which it was put: nobody can claim it there, and after a
crash, or if the put fails, it comes back from there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..context import Context, Pending
from ..durability.ids import Standing, staged_name
from ..errors import Unavailable
from ..layout.given_ids import link_name
from ..layout.message import NewMessage
from ..layout.names import facts
from ..layout.settings import MAX_DELAY_S, check_seconds
from ..layout.steps import finish
from ..layout.transitions import NEW, State
from ..views.reading import UNLIMITED, read
from .by_id import ROUNDS, at_index
from .draft import draft
from .latch import Latched, is_delayed, latch_patiently
from .upsert import Staging, Stored


def postpone(
    context: Context, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
) -> Pending[Stored] | None:
    """Put a message that nobody has claimed anew, with this delay; None if there is none.

    attributes: what is changed of its attributes.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, Unavailable
    """
    check_seconds("delay", delay, MAX_DELAY_S)
    with at_index(context, queue, given_id, "postpone in"):
        for _ in range(ROUNDS):
            one = _Postponement(context, queue, given_id, delay, attributes)
            try:
                is_done = one.begin()
            except BaseException:
                one.staging.abandon()
                raise
            if is_done:
                return Pending(one.staging.work, one.staging.stored, one.staging.abandon)
            one.staging.abandon()
            if is_done is None:
                return None
    raise Unavailable(f"the message of the id {given_id!r} keeps moving from folder to folder")


class _Postponement:
    def __init__(
        self,
        context: Context,
        queue: str,
        given_id: str,
        delay: float,
        attributes: Mapping[str, str],
    ) -> None:
        self.staging = Staging(context, queue)
        self._context = context
        self._queue = queue
        self._id = given_id
        self._link = link_name(given_id)
        self._delay = delay
        self._attributes = attributes

    def begin(self) -> bool | None:
        """Write the message anew, and take out the old one; None if there is none that may be
        postponed, False if it has moved meanwhile."""
        context, queue = self._context, self._queue
        self.staging.hold(self._link)
        found = self.staging.standing([self._link]).get(self._link)
        if found is None:
            return None
        path = context.tree.path(found.state, queue, found.name)
        latched = latch_patiently(context, path)
        if latched is None:
            return False
        try:
            if found.state is State.DELAY and not is_delayed(context, found.name, latched):
                return None
            again = draft(
                context, self._again(found, latched), context.settings_of(queue), is_indexed=True
            )
            self.staging.write(self._link, again, found)
            staged = staged_name(queue, self._link, found.name, latched.fd)
            return self.staging.take_out(path, context.tree.folder(NEW, staged))
        finally:
            latched.close()

    def _again(self, found: Standing, latched: Latched) -> NewMessage:
        context, known = self._context, facts(found.name)
        size = os.fstat(latched.fd).st_size
        content = finish(read(context, latched.fd, size, known, UNLIMITED))
        ttl = None if known.expires_s is None else max(0.0, known.expires_s - context.clock())
        return NewMessage(
            content.body,
            self._delay,
            known.priority,
            ttl,
            self._id,
            content.content_type,
            {**content.attributes, **self._attributes},
        )
