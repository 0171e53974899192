"""Drafts: checked messages, and the dot-names of ``new/`` under which they are written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import Unavailable
from ..layout.files import write_all
from ..layout.messages import dead_letter
from ..layout.names import staged_entry
from ..layout.stamps import Stamps
from ..layout.steps import LARGE_BYTES
from ..layout.transitions import NEW, State
from ..layout.tree import Tree
from ..layout.unclaimed import is_delayed
from ..layout.uuids import group_bits, sequenced_uuid7
from .sync import Dirty
from .unfinished import timed_seal


class Draft(NamedTuple):
    """A checked message. ``own``: its id was given. ``delay_ms``: None for one without a delay.

    key: that of its deduplication id in the records; None if it has none. dead: the attribute of a
    dead letter.
    """

    message_id: str
    header: bytes
    body: bytes
    delay_ms: int | None
    own: bool
    seal: int
    group: str | None = None
    key: bytes | None = None
    dead: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.header) + len(self.body)

    def placed(self, queue: str, tick: int) -> Draft:
        """The same message, with an id that gives it a place in the order of a fifo queue."""
        uuid = sequenced_uuid7(tick, group_bits(queue, self.group or ""))
        return self._replace(message_id=uuid + self.message_id[len(uuid) :])

    def timer_ns(self, stamps: Stamps, now_ms: int) -> int:
        """The mtime that is its timer, if its delay begins now; 0 if it has none."""
        if self.delay_ms is None:
            return 0
        return stamps.encode(self.message_id, now_ms + self.delay_ms, 0)

    def dot_name(self, queue: str, number: int | None = None) -> str:
        """The name under which it is written, by a put of this number, if it needs no timer."""
        return staged_entry(queue, self.message_id, self.seal, number)

    def staged(
        self, tree: Tree, stamps: Stamps, queue: str, now_ms: int, number: int | None = None
    ) -> Staged:
        """What is to be written now; with a delay, its name and its timer belong together."""
        mtime_ns = self.timer_ns(stamps, now_ms)
        seal = timed_seal(self.seal, mtime_ns) if mtime_ns else self.seal
        name = staged_entry(queue, self.message_id, seal, number)
        return Staged(self, tree.folder(NEW, name), mtime_ns=mtime_ns)

    def write(self, fd: int, timer_ns: int = 0) -> None:
        """Write the file, complete with its last byte: what comes later, a crash may leave out.

        timer_ns: the mtime that is its timer, where nobody can take the file away meanwhile.

        Raises OSError.
        """
        if self.dead is not None:
            dead_letter.write_raw(fd, self.dead)
        if len(self.body) > LARGE_BYTES and self.header:  # two calls take less than a copy
            write_all(fd, self.header)
            write_all(fd, self.body)
        else:
            write_all(fd, self.header + self.body if self.header else self.body)
        if timer_ns:
            os.utime(fd, ns=(timer_ns, timer_ns))


@dataclass(slots=True, eq=False)
class Staged:
    """A draft and its dot-name, relative to the root.

    inode: that of the file, 0 until it exists. mtime_ns: the file's; before `fill` that of its
    timer; 0 if it has none, or if it has to be looked up.
    state: where it was shown.
    """

    draft: Draft
    path: str
    inode: int = 0
    mtime_ns: int = 0
    state: State | None = None

    def fill(self, fd: int, tree: Tree, dirty: Dirty) -> None:
        """Write the new file and its timer; ``dirty`` has the file from now on.

        Raises Unavailable if someone has just removed it, OSError.
        """
        is_kept = dirty.keep(fd, self.path)
        try:
            self.inode = os.fstat(fd).st_ino
            self.draft.write(fd)
            if self.mtime_ns:
                # By path: a process that thought this one dead may have removed the file.
                if not tree.stamp(self.path, self.mtime_ns):
                    raise was_removed(self.draft)
            elif not tree.network:  # on a network, fstat would wait until the server has all data
                self.mtime_ns = os.fstat(fd).st_mtime_ns
        finally:
            if not is_kept:
                os.close(fd)

    def show(self, tree: Tree, stamps: Stamps, queue: str, now_ms: int) -> bool:
        """`show` it, and note where that is; False if it is gone."""
        draft, mtime_ns = self.draft, self.mtime_ns
        has_timer = draft.delay_ms is not None
        self.state = show(
            tree, stamps, queue, draft.message_id, self.path, now_ms, mtime_ns, has_timer=has_timer
        )
        return self.state is not None

    def show_or_leave(self, tree: Tree, stamps: Stamps, queue: str, now_ms: int) -> bool:
        """The same, or move the message to ``new/`` for a mover to deliver.

        This happens if the queue's folder takes no more files: otherwise messages of the same batch
        or publish that are shown already would have to be taken back. And it happens to a message
        with a delay where no event may reach the mover: it lists ``new/`` often, but ``delay/``,
        which has all claims, seldom.
        """
        if self.draft.delay_ms is None or not tree.network:
            try:
                return self.show(tree, stamps, queue, now_ms)
            except FileExistsError:
                raise
            except OSError:
                pass  # a mover tries again
        return tree.rename(self.path, tree.path(State.NEW, queue, self.draft.message_id))


def show(
    tree: Tree,
    stamps: Stamps,
    queue: str,
    message_id: str,
    path: str,
    now_ms: int,
    mtime_ns: int = 0,
    *,
    has_timer: bool = True,
) -> State | None:
    """Rename a complete message to its queue or, with a delay, to ``delay/``; its new state.

    path: its dot-name. mtime_ns: that of the file, if the caller knows it. has_timer: False if it
    has none, though its mtime may look like one by chance. Returns None if the dot-name or the
    queue is gone. Raises FileExistsError, OSError.
    """
    if not mtime_ns:
        found = tree.stat(path)
        if found is None:
            return None
        mtime_ns = found.st_mtime_ns
    runs = is_delayed(tree, stamps, path, message_id, mtime_ns, now_ms)
    state = State.DELAY if runs and has_timer else State.READY
    return state if tree.rename(path, tree.path(state, queue, message_id)) else None


def was_removed(draft: Draft) -> Unavailable:
    """The error for a message whose dot-name is gone."""
    return Unavailable(
        f"the message {draft.message_id!r} was removed by someone else before it was finished"
    )
