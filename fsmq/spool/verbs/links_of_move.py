"""What a queue is to messages that move there: the same one for all of a part, whatever its kind.

In a queue with an index a message has its link, durably, before it comes there. The one in the
queue that it leaves is stale from then on. So it is found by its id wherever a crash leaves it.
Both ids are locked until it has moved: else another message could get the one in the source before
this one is brought back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..context import Context
from ..durability.ids import PATIENCE_S, given_of, hold_patiently, link_path, settle
from ..durability.settings_lock import settings_held
from ..errors import NoSuchQueue
from ..layout.given_ids import link_name
from ..layout.settings import QueueSettings
from ..layout.transitions import IDS, State
from ..layout.tree import STRAY, Tree

# Messages that share a lock, and a sync of their links.
PART = 500
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)
# So long a move keeps the lock of a name for itself, and so long it then leaves it to others, who
# try for it every 2 milliseconds.
_TURN_S, _GAP_S = 0.1, 0.005


class Turns:
    """When a move of many parts has to let others have the lock that :func:`receiving` takes."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def pause(self, at_least: float = 0.0) -> float:
        """Seconds to wait before the next part; ``at_least``: those that it waits anyway."""
        now = time.monotonic()
        if at_least < _GAP_S and now - self._since < _TURN_S:
            return at_least
        self._since = now
        return max(at_least, _GAP_S)


@contextmanager
def receiving(
    context: Context,
    source: str,
    target: str,
    names: Sequence[str],
    *,
    is_home: bool = False,
    patience_s: float = PATIENCE_S,
) -> Iterator[set[str]]:
    """Keep a queue what it is while messages move there, and link those that have given ids.

    Who creates, changes or deletes the target waits meanwhile, and so does who changes which
    message of it has one of the ids. Yields the names of those that have to stay, since another
    message of the target has the id.

    is_home: they come back to where they were buried. patience_s: how long to wait for who has a
        lock that it takes.

    Raises:
        NoSuchQueue: also if it was made anew as a fifo queue, which takes none of them.
        InUse: nothing was done.
        Unavailable, OSError
    """
    with settings_held(context.tree, target, patience_s, writes=False):
        settings = context.settings_of(target)
        if not is_home and not keeps_order(settings, source):
            raise NoSuchQueue(target)
        with _linked(context, source, target, names, patience_s) as staying:
            yield staying


def keeps_order(settings: QueueSettings, source: str) -> bool:
    """Whether messages of another queue may move to one of these settings."""
    return not settings.fifo or settings.dead_letter_queue == source


def index_folders(context: Context, *queues: str) -> set[str]:
    """The folders of the indexes of those that have one. Raises OSError."""
    return {context.tree.folder(IDS, q) for q in queues if context.settings.get(q).index}


@contextmanager
def _linked(
    context: Context, source: str, target: str, names: Sequence[str], patience_s: float
) -> Iterator[set[str]]:
    """Lock the ids of messages that are about to move, and link them in a target with an index."""
    tree = context.tree
    links: dict[str, str] = {}
    indexed = [queue for queue in (source, target) if context.settings.get(queue).index]
    for name in names if indexed else ():
        if (found := _find(tree, source, name)) is not None:
            links[name] = found[0]
    if not links:
        yield set()
        return
    with hold_patiently(tree, dict.fromkeys(indexed, links.values()), patience_s):
        stay: set[str] = set()
        if target in indexed:
            had = settle(tree, target, links.values())
            stay |= {
                name
                for name, link in links.items()
                if link in had or not _link(tree, source, target, name)
            }
            tree.sync_folder(tree.folder(IDS, target))
        yield stay


def _link(tree: Tree, source: str, target: str, name: str) -> bool:
    """Link a message in the target; False if another one that moves has been given its id."""
    while (found := _find(tree, source, name)) is not None:
        try:
            tree.link(found[1], link_path(tree, target, found[0]))
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue  # it has moved on
        break
    return True


def _find(tree: Tree, source: str, name: str) -> tuple[str, str] | None:
    """The link of a message, and where it is; None if it has no id."""
    for state in _STATES:
        path = tree.path(state, source, name)
        try:
            found = given_of(tree, path, name)
        except OSError as error:
            if error.errno in STRAY:
                continue
            raise
        return None if found is None else (link_name(found[0].id), path)
    return None
