"""What senders into fifo queues share: a file that says the last place, and what they left.

Who sends holds the lock of a small file of the queue from the choice of the places to the renames
that show the messages. So no message is seen before one with a lower place. The file says the last
place, and whether the sends before are over. The place is synced with the messages: what was
acknowledged keeps its own, and no later one gets a lower one. A holder that died left dot-names;
the next one shows those that are complete before it does anything else. And the file says up to
which place the records of deduplication ids hold (`dedup_records`), before the messages are shown.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..errors import Unavailable
from ..layout.names import is_id, sends_name, sequence_of, split_entry, split_staged
from ..layout.stamps import Stamps
from ..layout.transitions import CONFIG, NEW, State
from ..layout.tree import Tree
from ..layout.unclaimed import is_delayed
from .dedup_records import forget_records, restore_records, settle
from .locks import lock, patiently
from .unfinished import Recovered, is_complete

_BYTES = 64
# How long it waits for those who send.
_PATIENCE_S = 10.0


class Line(NamedTuple):
    """last: the place that was given last, in ticks. is_over: nothing is left to be shown.

    settled: all records of places up to this one hold, but for those that are void.
    """

    last: int = 0
    is_over: bool = False
    settled: int = 0


def write_line(fd: int, line: Line) -> None:
    """Write the file of a queue's sends, which is locked. Raises OSError."""
    text = f"{line.last} {int(line.is_over)} {line.settled}"
    os.pwrite(fd, text.ljust(_BYTES - 1).encode() + b"\n", 0)


def read_line(fd: int) -> Line:
    """The line of the file, the first one where it makes no sense. Raises OSError."""
    try:
        last, is_over, settled = map(int, os.pread(fd, _BYTES, 0).split())
    except ValueError:
        return Line()
    return Line(last, bool(is_over), settled)


def recover_sends(tree: Tree, stamps: Stamps, queue: str, now: float) -> Recovered:
    """Show what senders that died left, unless someone sends right now. Raises OSError."""
    held = lock(tree, tree.folder(CONFIG, sends_name(queue)), os.O_CREAT)
    if held is None:
        return Recovered()
    try:
        done = recover_held(tree, stamps, queue, now, held.fd)
        write_line(held.fd, read_line(held.fd)._replace(is_over=True))
    finally:
        held.unlock()
    return done


def recover_held(tree: Tree, stamps: Stamps, queue: str, now: float, fd: int) -> Recovered:
    """The same for who has the lock: complete dot-names in their order; torn ones go.

    fd: the locked file. All that is left has places up to its last one then, and is settled.
    """
    line = read_line(fd)
    prefix = f".{queue}:"
    names = [n for n in tree.names(tree.folder(NEW)) if n.startswith(prefix)]
    left = [(own, name) for name in names if (own := _id_of(name, queue)) is not None]
    promoted = removed = 0
    complete: dict[str, str] = {}
    for message_id, name in sorted(left):
        if is_complete(tree, name, durably=True):
            complete[message_id] = name
        else:
            removed += tree.unlink(tree.folder(NEW, name))

    if left:
        # The writer may not have synced the folder.
        tree.sync_folder(tree.folder(NEW))
    now_ms = int(now * 1000)
    settled = settle(tree, queue, now_ms, line.settled, complete)
    for message_id in settled.void & complete.keys():
        # Its put failed, and could not remove it.
        removed += tree.unlink(tree.folder(NEW, complete.pop(message_id)))
    lacking = complete.keys() - settled.known
    paths = {one: tree.folder(NEW, complete[one]) for one in sorted(lacking)}
    restore_records(tree, queue, paths, now_ms)
    # Before they are shown, and may be acknowledged: then they would seem not to be stored.
    last = max([line.last, *(sequence_of(one) or 0 for one in complete)])
    write_line(fd, Line(last, settled=last))
    for message_id, name in complete.items():
        promoted += show(tree, stamps, queue, message_id, tree.folder(NEW, name), now)
    return Recovered(promoted, removed)


def show(tree: Tree, stamps: Stamps, queue: str, message_id: str, path: str, now: float) -> bool:
    """Rename a whole message to where it can be claimed, or is hidden; False if it is gone.

    Not by way of ``new/``: several movers do not keep the order. Raises FileExistsError, OSError.
    """
    found = tree.stat(path)
    if found is None:
        return False
    runs = is_delayed(tree, stamps, path, message_id, found.st_mtime_ns, int(now * 1000))
    state = State.DELAY if runs else State.READY
    return tree.rename(path, tree.path(state, queue, message_id))


def forget_sent(tree: Tree, queue: str, now: float) -> None:
    """Forget the deduplication ids of a queue, while nobody sends. Raises Unavailable, OSError."""
    path = tree.folder(CONFIG, sends_name(queue))
    if tree.stat(path) is None:
        return
    held = patiently(lambda: lock(tree, path, os.O_CREAT), _PATIENCE_S)
    if held is None:
        raise Unavailable(f"puts into queue {queue!r} take too long", 1)
    try:
        forget_records(tree, queue, int(now * 1000))
    finally:
        held.unlock()


def _id_of(name: str, queue: str) -> str | None:
    staged = split_staged(name)
    parts = split_entry(staged[0]) if staged is not None else None
    if parts is None or parts[0] != queue or not is_id(parts[1]):
        return None
    return parts[1]
