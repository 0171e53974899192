"""What a spool has of its moves in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..context import Context
from ..durability.sync import Syncer
from . import order
from .order import Move
from .runner import MoveRunner

# A move that is to stop is asked for its end for so long; whoever works on it may be slow.
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

        dedup: both are dedup queues. in_flight: claimed and delayed messages move, too, and are
        ready then. delayed: those that nobody has claimed move, too, and stay delayed. count: so
        many move, those that would be claimed last; None is all. rate: at most so many a second.
        only: the ids of those that move, at most 1000; None is all.

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

        to: the queue to which all go; None: each to the queue from which it was buried. rate: at
        most so many a second. only: the ids of those that go, at most 1000; None is all.

        Raises InvalidValue, NoSuchQueue, Unavailable.
        """
        return order.begin_redrive(self.context, dead, to, rate, only)

    def find_move(self, ref: str) -> Move | None:
        """How far a move is; None if there is none. Raises Unavailable."""
        return order.find(self.context, ref)

    def moves(self, count: int = 100) -> list[Move]:
        """All moves in progress, and the last of those that have ended; the newest first.

        count: at most so many of both, 1 to 1000, but all of the first.

        Raises InvalidValue, Unavailable.
        """
        return order.latest(self.context, count)

    def stop_move(self, ref: str) -> Move | None:
        """End a move early: what has moved stays. How far it is; None if there is none.

        It is still in progress where another process works on it that takes its time.
        Raises Unavailable.
        """
        found = order.order_stop(self.context, ref)
        if found is None or found.status != "in_progress":
            return found
        return MoveRunner(self.context, self.syncer).make(ref, patience_s=_STOP_PATIENCE_S)

    def make_moves(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Make the moves that nobody works on; how many were completed. Raises Unavailable.

        mq does so beside its other work; a program that runs alone calls this.
        """
        return MoveRunner(self.context, self.syncer, stop).run()

    def make_move(
        self, ref: str, progress: Callable[[Move], object] = lambda move: None
    ) -> Move | None:
        """Make one move, or wait until another process has; None if there is none.

        progress: called now and then with how far it is. Raises Unavailable.
        """
        return MoveRunner(self.context, self.syncer).make(ref, progress)
