"""Publishes of many threads as one: those that arrive while one is running form the next group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from ..errors import Unavailable
from .segment.record import Entry

# The callers of a finished group mostly come again, one after the other: without waiting for a
# moment the first would form a group of one, with its own sync.
_PATIENCE_S, _PAUSE_S = 0.0005, 0.00005


class Batch:
    """Messages of one publish, on their way into the log."""

    __slots__ = ("done", "entries", "error", "first", "woken")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.first = -1
        self.done = False
        self.error: Exception | None = None
        self.woken = threading.Lock()  # released when the thread has to act
        self.woken.acquire()


class GroupCommit:
    """Lets one thread publish for all that wait. leading: held meanwhile. run: publishes a group,
    and sets the offsets and errors of its batches; what it raises is the error of the rest."""

    def __init__(self, leading: threading.Lock, run: Callable[[list[Batch]], None]) -> None:
        self._leading = leading
        self._run = run
        self._joining = threading.Lock()
        self._open: list[Batch] = []
        self._leader: Batch | None = None  # the first batch of the leading thread, or the next one
        self._callers = 0  # that have joined
        self._last = 1  # callers of the last group

    def publish_each(self, each: Iterable[Sequence[Entry]]) -> list[int | Exception]:
        """Publish independent batches: the first offset of each, or the error from ``run``."""
        return [one.first if one.error is None else _copy(one.error) for one in self._join(each)]

    def _join(self, each: Iterable[Sequence[Entry]]) -> list[Batch]:
        own = [Batch(entries) for entries in each]
        if not own:
            return own
        first = own[0]
        try:
            with self._joining:
                self._open += own
                self._callers += 1
                leads = self._leader is None
                if leads:
                    self._leader = first
            if not leads:
                first.woken.acquire()  # until they are done, or this thread has to lead
            if not first.done:
                self._lead()
        except BaseException:  # also from a signal handler: the others must not wait for this one
            self._leave(own)
            raise
        return own

    def _lead(self) -> None:
        """Publish for all that have joined, and give the lead to one that has joined since."""
        group: list[Batch] = []
        try:
            with self._leading:
                self._gather()
                with self._joining:
                    group, self._open = self._open, []
                    self._last, self._callers = self._callers, 0
                self._run_all(group)
        finally:
            for batch in group:
                batch.woken.release()
            self._give_lead()

    def _leave(self, own: list[Batch]) -> None:
        with self._joining:
            if own[0] in self._open:  # nobody has taken them
                self._open = [batch for batch in self._open if batch not in own]
                self._callers -= 1
            leads = self._leader is own[0]
        if leads:
            self._give_lead()

    def _give_lead(self) -> None:
        with self._joining:
            self._leader = following = self._open[0] if self._open else None
        if following is not None:
            following.woken.release()

    def _gather(self) -> None:
        """Wait briefly until there are as many callers as last time."""
        end = time.monotonic() + _PATIENCE_S
        while self._callers < self._last and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def _run_all(self, group: list[Batch]) -> None:
        try:
            self._run(group)
        except Exception as error:  # raised to all of the group
            for batch in group:
                batch.error = batch.error or error
        except BaseException:  # from a signal handler; nothing is known of the others
            for batch in group:
                batch.error = batch.error or Unavailable("the publish was interrupted")
            raise
        finally:
            for batch in group:
                batch.done = True


def _copy(error: Exception) -> Exception:
    """A copy of an error for another thread: raising one object in many mixes their tracebacks."""
    if isinstance(error, Unavailable) and type(error) is Unavailable:
        return Unavailable(str(error), error.retry_after)
    try:
        made = type(error).__new__(type(error), *error.args)
        made.__dict__.update(error.__dict__)
        made.__cause__ = error
        return made
    except Exception:
        return error
