"""Survey: counts and ages of all queues in one pass over the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..context import Context
from ..layout.names import facts, split_entry
from ..layout.transitions import DELAY, NEW
from .counts import Counts


class Overview(NamedTuple):
    """One queue at a glance. ``oldest``: when the oldest message that waits (new or ready) was
    created, in Unix seconds; None if none waits whose id tells."""

    counts: Counts
    oldest: float | None


def survey(context: Context, queue: str | None = None) -> dict[str, Overview]:
    """All queues in the order of their names, or one. Raises OSError.

    Each folder is listed once, however many queues there are; of ``delay/`` every entry is looked
    at. Messages of queues that do not exist are left out, and where all are wanted so are queues
    whose folder only another user may list.
    """
    tree = context.tree
    names = tree.queues() if queue is None else [queue]
    new: dict[str, list[str]] = {name: [] for name in names}
    for entry in tree.names(tree.folder(NEW)):
        parts = split_entry(entry)
        if parts is not None and parts[0] in new:
            new[parts[0]].append(parts[1])
    in_flight, delayed = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    now_ms = context.now_ms()
    for entry in tree.names(tree.folder(DELAY)):
        parts = split_entry(entry)
        if parts is None or parts[0] not in new:
            continue
        found = tree.stat(tree.folder(DELAY, entry))
        if found is None:
            continue
        state = context.stamps.hidden_state(parts[1], found.st_mtime_ns, now_ms)
        (delayed if state == "delayed" else in_flight)[parts[0]] += 1
    result = {}
    for name in names:
        try:
            ready = tree.ready_names(name)
        except PermissionError:
            if queue is not None:
                raise
            continue  # fsck names it; it must not hide the others
        if ready is None:
            continue  # deleted meanwhile
        counts = Counts(len(new[name]), len(ready), in_flight[name], delayed[name])
        result[name] = Overview(counts, _oldest(new[name] + ready))
    return result


def _oldest(ids: Sequence[str]) -> float | None:
    """When the oldest of these was created, in Unix seconds."""
    # The least name is the oldest, but for priorities and plain names; with a million of them it
    # matters that the usual case is one call of min().
    bare = [i[4:] if i[0] == "p" and i[3:4] == "." else i for i in ids]
    created = facts(min(bare)).created_ms if bare else None
    if created is None:
        known = (facts(name).created_ms for name in bare)
        created = min((ms for ms in known if ms is not None), default=None)
    return None if created is None else created / 1000
