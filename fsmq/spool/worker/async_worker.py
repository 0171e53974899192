"""The worker: claims messages, hands them to a handler, and settles them by its outcome.

There is one implementation, on an event loop. Handlers run there or in threads (``handlers.py``),
and the queue is a library's or a client's (``source.py``).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from fsmq.words import many

from ..claimed import Bury, Claim, Retry, name_of
from ..errors import ClaimEnded, FsmqError, InvalidValue, Unavailable
from ..layout.messages.dead_letter import failure_of, reason_of
from .handlers import Claimed, Failed, Handler, WorkerOptions
from .patience import backoff
from .removals import Removals
from .source import Source

log = logging.getLogger(__name__)
_RENEWAL_S = 2.0
_LAST_WORDS_S = 2.0


class AsyncWorker:
    """Calls a coroutine for each message of a queue.

    - While a handler runs, its claim is renewed after each third of ``visibility``.
    - When it returns, the message is removed. When it raises, the message is released, with a
      back-off that doubles with each delivery; :class:`Retry` names another delay, and
      :class:`Bury` buries it. The queue's ``max_deliveries`` limits the tries.
    - When the message is lost (somebody deleted it, or the server or the disk was unavailable for
      longer than the claim lasts), ``claim.lost`` is True and the handler is cancelled. If it
      returns nevertheless, its message is removed, unless its claim has ended.
    - While the server or the disk is unavailable it keeps trying, in the end every 5 seconds.
    - On :meth:`stop`, SIGTERM or SIGINT it stops claiming, releases messages that no handler has
      begun, and waits up to ``stop_timeout`` seconds for the handlers; those that still run are
      cancelled and their messages released. A second signal has its usual effect.

    Make one with :meth:`~fsmq.AsyncQueue.worker`; it runs once.
    """

    def __init__(self, source: Source, handler: Handler, options: WorkerOptions) -> None:
        self._source = source
        self._removals: Removals[Claimed] = Removals(source.ack_each, attrgetter("queue"))
        self._handler = handler
        self._options = options
        self._stopping = asyncio.Event()
        self._lost = 0
        self._working: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    @property
    def lost(self) -> int:
        """The number of messages lost so far: their claims ended before their handlers."""
        return self._lost

    async def run(self, *, signals: bool = True) -> None:
        """Work until stopped.

        signals: whether SIGTERM and SIGINT stop it (if this is the main thread).

        Raises:
            NoSuchQueue, AccessDenied, InvalidValue and other errors that a retry would not change;
            running handlers may finish first.
        """
        with self._lock:
            if self._loop is not None:
                raise RuntimeError("a worker runs once: make another")
            self._loop = asyncio.get_running_loop()
        patience = self._options.stop_timeout
        with _stopped_by_signals(self._loop, self.stop, wanted=signals):
            try:
                await self._claim_until_stopped()
            except asyncio.CancelledError:
                patience = 0.0
                raise
            finally:
                self._stopping.set()
                try:
                    await self._drain(patience)
                finally:
                    await self._removals.close()
                    await self._source.close()

    def stop(self) -> None:
        """Ask it to stop; returns at once. Safe in threads, and before :meth:`run`."""
        with self._lock:
            if self._loop is None:
                self._stopping.set()
                return
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            pass  # it has ended

    # -- claiming --------------------------------------------------------------------------------

    async def _claim_until_stopped(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            free = self._options.concurrency - len(self._working)
            if free == 0:
                await self._unless_stopping(_first(self._working))
                continue
            try:
                messages = await self._unless_stopping(
                    self._source.claim(free, self._options.visibility)
                )
            except (ConnectionError, Unavailable) as error:
                if getattr(error, "lasting", False):
                    raise
                if not failures:
                    log.warning("cannot claim from %r, retrying: %s", self._source.name, error)
                pause = backoff(failures, getattr(error, "retry_after", None))
                failures += 1
                await self._unless_stopping(asyncio.sleep(pause))
                continue
            if failures:
                log.info("claiming from %r again", self._source.name)
            failures = 0
            for message in messages or ():
                self._begin(message)

    def _begin(self, message: Claimed) -> None:
        work = self._release_unhandled if self._stopping.is_set() else self._work
        task = asyncio.create_task(work(message))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _unless_stopping(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        """The result, or None if the worker is stopped first.

        A claim that is cancelled releases what it gets.
        """
        task = asyncio.create_task(awaited)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            task.cancel()
            stopping.cancel()

    async def _drain(self, patience: float) -> None:
        if not self._working:
            return
        _, unfinished = await asyncio.wait(self._working, timeout=patience)
        if unfinished:
            number = many(len(unfinished), "handler")
            log.warning("%s did not end in %g seconds", number, patience)
            for task in unfinished:
                task.cancel()
            await asyncio.wait(unfinished, timeout=_LAST_WORDS_S)

    # -- one message -----------------------------------------------------------------------------

    async def _work(self, message: Claimed) -> None:
        claim = Claim(self._options.visibility, self._stopping)
        handler = asyncio.ensure_future(self._handler.call(message, claim))
        ended = asyncio.Event()
        handler.add_done_callback(lambda _: ended.set())
        heart = asyncio.create_task(self._renew(message, claim, handler, ended))
        try:
            await ended.wait()
        except asyncio.CancelledError:  # stop_timeout has passed
            handler.cancel()
            if self._handler.stoppable:
                await ended.wait()
            else:
                heart.cancel()
                log.warning("message %s is left to a thread that does not end", name_of(message))
                return
        error = _raised(handler)
        try:
            if error is not None:
                await asyncio.wait([heart], timeout=_RENEWAL_S)
        finally:
            heart.cancel()
        try:
            await self._settle(message, claim, error)
        except ClaimEnded as failure:
            self._lose(message, claim, str(failure))
        except FsmqError as failure:
            log.warning("message %s comes back when its claim ends: %s", name_of(message), failure)

    async def _renew(
        self, message: Claimed, claim: Claim, handler: asyncio.Future[Any], ended: asyncio.Event
    ) -> None:
        options = self._options
        while not await _happens(ended, options.visibility / 3):
            asked_at = time.monotonic()
            left = claim.seconds_left
            try:
                async with asyncio.timeout(left):
                    await self._source.renew(message, options.visibility, left)
            except (FsmqError, TimeoutError) as error:
                if not ended.is_set():
                    reason = str(error) or "there was no answer before the claim ended"
                    self._lose(message, claim, reason)
                    if self._handler.stoppable:
                        handler.cancel()
                return
            claim.renewed(asked_at, options.visibility)

    def _lose(self, message: Claimed, claim: Claim, reason: str) -> None:
        if not claim.lost:
            claim.lose()
            self._lost += 1
            log.warning("message %s is lost: %s", name_of(message), reason)

    async def _settle(self, message: Claimed, claim: Claim, error: BaseException | None) -> None:
        """Remove, release or bury the message, depending on how the handler ended."""
        if error is None:
            if await self._removals.remove(message) == "ended":
                raise ClaimEnded(message.queue, name_of(message))
        elif claim.lost:
            pass  # another consumer may have it, so it must not be released
        elif isinstance(error, Bury):
            await self._bury(message, claim, error)
        elif isinstance(error, asyncio.CancelledError):
            await self._release(message, claim, 0.0)
        elif isinstance(error, Retry):
            await self._release(message, claim, error.delay)
        else:
            delay = self._options.delay_after(message.deliveries)
            log.error(
                "the handler failed on message %s (delivery %s), released for %.1f seconds",
                name_of(message),
                message.deliveries,
                delay,
                exc_info=error,
            )
            await self._release(message, claim, delay, failure_of(error))

    async def _bury(self, message: Claimed, claim: Claim, error: Bury) -> None:
        log.info("message %s goes to the dead-letter queue: %s", name_of(message), error)
        try:
            await self._source.bury(message, reason_of(error), claim.seconds_left)
        except InvalidValue as failure:
            delay = self._options.backoff_max
            log.error(
                "message %s cannot be buried, again in %g s: %s", name_of(message), delay, failure
            )
            await self._release(message, claim, delay)

    async def _release(
        self, message: Claimed, claim: Claim, delay: float, reason: str | None = None
    ) -> None:
        await self._source.release(message, delay, claim.seconds_left, reason)

    async def _release_unhandled(self, message: Claimed) -> None:
        claim = Claim(self._options.visibility, self._stopping)
        try:
            await self._source.give_back(message, claim.seconds_left)
        except FsmqError as failure:
            log.warning("message %s comes back when its claim ends: %s", name_of(message), failure)


def _raised(handler: asyncio.Future[Any]) -> BaseException | None:
    if handler.cancelled():
        return asyncio.CancelledError()
    error = handler.exception()
    return error.error if isinstance(error, Failed) else error


async def _first(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(set(tasks), return_when=asyncio.FIRST_COMPLETED)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


@contextmanager
def _stopped_by_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], *, wanted: bool
) -> Iterator[None]:
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        while before:
            number, action = before.popitem()
            loop.remove_signal_handler(number)
            signal.signal(number, action if action is not None else signal.SIG_DFL)

    def first() -> None:
        restore()
        stop()

    if wanted and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        restore()
