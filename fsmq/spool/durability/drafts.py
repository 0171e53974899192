"""Drafts: checked messages, and the dot-names of ``new/`` under which they are written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Unavailable
from ..layout.files import write_all
from ..layout.names import staged_entry
from ..layout.stamps import Stamps
from ..layout.tree import Tree
from ..layout.uuids import group_bits, sequenced_uuid7
from .sync import Dirty


class Draft(NamedTuple):
    """A checked message. ``own``: its id was given. ``delay_ms``: None for one without a delay.

    key: what stands for its deduplication id, in its scope; None if it has none.
    """

    message_id: str
    header: bytes
    body: bytes
    delay_ms: int | None
    own: bool
    seal: int
    group: str | None = None
    key: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.header) + len(self.body)

    def placed(self, queue: str, tick: int) -> Draft:
        """The same message with the id of its place in the order of a fifo queue."""
        uuid = sequenced_uuid7(tick, group_bits(queue, self.group or ""))
        return self._replace(message_id=uuid + self.message_id[len(uuid) :])

    def staged(self, queue: str, number: int | None = None) -> str:
        """The dot-name under which it is written, by a put of this number."""
        return staged_entry(queue, self.message_id, self.seal, number)

    def write(self, fd: int) -> None:
        """Write the file's bytes. Raises OSError."""
        write_all(fd, self.header + self.body if self.header else self.body)


@dataclass(slots=True, eq=False)
class Staged:
    """A draft and its dot-name, relative to the root; the file's inode, 0 until it is there."""

    draft: Draft
    path: str
    inode: int = 0

    def fill(
        self, fd: int, tree: Tree, stamps: Stamps, dirty: Dirty, clock: Callable[[], float]
    ) -> None:
        """Write the file, which is new, and its timer; ``dirty`` has it from now on.

        Raises Unavailable if someone has removed it meanwhile, OSError.
        """
        draft = self.draft
        is_kept = dirty.keep(fd, self.path)
        try:
            self.inode = os.fstat(fd).st_ino
            draft.write(fd)
            if draft.delay_ms is not None:
                deadline_ms = int(clock() * 1000) + draft.delay_ms
                # By its name: who thought that we crashed may have delivered it already.
                if not tree.stamp(self.path, stamps.encode(draft.message_id, deadline_ms, 0)):
                    raise was_removed(draft)
        finally:
            if not is_kept:
                os.close(fd)


def was_removed(draft: Draft) -> Unavailable:
    """Why a message cannot be shown whose dot-name is gone."""
    return Unavailable(
        f"the message {draft.message_id!r} was removed by someone else before it was finished"
    )
