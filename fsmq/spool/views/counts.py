"""Counts: how many messages a queue has in each state, and which have waited for too long."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..context import Context
from ..errors import FsmqError, QueueFull
from ..index import listings
from ..layout.duty_cycle import DutyCycle
from ..layout.names import facts, split_entry
from ..layout.of_queues import OfQueues
from ..layout.stamps import Stamps
from ..layout.transitions import DELAY, NEW, REMOVE
from ..layout.tree import Tree

# How old the count may be that enforces max_depth.
_THROTTLE = DutyCycle(0.05, least_s=1.0)


class Counts(NamedTuple):
    """Messages of one queue, by state."""

    new: int = 0  # accepted, not yet delivered
    ready: int = 0  # may be claimed
    in_flight: int = 0  # claimed and not acknowledged
    delayed: int = 0  # sent with a delay that runs

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def unfinished(self) -> int:
        """Ready and in flight: the work for which consumers are needed now."""
        return self.ready + self.in_flight

    def as_dict(self) -> dict[str, int]:
        """The counts by state, and ``unfinished``."""
        return {**self._asdict(), "unfinished": self.unfinished}


def count(tree: Tree, stamps: Stamps, queue: str, now_ms: int) -> Counts:
    """Count by listing. Raises OSError."""
    new = set(_ids(tree, NEW, queue))
    ready = _Ready(new)
    tree.show_ready(queue, ready.count)
    hidden = _ids(tree, DELAY, queue)
    new.difference_update(hidden)
    in_flight = delayed = 0
    for message_id in hidden:
        found = tree.stat(tree.folder(DELAY, f"{queue}:{message_id}"))
        if found is None:
            continue
        if stamps.hidden_state(message_id, found.st_mtime_ns, now_ms) == "delayed":
            delayed += 1
        else:
            in_flight += 1
    return Counts(len(new), ready.number, in_flight, delayed)


class _Ready:
    """What is to be told of the ready ids of a queue, which may be too many to hold.

    new: what stood in ``new/``; what was delivered since then is taken out, as it is seen again.
    oldest: in Unix seconds, as far as `date` has seen them.
    """

    def __init__(self, new: set[str]) -> None:
        self.new = new
        self.number = 0
        self.oldest: float | None = None

    def count(self, ids: list[str]) -> None:
        self.number += len(ids)
        if self.new:
            self.new.difference_update(ids)

    def date(self, ids: list[str]) -> None:
        found = [one for one in (self.oldest, oldest_of(ids)) if one is not None]
        self.oldest = min(found, default=None)

    def count_and_date(self, ids: list[str]) -> None:
        self.count(ids)
        self.date(ids)


def _ids(tree: Tree, folder: str, queue: str) -> list[str]:
    prefix = queue + ":"
    parts = (split_entry(n) for n in tree.names(tree.folder(folder)) if n.startswith(prefix))
    return [part[1] for part in parts if part is not None and part[0] == queue]


class Uncounted(FsmqError):
    """A queue's depth has to be counted first, with :meth:`Depths.learn`; nothing was done."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the messages of queue {queue!r} have to be counted")
        self.queue = queue


class _Depth:
    """The last count of one queue."""

    __slots__ = ("counting", "depth", "until")

    def __init__(self) -> None:
        self.counting = threading.Lock()
        self.until = 0.0  # monotonic seconds
        self.depth = 0


class Depths:
    """Enforces ``max_depth``: with a count that is seldom older than a second, plus later puts."""

    def __init__(self, tree: Tree, counted: Callable[[str], int]) -> None:
        self._counted = counted
        self._known: OfQueues[_Depth] = OfQueues(tree)
        self._lock = threading.Lock()

    def learn(self, queue: str) -> _Depth:
        """Count a queue whose depth is not known. Of several threads that ask at once, one counts.

        Raises what the count raises.
        """
        with self._lock:
            known = self._known.get(queue)
            if known is None:
                known = self._known[queue] = _Depth()
        with known.counting:
            started = time.monotonic()
            if started < known.until:
                return known
            depth = self._counted(queue)
            cost = time.monotonic() - started
            with self._lock:
                known.depth = depth
                known.until = started + _THROTTLE.pause(cost)
        return known

    def admit(self, queue: str, limit: int | None, more: int) -> None:
        """Let ``more`` messages in.

        Raises:
            QueueFull
            Uncounted: where this thread may list no folder.
        """
        if limit is None:
            return
        known = self._known.get(queue)
        if known is None or time.monotonic() >= known.until:
            if not listings.are_allowed():
                raise Uncounted(queue)
            known = self.learn(queue)
        with self._lock:
            if known.depth + more > limit:
                raise QueueFull(queue, limit)
            known.depth += more


class Overview(NamedTuple):
    """One queue at a glance. ``oldest``: when the oldest message that waits (new or ready) was
    created, in Unix seconds; None if none waits whose id tells. ``paused``: as the setting, None
    where it does not hold now. ``dead_letter_queue``: where it buries. ``max_in_flight``,
    ``max_rate``: as the settings."""

    counts: Counts
    oldest: float | None
    paused: bool | str | None = None
    dead_letter_queue: str | None = None
    max_in_flight: int | None = None
    max_rate: float | None = None


def survey(context: Context, queue: str | None = None) -> dict[str, Overview]:
    """All queues in the order of their names, or one. Raises OSError.

    Each folder is listed once, however many queues there are; of ``delay/`` every entry is looked
    at. Messages of queues that do not exist are left out, and where all are wanted so are queues
    whose folder or settings only another user may read.
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
        new[parts[0]].discard(parts[1])  # it was delivered since then
        state = context.stamps.hidden_state(parts[1], found.st_mtime_ns, now_ms)
        (delayed if state == "delayed" else in_flight)[parts[0]] += 1
    result = {}
    for name in names:
        ready = _Ready(new[name])
        try:
            if not tree.show_ready(name, ready.count_and_date):
                continue  # it was deleted just now
            settings = context.settings.get(name)
        except PermissionError:
            if queue is not None:
                raise
            continue  # fsck names it; it must not hide the others
        ready.date(list(new[name]))
        counts = Counts(len(new[name]), ready.number, in_flight[name], delayed[name])
        paused = settings.pause_at(context.clock())
        dead, most, rate = settings.dead_letter_queue, settings.max_in_flight, settings.max_rate
        result[name] = Overview(counts, ready.oldest, paused, dead, most, rate)
    return result


def oldest_of(ids: Sequence[str]) -> float | None:
    """When the oldest of these was created, in Unix seconds."""
    # The least name is the oldest, but for priorities and plain names; with a million of them it
    # matters that the usual case is one call of min().
    bare = [i[4:] if i[0] == "p" and i[3:4] == "." else i for i in ids]
    created = facts(min(bare)).created_ms if bare else None
    if created is None:
        known = (facts(name).created_ms for name in bare)
        created = min((ms for ms in known if ms is not None), default=None)
    return None if created is None else created / 1000


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
    """Look at ``new/``, ``delay/`` and ``remove/``, each entry once. Raises OSError."""
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
                # Without a deadline it is due since it came here.
                late = max(late, now - max(deadline, found.st_ctime))
                count = context.stamps.deliveries(message_id, found.st_mtime_ns)
                redelivered[queue] = max(redelivered.get(queue, 0), count)
            else:
                undelivered = max(undelivered, now - found.st_ctime)
    removed = sum(1 for _ in tree.walk(tree.folder(REMOVE)))
    return Lag(undelivered, late, undeliverable, removed, redelivered)
