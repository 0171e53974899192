"""The messages of one queue by their groups, and which may be claimed next.

In a fifo queue a message may be claimed if no earlier one of its group is hidden; in any queue, if
fewer of the group are hidden than may be in flight. Hidden messages are those in ``delay/``; there
is no other record of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from ..layout.steps import portions

_NEVER = 1 << 62
# How many void entries of the order are ignored.
_SPARE = 1024
# How many turns after the current one a group gets that has just appeared, or was just served. New
# groups come first, but not into the current turn, which might then never end.
_COMES, _SERVED = 1, 2


class _Group:
    """The messages of a group. ready: a heap; ids that are gone are dropped at their turn.

    turn: groups with a lower one come first.
    """

    __slots__ = ("hidden", "is_queued", "ready", "turn")

    def __init__(self, turn: int) -> None:
        self.ready: list[str] = []
        self.hidden: set[str] = set()
        self.turn = turn
        self.is_queued = False


class GroupView:
    """Names from a listing, updated by events. The caller holds a lock.

    name_of: the group in an id. keeps_order: a hidden message holds up later ones.

    The cost of a step is logarithmic in the number of groups and in the depth of a group.
    """

    def __init__(self, name_of: Callable[[str], str], keeps_order: bool) -> None:
        self._name_of = name_of
        self._keeps_order = keeps_order
        self._groups: dict[str, _Group] = {}
        self._ready: set[str] = set()
        self._order: list[tuple[int, str, str]] = []  # turn, first message, group
        self._turn = 0
        # The turns of groups that went when they were served: they can come again, say by a
        # release, before the others have had their turn.
        self._turns: dict[str, int] = {}
        self._least = _NEVER  # the lowest limit for which a group was too full

    def __len__(self) -> int:
        return len(self._ready)

    def load(self, ready: Iterable[str], hidden: Iterable[str], behind: Iterable[str]) -> None:
        """Replace everything. behind: ids that came during the listing, so older may be missing."""
        for name, group in self._groups.items():
            self._remember(name, group)
        self._groups, self._ready, self._order = {}, set(), []
        for portion in portions(ready):
            for message_id in portion:
                self._ready.add(message_id)
                name = self._name_of(message_id)
                self._group(name).ready.append(message_id)
        for message_id in (*hidden, *behind):
            self._group(self._name_of(message_id)).hidden.add(message_id)
        for name, group in self._groups.items():
            heapify(group.ready)
            self._queue(name, group)

    def add(self, message_id: str) -> bool:
        """Note that a message is ready; whether it was not."""
        if message_id in self._ready:
            return False
        name = self._name_of(message_id)
        group = self._group(name)
        group.hidden.discard(message_id)
        self._ready.add(message_id)
        heappush(group.ready, message_id)
        if group.is_queued and group.ready[0] == message_id:
            group.is_queued = False  # its place in the order has changed
        self._queue(name, group)
        return True

    def hide(self, message_id: str) -> None:
        """Note that a message is hidden."""
        self._ready.discard(message_id)
        self._group(self._name_of(message_id)).hidden.add(message_id)

    def discard(self, message_id: str) -> bool:
        """Note that a message is gone; whether another of its group may be claimed instead."""
        name = self._name_of(message_id)
        group = self._groups.get(name)
        self._ready.discard(message_id)
        if group is None:
            return False
        group.hidden.discard(message_id)
        first = self._first(group)
        if first is None and not group.hidden:
            del self._groups[name]
            self._remember(name, group)
            return False
        self._queue(name, group)
        return first is not None

    def is_ready(self, message_id: str) -> bool:
        """Whether a message is noted as ready."""
        return message_id in self._ready

    def next(self, most: int, mine: set[str]) -> str | None:
        """The next message that may be claimed; if it is, call `hide` and `served`, else `offer`.

        most: how many of a group may be hidden in all. mine: messages that do not count, as they
        are claimed together with this one.
        """
        if most > self._least:
            self._least = _NEVER
            for name, full in self._groups.items():
                self._queue(name, full)
        while self._order:
            turn, first, name = heappop(self._order)
            group = self._groups.get(name)
            if group is None or not group.is_queued or group.turn != turn:
                continue
            now_first = self._first(group)
            if now_first is None:
                group.is_queued = False
                continue
            if now_first != first:
                heappush(self._order, (turn, now_first, name))
                continue
            group.is_queued = False
            if self._may(group, first, most, mine):
                if turn > self._turn:
                    self._turn = turn
                    self._turns.clear()
                return first
            # The group comes back when a hidden message leaves, or with a higher limit.
            self._least = min(self._least, most)
        return None

    def next_with(self, message_id: str, mine: set[str]) -> str | None:
        """The next message of a claimed message's group, to be claimed with it."""
        group = self._groups.get(self._name_of(message_id))
        first = None if group is None else self._first(group)
        if group is None or first is None or not self._may(group, first, 1, mine):
            return None
        group.is_queued = False
        return first

    def served(self, message_id: str) -> None:
        """Note that a message was claimed: its group goes to the end of the order."""
        name = self._name_of(message_id)
        if (group := self._groups.get(name)) is not None:
            group.turn = self._turn + _SERVED
            # A message that has come since may have given the group a place, which is void now.
            group.is_queued = False
            self._queue(name, group)

    def offer(self, message_id: str) -> None:
        """Note that a message is ready, and give its group another turn."""
        if not self.add(message_id):
            name = self._name_of(message_id)
            self._queue(name, self._groups[name])

    def _may(self, group: _Group, first: str, most: int, mine: set[str]) -> bool:
        if len(group.hidden) < most:
            return True
        in_front = 0
        counts_all = most > 1 or not self._keeps_order
        for hidden in group.hidden:
            if hidden not in mine and (counts_all or hidden < first):
                in_front += 1
                if in_front >= most:
                    return False
        return True

    def _first(self, group: _Group) -> str | None:
        while group.ready and group.ready[0] not in self._ready:
            heappop(group.ready)
        return group.ready[0] if group.ready else None

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(self._turns.pop(name, self._turn + _COMES))
        return group

    def _remember(self, name: str, group: _Group) -> None:
        """Remember the turn of a group that goes, if it is later than that of a new group."""
        if group.turn > self._turn + _COMES:
            self._turns[name] = group.turn

    def _queue(self, name: str, group: _Group) -> None:
        first = self._first(group)
        if first is not None and not group.is_queued:
            group.is_queued = True
            group.turn = max(group.turn, self._turn)
            heappush(self._order, (group.turn, first, name))
            if len(self._order) > 2 * len(self._groups) + _SPARE:
                self._tidy()

    def _tidy(self) -> None:
        """Drop void entries of the order, which otherwise only claims take out."""
        self._order = []
        for name, group in self._groups.items():
            first = self._first(group) if group.is_queued else None
            group.is_queued = first is not None
            if first is not None:
                self._order.append((group.turn, first, name))
        heapify(self._order)
