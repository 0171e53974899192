"""Runs the moves of a spool that no other process works on, several at a time.

A process that works on a move holds a lock beside its file; when that ends, with its process,
another one continues. While a move waits for its rate, others go on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

from ..context import Context
from ..durability.locks import Lock, lock
from ..durability.sync import Syncer
from ..errors import Unavailable, as_unavailable, unavailable
from ..index.quarantine import Quarantine
from ..layout.transitions import MOVES
from ..records.peers import host_name
from .order import DONE, FOUND, LOCK, OPEN, STOP, Move, find, load
from .work import MoveWork

# How soon a new move is begun beside others, and a stop is noticed.
_LOOK_EVERY_S = 0.25
_WAIT_S = 0.05


@dataclass(slots=True)
class _Taken:
    """A move on which this process works."""

    held: Lock
    work: MoveWork
    steps: Generator[None, None, None]


class MoveRunner:
    """Runs moves; any number of runners can work on one tree.

    stop: called between parts; if it returns True, the rest is left to another runner.
    """

    def __init__(
        self, context: Context, syncer: Syncer, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._context = context
        self._tree = context.tree
        self._syncer = syncer
        self._stop = stop
        self._taken: dict[str, _Taken] = {}
        self._quarantined = Quarantine()  # those that failed, until their next try
        self._faults: dict[str, OSError | Unavailable] = {}
        self._done = 0

    def run(self) -> int:
        """Run all moves that nobody works on; how many were completed.

        Raises:
            Unavailable: the disk failed or is full; the move is incomplete, and can be tried again.
        """
        return self._run(self._ordered)

    def make(
        self,
        ref: str,
        progress: Callable[[Move], object] = lambda move: None,
        patience_s: float = float("inf"),
    ) -> Move | None:
        """Run one move, or wait until another process has; None if there is none.

        progress: called now and then with the move. patience_s: how long to wait. Raises as
        :meth:`run`.
        """
        end = time.monotonic() + patience_s
        while not self._stop():
            self._run(lambda: [ref], progress)
            move = find(self._context, ref)
            if move is None or move.status != "in_progress" or time.monotonic() >= end:
                return move
            progress(move)  # another process works on it
            time.sleep(_WAIT_S)
        return find(self._context, ref)

    def _run(
        self,
        ordered: Callable[[], list[str]],
        progress: Callable[[Move], object] = lambda move: None,
    ) -> int:
        self._done = 0
        self._faults.clear()
        looked = float("-inf")
        try:
            while not self._stop():
                if time.monotonic() - looked >= _LOOK_EVERY_S:
                    looked = time.monotonic()
                    self._take_all(ordered())
                if not self._taken:
                    break
                self._go_on(progress)
        finally:
            for ref in list(self._taken):
                self._leave(ref)
        for fault in self._faults.values():
            if isinstance(fault, OSError):
                raise unavailable(fault, "cannot move") from fault
            raise fault
        return self._done

    def _ordered(self) -> list[str]:
        with as_unavailable("cannot move"):
            names = self._tree.names(self._tree.folder(MOVES))
        return sorted(n.removesuffix(OPEN) for n in names if n.endswith(OPEN) and n[0] != ".")

    def _take_all(self, refs: list[str]) -> None:
        """Take moves that nobody works on: their processes may have died since the last look."""
        while self._quarantined.pop_due(time.monotonic()):
            continue
        for ref in refs:
            if ref not in self._taken and ref not in self._quarantined:
                try:
                    self._take(ref)
                except (OSError, Unavailable) as error:
                    self._note_fault(ref, error)

    def _note_fault(self, ref: str, error: OSError | Unavailable) -> None:
        """Note the error of a move: it waits for its next try, and does not stop others."""
        self._faults[ref] = error
        self._quarantined.add(ref, time.monotonic())

    def _note_end(self, ref: str) -> None:
        self._done += 1
        self._faults.pop(ref, None)
        self._quarantined.forget(ref)

    def _take(self, ref: str) -> None:
        held = lock(self._tree, self._tree.folder(MOVES, LOCK.format(ref)), os.O_CREAT)
        if held is None:
            return
        try:
            move = load(self._tree, ref, OPEN)
            if move is not None and load(self._tree, ref, DONE) is None:
                with suppress(OSError):  # nothing depends on it
                    held.write(json.dumps({"host": host_name(), "pid": os.getpid()}).encode())
                work = MoveWork(self._context, self._syncer, move)
                self._taken[ref] = _Taken(held, work, work.steps())
                return
            if move is not None:
                self._forget(ref)
                self._note_end(ref)
        except BaseException:
            held.free()
            raise
        held.free()

    def _go_on(self, progress: Callable[[Move], object]) -> None:
        """Do the next step of the move that is due first, or wait a little."""
        ref, taken = min(self._taken.items(), key=lambda one: one[1].work.due)
        pause = taken.work.due - time.monotonic()
        if pause > 0:
            time.sleep(min(pause, _WAIT_S))
            return
        try:
            next(taken.steps)
            progress(taken.work.move)
        except StopIteration:
            self._end(ref, taken)
        except (OSError, Unavailable) as error:
            self._note_fault(ref, error)
            self._leave(ref)

    def _end(self, ref: str, taken: _Taken) -> None:
        try:
            taken.work.keep()
            self._forget(ref)
            self._note_end(ref)
        except OSError as error:
            self._note_fault(ref, error)
        finally:
            del self._taken[ref]
            taken.held.free()

    def _leave(self, ref: str) -> None:
        """Leave a move unfinished; another runner will continue it."""
        taken = self._taken.pop(ref)
        try:
            with suppress(OSError, Unavailable):
                taken.steps.close()  # which syncs what has moved
                if taken.work.move.status == "in_progress":
                    taken.work.keep()
        finally:
            taken.held.free()

    def _forget(self, ref: str) -> None:
        """Unlink the order of a move whose outcome is stored."""
        for suffix in (STOP, FOUND, OPEN):
            self._tree.unlink(self._tree.folder(MOVES, ref + suffix))
