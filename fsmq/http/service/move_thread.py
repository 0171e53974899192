"""Carries out moves of whole queues in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import Move, begin_redrive, ended_of

from ..problems import TooManyRequests
from ..running.threads import Threads

log = logging.getLogger(__name__)
# How often to look for moves that another process left unfinished.
_LOOK_S = 5.0
# How many moves of one key may be in progress. Each takes turns with those of others, a descriptor,
# and the memory of a list of its messages.
MOST_OF_A_KEY = 20


class MoveThread:
    """One thread that carries out all moves of a spool that no other process carries out.

    Where a method takes ``who``, it is the key that begins a move, and to which the limit applies;
    None if the server has no keys.
    """

    def __init__(self, spool: Spool, threads: Threads) -> None:
        self._spool = spool
        self._threads = threads
        self._thread: threading.Thread | None = None
        self._ordered = threading.Event()
        self._ending = False
        # Who has begun them: moves that may be in progress by their references, and those that are
        # about to begin.
        self._begun: dict[object, str | None] = {}

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
        who: str | None,
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
        """Create a move, which begins at once.

        Raises what Spool.begin_move raises, TooManyRequests.
        """

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

        return await self._order(who, begin)

    async def redrive(
        self,
        who: str | None,
        dead: str,
        to: str | None,
        rate: float | None,
        only: Sequence[str] | None = None,
        homes: Sequence[str] | None = None,
    ) -> Move:
        """Create a redrive, which begins at once.

        homes: patterns of the names of queues to which messages may go back; None: all. Raises
        what Spool.begin_redrive raises, TooManyRequests.
        """
        context = self._spool.context
        return await self._order(who, lambda: begin_redrive(context, dead, to, rate, only, homes))

    async def stop_move(self, ref: str) -> Move | None:
        """Stop a move early; None if there is no such move."""
        return await self._threads.run(self._spool.stop_move, ref)

    async def _order(self, who: str | None, begin: Callable[[], Move]) -> Move:
        refs = [one for one in self._begun if isinstance(one, str)]
        for ref in await self._threads.run(ended_of, self._spool.context, refs):
            self._begun.pop(ref, None)
        if who is not None and sum(one == who for one in self._begun.values()) >= MOST_OF_A_KEY:
            words = f"the key {who!r} has its maximum of {MOST_OF_A_KEY} moves in progress"
            raise TooManyRequests(words, int(_LOOK_S))
        place = object()
        self._begun[place] = who
        try:
            move = await self._threads.run(begin)
            self._begun[move.ref] = who
        finally:
            del self._begun[place]
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
