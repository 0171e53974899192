"""Shards of dyno-queues, queues with an index named ``<queue>@<shard>``, shown as one queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from fsmq.cli.place.place import Place
from fsmq.spool import NoSuchQueue
from fsmq.spool.index.counting import Counts
from fsmq.spool.layout.names import split_shard
from fsmq.spool.views.counts import Overview

shards_option = click.option(
    "--shards", "unfold", is_flag=True, help="Show each shard of a queue, instead of their sum."
)


def groups(place: Place, names: Iterable[str]) -> dict[str, list[str]]:
    """The queues that are shown under each name."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_shown_as(place, name), []).append(name)
    return found


def shards_of(place: Place, queue: str) -> list[str]:
    """The shards of a queue, sorted; none if there is a queue of this name itself."""
    if place.has_queue(queue):
        return []
    return groups(place, place.queues()).get(queue, [])


def together(overviews: Mapping[str, Overview], names: Iterable[str]) -> Overview:
    """The overview of several queues as one."""
    chosen = [overviews[name] for name in names]
    counts = Counts(*(sum(numbers) for numbers in zip(*(o.counts for o in chosen), strict=True)))
    oldest = min((o.oldest for o in chosen if o.oldest is not None), default=None)
    pauses = {o.paused for o in chosen}
    buried = {o.dead_letter_queue for o in chosen}
    limits = {(o.max_in_flight, o.max_rate) for o in chosen}  # each shard has its own
    return Overview(
        counts,
        oldest,
        pauses.pop() if len(pauses) == 1 else None,
        buried.pop() if len(buried) == 1 else None,
        *(limits.pop() if len(limits) == 1 else ()),
    )


def _shown_as(place: Place, name: str) -> str:
    parts = split_shard(name)
    if parts is None:
        return name
    try:
        # Any queue may have such a name; only one with an index is a shard.
        return parts[0] if place.queue(name).settings().index else name
    except NoSuchQueue:
        return name
