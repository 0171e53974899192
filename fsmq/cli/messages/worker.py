"""``fsmq get --exec``: a worker that runs a command for each message.

One thread feeds messages to as many others as there may be commands at a time; one more renews the
claims of those that are worked on. The main thread waits for signals.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any, TypeAlias

from fsmq.cli.failures import Exit, report
from fsmq.cli.place.claimable import as_message
from fsmq.cli.place.place import VARIABLE
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
from fsmq.wire import moment

# How long one claim waits: a stop is noticed so late at most, where nothing comes.
_LOOK_EVERY_S = 1.0
# After a stop so many of those pass before a claim that is under way is left behind.
_FEED_PATIENCE = 3
# A claim is renewed when a third of its time is over, so that two renewals may fail.
_RENEWALS = 3
_MAX_DOUBLINGS = 30
# A message with a longer body is not looked at to find out whether it was removed.
_MAX_LOOK_BYTES = 64 * 1024
# A command that is to end has this time.
_GRACE_S = 10.0
# A message as it is known here: several queues may have one of the same id.
_Key: TypeAlias = tuple[str, str]
_STOPPING = b"fsmq: stopping when what runs has finished; a second signal ends it\n"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message is hidden after a failure: ``first`` seconds, then twice as long each
    time, ``limit`` at most."""

    first: float
    limit: float

    def after(self, deliveries: int | None) -> float:
        """Seconds after so many deliveries."""
        doublings = min((deliveries or 1) - 1, _MAX_DOUBLINGS)
        return float(min(self.limit, self.first * 2**doublings))


class Worker:
    """Runs a command for each message of a queue.

    queue: from which it claims, or a channel; each message is then settled where it is from.
    visibility: seconds that a claim holds; None: the queue's setting.
    at: the queue's place, which the command finds in its environment.
    stop_removed: whether the command of a message ends that is removed meanwhile.
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
        self._queue = open_queue(queue)
        self._open: Callable[[str], Any] = cache(open_queue)
        self._at = at
        self._command = command
        self._concurrency = concurrency
        self._visibility = visibility
        self._backoff = backoff
        self._stop_removed = stop_removed
        self._held: dict[_Key, Any] = {}
        self._running: dict[_Key, subprocess.Popen[bytes]] = {}
        self._removed: set[_Key] = set()  # whose commands were ended, for nobody wants them
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(concurrency)
        self._stop = threading.Event()  # claim no more
        self._kill = threading.Event()  # end what runs
        self._fed = threading.Event()  # no more will be claimed
        self._settled = threading.Event()  # nothing is held any more
        self._signal = 0
        self._failure: FsmqError | None = None

    def run(self, count: int | None, wait: float | None) -> int:
        """Work until a signal, ``count`` messages, or ``wait`` seconds without one.

        Returns the exit code. Raises NoSuchQueue, InvalidValue.
        """
        if self._visibility is None:
            # Zero would bring a message back before its command has begun.
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
            # Timeouts, since a wait without one would not be interrupted for a signal's handler.
            patience = _FEED_PATIENCE
            while not self._fed.wait(_LOOK_EVERY_S) and patience:
                # A claim may try for long to reach a server; after a stop it is left behind.
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
                    with self._lock:
                        self._held[_key(message)] = message
                    pool.submit(self._work, message)
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
            # A server that is restarted, or a disk that is full, ends no worker.
            if getattr(error, "lasting", False):
                raise
            report(f"cannot claim, trying again: {error}")
            self._stop.wait(getattr(error, "retry_after", _LOOK_EVERY_S))
            return None
        if messages and self._stop.is_set():
            self._settle(messages[0], None)
            return None
        return messages[0] if messages else None

    def _is_busy(self) -> bool:
        with self._lock:
            return bool(self._held)

    # -- working ---------------------------------------------------------------------------------

    def _work(self, message: Any) -> None:
        try:
            self._settle(message, self._run_command(message))
        finally:
            with self._lock:
                self._held.pop(_key(message), None)
                self._running.pop(_key(message), None)
                self._removed.discard(_key(message))
            self._slots.release()

    def _run_command(self, message: Any) -> int | None:
        """The command's exit code, negative for a signal; None if it was not to be run."""
        if self._stop.is_set():
            return None
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.PIPE,
                env={**os.environ, VARIABLE: self._at, **_facts(message)},
                # Out of our group: Ctrl-C is for us, and the command may finish.
                process_group=0,
                # It must not outlive a worker that is killed: its message comes back, and someone
                # else works on it. This thread lives until the command has ended.
                preexec_fn=tied_to(os.getpid()),
            )
        except OSError as error:
            report(f"{name_of(message)}: cannot run the command: {error.strerror}")
            return Exit.INTERNAL
        with self._lock:
            self._running[_key(message)] = process
        if self._kill.is_set():
            _end(process)
        process.communicate(message.body)
        return None if self._kill.is_set() and process.returncode else process.returncode

    def _settle(self, message: Any, code: int | None) -> None:
        """Acknowledge, bury or release a message by what its command said; None: release it."""
        if _key(message) in self._removed:
            return
        try:
            if code == 0:
                self._ack(message)
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
        # Without deliveries left it goes to the dead-letter queue, and has nothing to wait for.
        delay = 0.0 if used_up else self._backoff.after(message.deliveries)
        message.release(delay)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        then = "its deliveries are used up" if used_up else f"again in {delay:g} s"
        report(f"{name_of(message)}: {how}, delivery {message.deliveries or '?'}: {then}")

    # -- renewing, stopping ----------------------------------------------------------------------

    def _renew(self) -> None:
        assert self._visibility is not None
        lost: set[_Key] = set()
        while not self._settled.wait(self._visibility / _RENEWALS):
            for message in self._at_work():
                if _key(message) in lost:
                    continue
                try:
                    message.renew(self._visibility)
                except (*CLAIM_OVER, NoSuchQueue) as error:
                    with self._lock:
                        gone = _key(message) in self._running
                    if not gone:
                        continue
                    lost.add(_key(message))
                    if isinstance(error, ClaimEnded):
                        report(f"{name_of(message)}: {error}")
                    else:
                        self._note_removed(message)
                except FsmqError as error:
                    report(f"{name_of(message)}: cannot renew, trying again: {error}")

    def _at_work(self) -> list[Any]:
        with self._lock:
            return [message for key, message in self._held.items() if key in self._running]

    def _look(self) -> None:
        """Notice what is removed before its renewal would."""
        while not self._settled.wait(_LOOK_EVERY_S):
            for message in self._at_work():
                if not isinstance(message, Message):
                    continue  # nothing is removed from a log; renewals notice what is done
                if len(message.body) > _MAX_LOOK_BYTES:
                    continue  # to look is to read; the renewals notice it, too
                try:
                    if self._open(message.queue).find(message.id) is None:
                        self._note_removed(message)
                except NoSuchQueue:
                    self._note_removed(message)
                except FsmqError:
                    continue  # the renewals tell of it

    def _note_removed(self, message: Any) -> None:
        with self._lock:
            process = self._running.get(_key(message))
            if process is None or _key(message) in self._removed:
                return
            if self._stop_removed:
                self._removed.add(_key(message))
        if not self._stop_removed:
            report(f"{name_of(message)}: it was removed while its command was running")
            return
        report(f"{name_of(message)}: it was removed: its command is ended")
        _end(process)
        threading.Thread(target=_end_at_last, args=(process,), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._stop.is_set():
            self._signal = number
            self._stop.set()
            # Not only what is known to run: a command begins a moment before that is noted. What
            # is held from now on will not be run.
            if self._held:
                # Not by a stream: its lock may be held by what this handler has interrupted.
                os.write(2, _STOPPING)
            return
        self._kill.set()
        for process in list(self._running.values()):
            _end(process)


def _key(message: Any) -> _Key:
    return message.queue, name_of(message)


def _end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


def _end_at_last(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        _end(process, signal.SIGKILL)


def _facts(claimed: Any) -> Mapping[str, str]:
    """The environment of a command."""
    message = as_message(claimed)
    found = {
        "FSMQ_ID": message.id,
        "FSMQ_QUEUE": message.queue,
        "FSMQ_DELIVERIES": "" if message.deliveries is None else str(message.deliveries),
        "FSMQ_PRIORITY": str(message.priority),
        "FSMQ_CREATED_AT": "" if message.created_at is None else moment(message.created_at),
        "FSMQ_CONTENT_TYPE": message.content_type or "",
        "FSMQ_KEY": getattr(claimed, "key", None) or "",
    }
    for name, value in message.attributes.items():
        plain = re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        found[f"FSMQ_ATTRIBUTE_{plain}"] = value.replace("\0", "")
    return found
