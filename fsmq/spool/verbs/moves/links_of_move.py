"""The target of a move stays the same queue for all messages of a part, and gets their links.

In a queue with an index a message has its link, durably, before it arrives; its link in the source
is stale from then on. So it is found by its id wherever a crash leaves it. The id is locked in both
queues until the message has moved: otherwise another message could take it before this one is
brought back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from ...context import Context
from ...durability.ids import IS_HELD, PATIENCE_S, Held, given_of, hold, link_path, settle
from ...durability.locks import patiently
from ...durability.settings_lock import settings_held
from ...errors import InUse, NoSuchQueue
from ...index.quarantine import FIRST_S, LONGEST_S
from ...layout.messages.given_ids import link_name
from ...layout.settings import QueueSettings
from ...layout.transitions import IDS, State
from ...layout.tree import STRAY, Tree

T = TypeVar("T")
# Messages that share a lock, and a sync of their links.
PART = 500
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)
# How long a move keeps the lock of a name, and then leaves it to others, which retry every 2 ms.
_TURN_S, _GAP_S = 0.1, 0.005


class NotNow(NamedTuple):
    """The names of messages that cannot move now.

    stay: another message of the target has the id, or this user may not read the id. later: another
    program has locked the id.
    """

    stay: set[str]
    later: set[str]


class Turns:
    """When a move of many parts has to let others have the lock that :func:`receiving` takes."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def pause(self, at_least: float = 0.0) -> float:
        """Seconds to wait before the next part. at_least: the seconds that it waits anyway."""
        now = time.monotonic()
        if at_least < _GAP_S and now - self._since < _TURN_S:
            return at_least
        self._since = now
        return max(at_least, _GAP_S)


class LastTries:
    """When to retry messages whose ids other programs have locked."""

    def __init__(self) -> None:
        self._since, self._pause = time.monotonic(), FIRST_S / 2

    def pause(self, left: int, tried: int) -> float:
        """Seconds until the next try. Raises InUse if none was released for long."""
        now = time.monotonic()
        if left < tried:
            self._since, self._pause = now, FIRST_S / 2
        elif now - self._since >= PATIENCE_S:
            raise InUse(IS_HELD)
        self._pause = min(2 * self._pause, LONGEST_S)
        return self._pause


def together_or_alone(make: Callable[[Sequence[T]], None], part: Sequence[T]) -> OSError | None:
    """Act on all messages at once or, if that fails, on each alone; returns the first error.

    make: acts on all, or on none if it raises OSError.
    """
    try:
        make(part)
        return None
    except OSError:
        pass
    first: OSError | None = None
    for one in part:
        try:
            make([one])
        except OSError as error:
            first = first or error
    return first


@contextmanager
def receiving(
    context: Context,
    source: str,
    target: str,
    names: Sequence[str],
    *,
    is_home: bool = False,
    patience_s: float = PATIENCE_S,
) -> Iterator[NotNow]:
    """Keep the target unchanged while messages move there, and link those with given ids.

    Creations, changes and deletions of the target wait, and so do changes to the ids in question.
    Yields the names of messages that have to stay, or wait.

    is_home: they return to where they were buried. patience_s: how long to wait for each lock.

    Raises:
        NoSuchQueue: also if it was created anew as a fifo queue, which takes none of them.
        InUse: nothing was done.
        Unavailable, OSError
    """
    with settings_held(context.tree, target, patience_s, writes=False):
        settings = context.settings_of(target)
        if not is_home and not keeps_order(settings, source):
            raise NoSuchQueue(target)
        with _linked(context, source, target, names, patience_s) as not_now:
            yield not_now


def keeps_order(settings: QueueSettings, source: str) -> bool:
    """Whether messages of ``source`` may move to a queue with these settings."""
    return not settings.fifo or settings.dead_letter_queue == source


def index_folders(context: Context, *queues: str) -> set[str]:
    """The index folders of those queues that have one. Raises OSError."""
    return {context.tree.folder(IDS, q) for q in queues if context.settings.get(q).index}


@contextmanager
def _linked(
    context: Context, source: str, target: str, names: Sequence[str], patience_s: float
) -> Iterator[NotNow]:
    """Lock the ids of messages that are about to move, and link them in a target with an index."""
    tree = context.tree
    links: dict[str, str] = {}
    stay: set[str] = set()
    indexed = [queue for queue in (source, target) if context.settings.get(queue).index]
    for name in names if indexed else ():
        try:
            if (found := _find(tree, source, name)) is not None:
                links[name] = found[0]
        except PermissionError:
            stay.add(name)
    if not links:
        yield NotNow(stay, set())
        return
    wanted = dict.fromkeys(indexed, links.values())
    # No process waits while it holds some: first try all or none, then take those that are free.
    held, free = patiently(lambda: hold(tree, wanted), patience_s), {*links.values()}
    if held is None:
        held, free = _hold_free(tree, indexed, free)
    with held:
        later = {name for name, link in links.items() if link not in free}
        if target in indexed:
            had = settle(tree, target, free)
            stay |= {
                name
                for name, link in links.items()
                if link in free and (link in had or not _link(tree, source, target, name))
            }
            tree.sync_folder(tree.folder(IDS, target))
        yield NotNow(stay, later)


def _hold_free(tree: Tree, queues: Sequence[str], links: set[str]) -> tuple[Held, set[str]]:
    """Lock those ids that nobody has locked in any of the queues; returns which."""
    held, free = Held(tree), None
    try:
        free = {link for link in links if all(held.take(queue, [link]) for queue in queues)}
        return held, free
    finally:
        if free is None:
            held.free()


def _link(tree: Tree, source: str, target: str, name: str) -> bool:
    """Link a message in the target; False if another moving message has the same id."""
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
