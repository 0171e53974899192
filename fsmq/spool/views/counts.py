"""Counts of all queues at a glance, and how far the mover and the reaper lag behind."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..context import Context
from ..index.counting import Counts, ReadyCount
from ..layout.names import split_entry
from ..layout.transitions import DELAY, NEW, REMOVE


class Overview(NamedTuple):
    """One queue at a glance. ``oldest``: when the oldest waiting message (new or ready) was
    created, in Unix seconds; None if no waiting id tells. ``paused``: as the setting, None if it is
    over. ``dead_letter_queue``, ``max_in_flight``, ``max_rate``: as the settings."""

    counts: Counts
    oldest: float | None
    paused: bool | str | None = None
    dead_letter_queue: str | None = None
    max_in_flight: int | None = None
    max_rate: float | None = None


def survey(context: Context, queue: str | None = None) -> dict[str, Overview]:
    """All queues in the order of their names, or one. Raises OSError.

    Each folder is listed once, however many queues there are; every entry of ``delay/`` is read.
    Messages of missing queues are left out; so are, if all are asked for, queues whose folder or
    settings only another user may read.
    """
    tree = context.tree
    names = tree.queues() if queue is None else [queue]
    new: dict[str, set[str]] = {name: set() for name in names}
    for entry in tree.names(tree.folder(NEW)):
        parts = split_entry(entry)
        if parts is not None and parts[0] in new:
            new[parts[0]].add(parts[1])
    in_flight, delayed = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    now_ms = context.now_ms()
    for entry in tree.names(tree.folder(DELAY)):
        parts = split_entry(entry)
        if parts is None or parts[0] not in new:
            continue
        found = tree.stat(tree.folder(DELAY, entry))
        if found is None:
            continue
        new[parts[0]].discard(parts[1])  # it has been delivered since
        state = context.stamps.hidden_state(parts[1], found.st_mtime_ns, now_ms)
        (delayed if state == "delayed" else in_flight)[parts[0]] += 1
    result = {}
    for name in names:
        ready = ReadyCount(new[name])
        try:
            if not tree.show_ready(name, ready.count_and_date):
                continue  # just deleted
            settings = context.settings.get(name)
        except PermissionError:
            if queue is not None:
                raise
            continue  # fsck reports it; it must not hide the others
        ready.date(list(new[name]))
        counts = Counts(len(new[name]), ready.number, in_flight[name], delayed[name])
        paused = settings.pause_at(context.clock())
        dead, most, rate = settings.dead_letter_queue, settings.max_in_flight, settings.max_rate
        result[name] = Overview(counts, ready.oldest, paused, dead, most, rate)
    return result


class Lag(NamedTuple):
    """How far the mover and the reaper lag behind. Times are seconds.

    undelivered: the age of the oldest message in ``new/`` whose queue exists.
    late: how long ago the first timer of ``delay/`` ended.
    undeliverable: messages of queues that do not exist, by queue.
    removed: entries of ``remove/``.
    redelivered: the most deliveries of a message in ``delay/``, by queue.
    """

    undelivered: float
    late: float
    undeliverable: Counter[str]
    removed: int
    redelivered: dict[str, int]


def measure_lag(context: Context) -> Lag:
    """Read each entry of ``new/``, ``delay/`` and ``remove/`` once. Raises OSError."""
    tree, now = context.tree, context.clock()
    queues = set(tree.queues())
    undelivered = late = 0.0
    undeliverable: Counter[str] = Counter()
    redelivered: dict[str, int] = {}
    for folder in (NEW, DELAY):
        for name in tree.names(tree.folder(folder)):
            parts = split_entry(name)
            if parts is None:
                continue
            queue, message_id = parts
            if queue not in queues:
                undeliverable[queue] += 1
                continue
            found = tree.stat(tree.folder(folder, name))
            if found is None:
                continue
            stamp = context.stamps.decode(message_id, found.st_mtime_ns)
            deadline = stamp.deadline_ms / 1000 if stamp is not None else 0.0
            if folder == DELAY:
                # Without a deadline it is due since it arrived here.
                late = max(late, now - max(deadline, found.st_ctime))
                count = context.stamps.deliveries(message_id, found.st_mtime_ns)
                redelivered[queue] = max(redelivered.get(queue, 0), count)
            else:
                undelivered = max(undelivered, now - found.st_ctime)
    removed = sum(1 for _ in tree.walk(tree.folder(REMOVE)))
    return Lag(undelivered, late, undeliverable, removed, redelivered)
