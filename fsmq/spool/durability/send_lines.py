"""What senders into fifo queues share: a file that says the last place, and what they left.

Who sends holds the lock of a small file of the queue from the choice of the places to the renames
that show the messages. So no message is seen before one with a lower place. The file says the last
place, and whether the sends before are over. The place is synced with the messages: what was
acknowledged keeps its own, and no later one gets a lower one. A holder that died left dot-names;
the next one shows those that are complete before it does anything else.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..layout.names import is_id, sends_name, split_entry, split_staged
from ..layout.stamps import Stamps
from ..layout.transitions import CONFIG, NEW, State
from ..layout.tree import Tree
from .locks import lock
from .unfinished import Recovered, is_complete

_BYTES = 64


class Line(NamedTuple):
    """last: the place that was given last, in ticks. is_over: nothing is left to be shown."""

    last: int = 0
    is_over: bool = False


def write_line(fd: int, line: Line) -> None:
    """Write the file of a queue's sends, which is locked. Raises OSError."""
    text = f"{line.last} {int(line.is_over)}"
    os.pwrite(fd, text.ljust(_BYTES - 1).encode() + b"\n", 0)


def read_line(fd: int) -> Line:
    """The line of the file, the first one where it makes no sense. Raises OSError."""
    try:
        last, is_over = map(int, os.pread(fd, _BYTES, 0).split())
    except ValueError:
        return Line()
    return Line(last, bool(is_over))


def recover_sends(tree: Tree, stamps: Stamps, queue: str, now: float) -> Recovered:
    """Show what senders that died left, unless someone sends right now. Raises OSError."""
    held = lock(tree, tree.folder(CONFIG, sends_name(queue)), os.O_CREAT)
    if held is None:
        return Recovered()
    try:
        line = read_line(held.fd)
        done = recover_held(tree, stamps, queue, now)
        write_line(held.fd, line._replace(is_over=True))
    finally:
        held.unlock()
    return done


def recover_held(tree: Tree, stamps: Stamps, queue: str, now: float) -> Recovered:
    """The same for who has the lock: complete dot-names in their order; torn ones go."""
    prefix = f".{queue}:"
    names = [n for n in tree.names(tree.folder(NEW)) if n.startswith(prefix)]
    left = [(own, name) for name in names if (own := _id_of(name, queue)) is not None]
    if not left:
        return Recovered()
    promoted = removed = 0
    complete: list[tuple[str, str]] = []
    for message_id, name in sorted(left):
        if is_complete(tree, name, durably=True):
            complete.append((message_id, name))
        else:
            removed += tree.unlink(tree.folder(NEW, name))
    # The writer may not have synced the folder.
    tree.sync_folder(tree.folder(NEW))
    for message_id, name in complete:
        promoted += show(tree, stamps, queue, message_id, tree.folder(NEW, name), now)
    return Recovered(promoted, removed)


def show(tree: Tree, stamps: Stamps, queue: str, message_id: str, path: str, now: float) -> bool:
    """Rename a whole message to where it can be claimed, or is hidden; False if it is gone.

    Not by way of ``new/``: several movers do not keep the order. Raises FileExistsError, OSError.
    """
    found = tree.stat(path)
    if found is None:
        return False
    stamp = stamps.decode(message_id, found.st_mtime_ns)
    runs = stamp is not None and not stamp.deliveries and stamp.deadline_ms > now * 1000
    state = State.DELAY if runs else State.READY
    return tree.rename(path, tree.path(state, queue, message_id))


def _id_of(name: str, queue: str) -> str | None:
    staged = split_staged(name)
    parts = split_entry(staged[0]) if staged is not None else None
    if parts is None or parts[0] != queue or not is_id(parts[1]):
        return None
    return parts[1]
