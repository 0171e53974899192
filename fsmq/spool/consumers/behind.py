"""How far consumers are behind: the messages that wait in the queues that they read.

The file of a consumer's lock lists what it reads, only for observers: no recovery needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..context import Context
from ..index.counting import oldest_of
from ..layout import documents
from ..layout.names import entry, is_queue, split_entry
from ..layout.transitions import CONSUMERS, NEW, QUEUES
from ..layout.tree import Tree
from .manifest import LOCK, path_of

_MAX_BYTES = 65_536
# If there are more files, the bytes are estimated from this many.
_SAMPLE = 10_000


class Behind(NamedTuple):
    """The messages that wait in a queue, new or ready. bytes: of the files; an estimate if there
    are more than ten thousand. oldest: when the oldest was created, Unix seconds."""

    messages: int = 0
    bytes: int = 0
    oldest: float | None = None


def behind(context: Context, queues: Collection[str]) -> dict[str, Behind]:
    """What waits in each of some queues, without those that are gone. Raises OSError."""
    tree = context.tree
    new: dict[str, list[str]] = {queue: [] for queue in queues}
    for name in tree.names(tree.folder(NEW)) if new else ():
        parts = split_entry(name)
        if parts is not None and parts[0] in new:
            new[parts[0]].append(parts[1])
    found = {}
    for queue in sorted(new):
        ready = tree.ready_names(queue)
        if ready is None:
            continue
        paths = [tree.folder(NEW, entry(queue, message_id)) for message_id in new[queue]]
        size = _size(tree, paths) + _size(tree, ready, tree.folder(QUEUES, queue) + "/")
        ids = [*new[queue], *ready]
        found[queue] = Behind(len(ids), size, oldest_of(ids))
    return found


def total(of: Iterable[Behind]) -> Behind:
    """All queues together."""
    parts = list(of)
    oldest = min((part.oldest for part in parts if part.oldest is not None), default=None)
    return Behind(sum(p.messages for p in parts), sum(p.bytes for p in parts), oldest)


def behind_by_consumer(
    context: Context, consumers: Iterable[str] | None = None
) -> dict[str, dict[str, Behind]]:
    """By consumer, what waits in each queue that it reads. Raises OSError.

    consumers: their names; None: all. One that has not noted what it reads is left out.
    """
    tree = context.tree
    if consumers is None:
        consumers = filter(is_queue, tree.names(tree.folder(CONSUMERS)))
    names = sorted(consumers)
    wanted = {name: queues for name in names if (queues := reads(tree, name)) is not None}
    if not wanted:
        return {}
    there = tree.queues()
    read = {name: [q for q in there if _is_meant(q, queues)] for name, queues in wanted.items()}
    found = behind(context, {queue for queues in read.values() for queue in queues})
    return {name: {q: found[q] for q in queues if q in found} for name, queues in read.items()}


def reads(tree: Tree, consumer: str) -> list[str] | None:
    """The names and globs of the queues that a consumer reads; None if they are not noted."""
    try:
        stored = documents.read(tree, path_of(tree, consumer, "", LOCK), _MAX_BYTES)
    except (OSError, ValueError):
        return None
    queues = stored.get("queues")
    if not isinstance(queues, list) or not all(isinstance(queue, str) for queue in queues):
        return None
    return queues


def _is_meant(queue: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in patterns)


def _size(tree: Tree, names: list[str], before: str = "") -> int:
    """Bytes of files; estimated from a sample if there are very many."""
    step = -(-len(names) // _SAMPLE) or 1
    stats = (tree.stat(before + name) for name in names[::step])
    return step * sum(found.st_size for found in stats if found is not None)
