"""The methods of a spool about its moves in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..context import Context
from ..durability.sync import Syncer
from . import order
from .order import Move
from .runner import MoveRunner

# How long to wait for the end of a stopped move, whose worker may be slow.
_STOP_PATIENCE_S = 5.0


class MovesOfSpool:
    """The methods of a spool about moves in the background."""

    context: Context
    syncer: Syncer

    def begin_move(
        self,
        source: str,
        target: str,
        *,
        dedup: bool = False,
        in_flight: bool = True,
        delayed: bool = False,
        count: int | None = None,
        rate: float | None = None,
        only: Sequence[str] | None = None,
    ) -> Move:
        """Order a move of all messages to another queue; some process makes it.

        dedup: both are dedup queues. in_flight: claimed and delayed messages move, too, and become
        ready. delayed: unclaimed delayed messages move, too, and stay delayed. count: how many
        move, the ones that would be claimed last; None: all. rate: the most messages a second.
        only: the ids to move, at most 1000; None: all.

        Raises InvalidValue, Unavailable.
        """
        what = order.What(dedup, in_flight, delayed, count, rate, only)
        return order.begin(self.context, source, target, what)

    def begin_redrive(
        self,
        dead: str,
        *,
        to: str | None = None,
        rate: float | None = None,
        only: Sequence[str] | None = None,
    ) -> Move:
        """Order a redrive of all ready messages of a dead-letter queue; some process makes it.

        to: the queue to which all go; None: each to the queue from which it was buried. rate: the
        most messages a second. only: the ids to redrive, at most 1000; None: all.

        Raises InvalidValue, NoSuchQueue, Unavailable.
        """
        return order.begin_redrive(self.context, dead, to, rate, only)

    def find_move(self, ref: str) -> Move | None:
        """The progress of a move; None if there is none. Raises Unavailable."""
        return order.find(self.context, ref)

    def moves(self, count: int = 100) -> list[Move]:
        """All moves in progress, and the latest ended ones; the newest first.

        count: at most this many, 1 to 1000, but always all in progress.

        Raises InvalidValue, Unavailable.
        """
        return order.latest(self.context, count)

    def stop_move(self, ref: str) -> Move | None:
        """End a move early: what has moved stays. Returns its progress; None if there is none.

        It may still be in progress if another process works on it and is slow.
        Raises Unavailable.
        """
        found = order.order_stop(self.context, ref)
        if found is None or found.status != "in_progress":
            return found
        return MoveRunner(self.context, self.syncer).make(ref, patience_s=_STOP_PATIENCE_S)

    def make_moves(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Make the moves that nobody works on; how many were completed. Raises Unavailable.

        mq does so beside its other work; programs without mq call this.
        """
        return MoveRunner(self.context, self.syncer, stop).run()

    def make_move(
        self, ref: str, progress: Callable[[Move], object] = lambda move: None
    ) -> Move | None:
        """Make one move, or wait until another process has; None if there is none.

        progress: called now and then with the move's progress. Raises Unavailable.
        """
        return MoveRunner(self.context, self.syncer).make(ref, progress)
