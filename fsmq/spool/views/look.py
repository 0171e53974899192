"""Look at messages without claiming them: one, or as many as fit into an answer."""

from __future__ import annotations

import os
import stat

from ..context import Context
from ..errors import NoRoom
from ..layout.messages import dead_letter
from ..layout.messages.message import MAX_HEADER_BYTES, Message, header
from ..layout.names import facts
from ..layout.stamps import hidden_state
from ..layout.steps import finish
from ..layout.transitions import State
from ..layout.tree import STRAY
from .reading import MAX_ANSWER_BYTES, UNLIMITED, Budget, Room, read
from .wanted import Wanted


class Page:
    """Messages for one answer: no more than fit in.

    limit: how many messages. max_bytes: the page ends when the bodies reach this. room: where
    memory is taken from; the page ends when it is used up. Use it in a ``with``.
    """

    def __init__(
        self, limit: int, room: Room | None = None, max_bytes: int | None = MAX_ANSWER_BYTES
    ) -> None:
        self.messages: list[Message] = []
        self._limit = self._left = limit
        self._budget = Budget(room)
        self._bytes_left = max_bytes

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exception: object) -> None:
        self._budget.close()

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    @property
    def left(self) -> int:
        """How many more messages fit in at most."""
        return self._left

    def look(
        self,
        context: Context,
        queue: str,
        message_id: str,
        state: State,
        wanted: Wanted | None = None,
    ) -> bool:
        """Add a message, if it is there and wanted; False if not.

        Raises:
            NoRoom: there is no memory for the first one.
            OSError
        """
        try:
            message = look(context, queue, message_id, state, self._budget, wanted)
        except NoRoom:
            if self._left == self._limit:
                raise
            self._left = 0
            return False
        if message is None:
            return False
        self.messages.append(message)
        self._left -= 1
        if self._bytes_left is not None:
            self._bytes_left -= len(message.body)
            if self._bytes_left <= 0:
                self._left = 0
        return True


def look(
    context: Context,
    queue: str,
    message_id: str,
    state: State,
    budget: Budget = UNLIMITED,
    wanted: Wanted | None = None,
) -> Message | None:
    """Read a message without claiming it; None if it is gone, or too large to be read.

    wanted: return None, too, if the message is not wanted.

    Raises:
        NoRoom: the budget has no memory for it.
        OSError
    """
    tree = context.tree
    try:
        fd = tree.open(tree.path(state, queue, message_id))
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    known = facts(message_id)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > context.max_file_bytes:
            return None
        if wanted is not None and not _may_fit(wanted, fd):
            return None
        is_first = budget.is_first
        content = finish(read(context, fd, found.st_size, known, budget))
        dead = dead_letter.read(fd)
    finally:
        os.close(fd)
    if wanted is not None and wanted.contains not in content.body:
        budget.forget(max(found.st_size, len(content.body)), is_first=is_first)
        return None
    stamp = context.stamps.decode(message_id, found.st_mtime_ns)
    if stamp is not None and state is State.NEW:
        # Nothing in new/ has been delivered: a count there verifies by chance.
        stamp = stamp._replace(deliveries=0)
    return Message(
        queue=queue,
        id=message_id,
        body=content.body,
        deliveries=None if context.stamps.coarse else (stamp.deliveries if stamp else 0),
        deadline=stamp.deadline_ms / 1000 if stamp and state is State.DELAY else None,
        content_type=content.content_type,
        attributes=content.attributes,
        priority=known.priority,
        created_at=None if known.created_ms is None else known.created_ms / 1000,
        expires_at=known.expires_s,
        state=hidden_state(stamp, context.now_ms()) if state is State.DELAY else state.value,
        dead_letter=dead,
        **content.own._asdict(),
    )


def _may_fit(wanted: Wanted, fd: int) -> bool:
    """Whether the attributes in an open file are wanted, without reading its body."""
    if not wanted.attributes:
        return True
    return wanted.fits_attributes(header(os.pread(fd, MAX_HEADER_BYTES, 0)).attributes)
