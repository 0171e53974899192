"""``fsmq get --exec``: a worker that runs a command for each message.

One thread claims messages for a pool with a thread for each command at a time; another renews the
claims of running commands. The main thread waits for signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.messages.command import end, end_at_last, facts
from fsmq.cli.place.claimable import give_back
from fsmq.cli.place.place import VARIABLE
from fsmq.daemons.process.repeated import StopSignals
from fsmq.daemons.process.tie import tied_to
from fsmq.spool import (
    ClaimEnded,
    FsmqError,
    InvalidValue,
    Message,
    NoSuchQueue,
    Unavailable,
)
from fsmq.spool.claimed import name_of
from fsmq.spool.errors import CLAIM_OVER

# How long one claim waits, so that a stop is noticed in time on an empty queue.
_LOOK_EVERY_S = 1.0
# After a stop, the main thread waits this many of those for a claim under way, then abandons it.
_FEED_PATIENCE = 3
# A claim is renewed when a third of its time is over, so that two renewals may fail.
_RENEWALS = 3
_MAX_DOUBLINGS = 30
# Messages with longer bodies are not read to find out whether they were removed.
_MAX_LOOK_BYTES = 64 * 1024
# With these a shell says that a command is not executable, or not found.
_NOT_RUN = (126, 127)
_STOPPING = b"fsmq: stopping when what runs has finished; a second signal ends it\n"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message is hidden after a failure: ``first`` seconds, then twice as long each
    time, ``limit`` at most."""

    first: float
    limit: float

    def after(self, deliveries: int | None) -> float:
        """Seconds to hide a message after this many deliveries."""
        doublings = min((deliveries or 1) - 1, _MAX_DOUBLINGS)
        return float(min(self.limit, self.first * 2**doublings))


class _Work:
    """One claim of a message. Another claim of it can be at work, too, if this one is over.

    process: its command, once that has begun. is_removed: the command was ended for the removal of
    the message. is_settling: the worker removes the message itself. is_over: renewals have failed.
    """

    __slots__ = ("is_over", "is_removed", "is_settling", "message", "process")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.process: subprocess.Popen[bytes] | None = None
        self.is_removed = self.is_settling = self.is_over = False


class Worker:
    """Runs a command for each message of a queue.

    queue: a queue, several queues, or a channel; each message is settled in its own queue.
    visibility: seconds that a claim holds; None: the queue's setting.
    at: the queue's place, which the command finds in its environment.
    stop_removed: whether a command is ended when its message is removed.
    """

    def __init__(
        self,
        queue: str,
        open_queue: Callable[[str], Any],
        command: str,
        *,
        concurrency: int,
        visibility: float | None,
        backoff: Backoff,
        at: str,
        stop_removed: bool = False,
    ) -> None:
        self._name, self._queue = queue, open_queue(queue)
        self._open: Callable[[str], Any] = cache(open_queue)
        self._at = at
        self._command = command
        self._concurrency = concurrency
        self._visibility = visibility
        self._backoff = backoff
        self._stop_removed = stop_removed
        self._held: set[_Work] = set()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(concurrency)
        self._stop = threading.Event()  # claim no more
        self._signals = StopSignals()
        self._kill = threading.Event()  # end running commands
        self._fed = threading.Event()  # the feeding thread has ended
        self._settled = threading.Event()  # all claims have been settled
        self._signal = 0
        self._has_told = False
        self._failure: FsmqError | Failure | None = None

    def run(self, count: int | None, wait: float | None) -> int:
        """Work until a signal, ``count`` messages, or ``wait`` seconds without one.

        Returns the exit code. Raises NoSuchQueue, InvalidValue; Failure if the command
        cannot be run.
        """
        self._has_told = wait is not None
        if self._visibility is None:
            # With 0 a message would return before its command has begun.
            self._visibility = max(1.0, self._queue.settings().visibility_timeout)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        if self._stop_removed:
            threading.Thread(target=self._look, daemon=True).start()
        with ThreadPoolExecutor(self._concurrency, "command") as pool:
            feeding = threading.Thread(target=self._feed, args=(pool, count, wait), daemon=True)
            feeding.start()
            # With timeouts, because a wait without one would not let signal handlers run.
            patience = _FEED_PATIENCE
            while not self._fed.wait(_LOOK_EVERY_S) and patience:
                # A claim can try for long to reach a server; after a stop it is abandoned.
                patience -= self._stop.is_set()
            while self._is_busy():
                time.sleep(0.02)
        self._settled.set()
        renewing.join()
        if self._failure is not None:
            raise self._failure
        return Exit.DONE if self._signal in (0, signal.SIGTERM) else Exit.INTERRUPTED

    # -- claiming --------------------------------------------------------------------------------

    def _feed(self, pool: ThreadPoolExecutor, count: int | None, wait: float | None) -> None:
        left = count
        idle_since = time.monotonic()
        try:
            while not self._stop.is_set() and left != 0:
                if not self._slots.acquire(timeout=_LOOK_EVERY_S):
                    idle_since = time.monotonic()
                    continue
                message = self._claim()
                if message is not None:
                    work = _Work(message)
                    with self._lock:
                        self._held.add(work)
                    pool.submit(self._work, work)
                    left = None if left is None else left - 1
                    idle_since = time.monotonic()
                    continue
                self._slots.release()
                idle = time.monotonic() - idle_since
                if wait is not None and idle >= wait and not self._is_busy():
                    break
        except FsmqError as error:
            self._failure = error
        finally:
            self._fed.set()

    def _claim(self) -> Any:
        """One message, or None if none came for a while."""
        try:
            messages = self._queue.claim(1, self._visibility, _LOOK_EVERY_S)
        except (Unavailable, ConnectionError) as error:
            # A server that restarts, or a full disk, does not end a worker.
            if getattr(error, "lasting", False):
                raise
            report(f"cannot claim, trying again: {error}")
            self._stop.wait(getattr(error, "retry_after", _LOOK_EVERY_S))
            return None
        if not self._has_told:  # a first message may never come: the queue may be another one
            self._has_told = True
            if not messages:
                report(f"waiting for messages in {self._name}")
        if messages and self._stop.is_set():
            self._settle(messages[0], None, unseen=True)
            return None
        return messages[0] if messages else None

    def _is_busy(self) -> bool:
        with self._lock:
            return bool(self._held)

    # -- working ---------------------------------------------------------------------------------

    def _work(self, work: _Work) -> None:
        try:
            unseen = self._stop.is_set()
            code = None if unseen else self._run_command(work)
            with self._lock:
                work.is_settling = True
            if code in _NOT_RUN:
                self._end_without_command(code)
                # Else a claim that still waits would get it at once: one more delivery in vain.
                self._fed.wait(_FEED_PATIENCE * _LOOK_EVERY_S)
            if not work.is_removed:
                self._settle(work.message, code, unseen=unseen)
        finally:
            with self._lock:
                self._held.discard(work)
            self._slots.release()

    def _run_command(self, work: _Work) -> int | None:
        """The command's exit code, negative for a signal; None if the worker is being stopped."""
        message = work.message
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                env={**os.environ, VARIABLE: self._at, **facts(message)},
                # In a group of its own, so that it can finish after Ctrl-C.
                process_group=0,
                # It must not outlive a killed worker, because another one gets its message then.
                # The tie is to this thread, which lives until the command has ended.
                preexec_fn=tied_to(os.getpid()),
            )
        except OSError as error:
            report(f"{name_of(message)}: cannot run the command: {error.strerror}")
            return Exit.INTERNAL
        with self._lock:
            work.process = process
        if self._kill.is_set():
            end(process)
        process.communicate(message.body)
        return None if self._kill.is_set() and process.returncode else process.returncode

    def _settle(self, message: Any, code: int | None, *, unseen: bool = False) -> None:
        """Acknowledge, bury or release a message by its command's exit code; None: release it.

        unseen: its command has not begun.
        """
        try:
            if code == 0:
                self._ack(message)
            elif unseen or code in _NOT_RUN:
                give_back(self._open(message.queue), message)
            elif code == Exit.BAD_DATA and self._bury(message, f"exit code {code}"):
                report(
                    f"{name_of(message)}: exit code {code}: buried: moved to the dead-letter queue"
                )
            else:
                self._release(message, code)
        except CLAIM_OVER:
            report(f"{name_of(message)}: the claim was lost; another consumer may have it")
        except FsmqError as error:
            report(f"{name_of(message)}: {error}; it returns when its claim ends")

    def _end_without_command(self, code: int) -> None:
        """End the worker: the command cannot be run for any message."""
        what = "is not executable" if code == min(_NOT_RUN) else "is not found"
        problem = f"the command cannot be run: exit code {code}, it {what}"
        advice = "no work was done on its message; correct the command, and start the worker again"
        self._failure = Failure(problem, Exit.UNUSABLE, advice)
        self._stop.set()

    def _ack(self, message: Any) -> None:
        [what] = self._open(message.queue).ack_each([message])
        if what == "missing":
            report(
                f"{name_of(message)}: done, but the message was gone when it was to be acknowledged"
            )
        elif what == "ended":
            raise ClaimEnded(message.queue, name_of(message))

    def _bury(self, message: Any, reason: str) -> bool:
        try:
            message.bury(reason)
        except InvalidValue as error:
            report(f"{name_of(message)}: cannot be buried: {error}")
            return False
        return True

    def _release(self, message: Any, code: int | None) -> None:
        if code is None:
            message.release()
            return
        limit = self._open(message.queue).settings().max_deliveries
        used_up = limit is not None and (message.deliveries or 0) >= limit
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        # Also if they are used up: a message that cannot be buried now is delivered once more.
        delay = self._backoff.after(message.deliveries)
        message.release(delay, how)
        then = "its deliveries are used up" if used_up else f"again in {delay:g} s"
        report(f"{name_of(message)}: {how}, delivery {message.deliveries or '?'}: {then}")

    # -- renewing, stopping ----------------------------------------------------------------------

    def _renew(self) -> None:
        assert self._visibility is not None
        while not self._settled.wait(self._visibility / _RENEWALS):
            for work in self._at_work():
                message = work.message
                if work.is_over:
                    continue
                try:
                    message.renew(self._visibility)
                except (*CLAIM_OVER, NoSuchQueue) as error:
                    with self._lock:
                        if work.is_settling:
                            continue
                        work.is_over = True
                    if isinstance(error, ClaimEnded):
                        report(f"{name_of(message)}: {error}")
                    else:
                        self._note_removed(work)
                except FsmqError as error:
                    report(f"{name_of(message)}: cannot renew, trying again: {error}")

    def _at_work(self) -> list[_Work]:
        with self._lock:
            return [work for work in self._held if work.process is not None]

    def _look(self) -> None:
        """Notice removed messages sooner than renewals do."""
        while not self._settled.wait(_LOOK_EVERY_S):
            for work in self._at_work():
                message = work.message
                if not isinstance(message, Message):
                    continue  # of a log: renewals notice if it is done
                if len(message.body) > _MAX_LOOK_BYTES:
                    continue  # find() reads the body; renewals notice the removal, too
                try:
                    if self._open(message.queue).find(message.id) is None:
                        self._note_removed(work)
                except NoSuchQueue:
                    self._note_removed(work)
                except FsmqError:
                    continue  # renewals report it

    def _note_removed(self, work: _Work) -> None:
        process, name = work.process, name_of(work.message)
        with self._lock:
            if process is None or work.is_removed or work.is_settling:
                return
            work.is_removed = self._stop_removed
        if not self._stop_removed:
            report(f"{name}: it was removed while its command was running")
            return
        report(f"{name}: it was removed: its command is ended")
        end(process)
        threading.Thread(target=end_at_last, args=(process,), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._signals.is_second(number):
            if self._signal:
                return  # the first one repeated, which may have interrupted the next line
            self._signal = number
            self._stop.set()
            # Also if its command is just beginning.
            if self._held:
                # Not to a stream: the code that this handler interrupts may hold its lock.
                os.write(2, _STOPPING)
            return
        self._kill.set()
        for work in list(self._held):
            if work.process is not None:
                end(work.process)
