"""What a consumer claims for a batch: a share from each queue first, then the rest."""

from __future__ import annotations

from collections.abc import Sequence

from ..context import OpenSpool
from ..durability.prepared import join
from ..durability.sync import Dirty
from ..errors import NoSuchQueue
from ..layout.of_queues import OfQueues
from ..layout.steps import giving_way
from .claims import Claimed, PreparedClaims, Room, claim_ids
from .window import Window

# The claims of a batch by queue.
Claims = dict[str, list[Claimed]]


class Shares:
    """Claims messages of several queues, so that the backlog of one keeps no other waiting.

    visibility: seconds until a claim ends; None: each queue's setting.
    """

    def __init__(self, spool: OpenSpool, visibility: float | None) -> None:
        self._spool = spool
        self._visibility = visibility
        self._windows: OfQueues[Window] = OfQueues(spool.context.tree)
        self._before_ns: int | None = None  # in a pass: skip what came later
        self._turn = 0

    def begin_pass(self, before_ns: int) -> None:
        """From now on skip messages that came into their queues later than this ctime."""
        self._before_ns = before_ns
        self.forget()

    def forget(self) -> None:
        """Forget what is known of the queues, as messages have gone back to them."""
        self._windows.clear()

    def claim(
        self, queues: Sequence[str], count: int, max_bytes: int | None, claims: Claims
    ) -> None:
        """Claim up to ``count`` messages, durably, and add them to ``claims``.

        Deleted queues are skipped. Each call begins with another queue: with the next one that has
        had no share, if there is one. max_bytes: of all files together, unless the first one has
        more.

        Raises:
            InvalidValue, Unavailable: what was claimed before is in ``claims``.
        """
        if not queues:
            return
        turn = self._turn % len(queues)
        in_turn = (*queues[turn:], *queues[:turn])
        room = None if max_bytes is None else Room(max_bytes)
        asked = self._claim_shares(in_turn, count, room, claims)
        if room is not None:
            room.begin(room.max_bytes)
        for queue in in_turn[:asked]:
            left = count - sum(map(len, claims.values()))
            if left <= 0 or (room is not None and room.is_full):
                break
            window = self._windows.get(queue)
            if window is not None and window.has_more:
                more = self._spool.complete(self._prepared(queue, left, room))
                claims[queue] += more
        unserved = self._unserved(in_turn[:asked], claims)
        for queue in [queue for queue, of in claims.items() if not of]:
            del claims[queue]
        if claims:
            self._turn = turn + (unserved or (asked if asked < len(queues) else 1))

    def _unserved(self, asked: Sequence[str], claims: Claims) -> int:
        """The place of the first queue but one whose next message found no room; 0 if all did.

        Only the first queue of a batch has room for any message. So one of large messages could
        wait for ever if its turn were over.
        """
        for place, queue in enumerate(asked):
            window = self._windows.get(queue)
            if place and not claims[queue] and window is not None and window.has_more:
                return place
        return 0

    def _claim_shares(
        self, queues: Sequence[str], count: int, room: Room | None, claims: Claims
    ) -> int:
        """Claim each queue's share, with one sync for all; returns how many queues were asked."""
        share = max(1, count // len(queues))
        prepared: list[PreparedClaims] = []
        taken = 0
        try:
            for queue in giving_way(queues):
                if taken >= count or (room is not None and room.is_full):
                    break
                if room is not None:
                    room.begin(room.max_bytes // len(queues))
                prepared.append(self._prepared(queue, min(share, count - taken), room))
                taken += len(prepared[-1].claims)
        except BaseException:
            for one in prepared:
                one.abort()
            raise
        found = self._spool.complete(join(prepared))
        claims.update(zip(queues, found, strict=False))
        return len(found)

    def _prepared(self, queue: str, count: int, room: Room | None) -> PreparedClaims:
        window = self._windows.get(queue)
        if window is None:
            is_pass = self._before_ns is not None
            window = self._windows[queue] = Window(self._spool.context.tree, queue, once=is_pass)
        try:
            return claim_ids(
                self._spool.context,
                window,
                count,
                room=room,
                visibility=self._visibility,
                before_ns=self._before_ns,
            )
        except NoSuchQueue:
            del self._windows[queue]
            return PreparedClaims(Dirty(), list)
