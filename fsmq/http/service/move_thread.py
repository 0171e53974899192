"""Carries out moves of whole queues in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import Move, begin_redrive

from ..running.threads import Threads

log = logging.getLogger(__name__)
# How often to look for moves that another process left unfinished.
_LOOK_S = 5.0


class MoveThread:
    """One thread that carries out all moves of a spool that no other process carries out."""

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
        """Stop, and leave an unfinished move for another process to continue."""
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
        """Create a move, which begins at once. Raises what Spool.begin_move raises."""

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
        """Create a redrive, which begins at once. Raises what Spool.begin_redrive raises.

        homes: patterns of the names of queues to which messages may go back; None: all.
        """
        context = self._spool.context
        return await self._order(lambda: begin_redrive(context, dead, to, rate, only, homes))

    async def stop_move(self, ref: str) -> Move | None:
        """Stop a move early; None if there is no such move."""
        return await self._threads.run(self._spool.stop_move, ref)

    async def _order(self, begin: Callable[[], Move]) -> Move:
        move = await self._threads.run(begin)
        self._ordered.set()
        return move

    def _work(self) -> None:
        """Carry out moves until `stop`, including those that another process left unfinished."""
        while not self._ending:
            try:
                self._spool.make_moves(lambda: self._ending)
            except FsmqError as error:
                log.warning("cannot move, trying again: %s", error)
            except Exception:
                log.exception("cannot move, trying again")  # the thread has to live on
            self._ordered.wait(_LOOK_S)
            self._ordered.clear()
