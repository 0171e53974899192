"""The links of messages that move, from a queue with an index or to one.

A message has its link there, durably, before it comes there. The one in the queue that it leaves is
stale from then on. So it is found by its id wherever a crash leaves it. Both ids are locked until
it has moved: else another message could get the one in the source before this one is brought back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..context import Context
from ..durability.ids import given_of, hold_patiently, link_path, settle
from ..layout.given_ids import link_name
from ..layout.transitions import IDS, State
from ..layout.tree import STRAY, Tree

# Messages whose links share a sync.
PART = 500
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)


@contextmanager
def linked(context: Context, source: str, target: str, names: Sequence[str]) -> Iterator[set[str]]:
    """Lock the ids of messages that are about to move, and link them in a target with an index.

    Yields those that have to stay, since a message of the target has the same given id. Raises
    OSError, Unavailable.
    """
    tree = context.tree
    stay: set[str] = set()
    links: dict[str, str] = {}
    indexed = [queue for queue in (source, target) if context.settings.last(queue).index]
    for name in names if indexed else ():
        if (found := _find(tree, source, name)) is not None:
            links[name] = found[0]
    if not links:
        yield stay
        return
    with hold_patiently(tree, dict.fromkeys(indexed, links.values())):
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
