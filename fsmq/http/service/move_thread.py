"""Makes moves of whole queues beside the requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError
from fsmq.spool.moves.order import Move, begin_redrive

from ..running.threads import Threads

log = logging.getLogger(__name__)
# How often moves are looked for that another process left.
_LOOK_S = 5.0


class MoveThread:
    """One thread that makes all moves of a spool that no other process makes."""

    def __init__(self, spool: Spool, threads: Threads) -> None:
        self._spool = spool
        self._threads = threads
        self._thread: threading.Thread | None = None
        self._ordered = threading.Event()
        self._ending = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="fsmq-moves", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Leave a move where it is; another process goes on with it."""
        self._ending = True
        self._ordered.set()
        if self._thread is not None:
            await self._threads.run(self._thread.join)

    async def begin(
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
        """Order a move, which begins at once. Raises what Spool.begin_move raises."""

        def begin() -> Move:
            return self._spool.begin_move(
                source,
                target,
                dedup=dedup,
                in_flight=in_flight,
                delayed=delayed,
                count=count,
                rate=rate,
                only=only,
            )

        return await self._order(begin)

    async def redrive(
        self,
        dead: str,
        to: str | None,
        rate: float | None,
        only: Sequence[str] | None = None,
        homes: Sequence[str] | None = None,
    ) -> Move:
        """Order a redrive, which begins at once. Raises what Spool.begin_redrive raises.

        homes: the patterns of names of the queues to which it may bring them; None is all.
        """
        context = self._spool.context
        return await self._order(lambda: begin_redrive(context, dead, to, rate, only, homes))

    async def _order(self, begin: Callable[[], Move]) -> Move:
        move = await self._threads.run(begin)
        self._ordered.set()
        return move

    def _work(self) -> None:
        """Make moves until the end: also those that another process began and left."""
        while not self._ending:
            try:
                self._spool.make_moves(lambda: self._ending)
            except FsmqError as error:
                log.warning("cannot move, trying again: %s", error)
            except Exception:
                log.exception("cannot move, trying again")  # without this thread no move is made
            self._ordered.wait(_LOOK_S)
            self._ordered.clear()
