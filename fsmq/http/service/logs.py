"""Ordered logs for handlers: verbs in threads, grouped where they coincide, and long polling.

No log has a thread or a file watch of its own. What this process publishes and acknowledges wakes
waiting requests at once. While requests wait, one thread polls all logs for changes by others.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar

from fsmq.spool import Channel, ChannelMessage, LogEntry, Spool
from fsmq.spool.checks import DutyCycle
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import MAX_ANSWER_BYTES, Asked, ChannelState, LogBatch
from fsmq.spool.resources import Range

from ..connection.turns import LoopTurns
from ..guard.admission import Admission
from ..routing.call import Call
from ..running.threads import Threads
from .asking import Answered, answer_of
from .batcher import Batcher
from .log_pages import read_page
from .waiters import Waiters

T = TypeVar("T")
# Own threads, because verbs of logs wait for syncs and for locks of other processes.
_THREADS = 16
# Polling for changes by other processes takes at most a twentieth of the time.
_LOOKS = DutyCycle(0.05, least_s=0.05)
# A file's time is only as exact as the kernel's tick, so recent changes are looked at again.
_TICK_S = 0.05


class _Got(NamedTuple):
    """The result of a claim. again_in: if it is empty, the seconds until a next one may succeed."""

    messages: list[ChannelMessage]
    again_in: float | None


_OfChannel = tuple[str, str]
_Finish = tuple[list[Range], int | None]
# The state of a log or channel when it was last looked at; None counts as changed.
_Stamp = tuple[int, ...] | None


class OpenLogs:
    """The logs of a spool for handlers, on one event loop.

    poll_interval: seconds between two looks if the spool is on a network filesystem.
    """

    def __init__(
        self, spool: Spool, admission: Admission, max_waiters: int, poll_interval: float
    ) -> None:
        self.waiters = Waiters(max_waiters, LoopTurns())
        self._spool = spool
        self._admission = admission
        blocks = spool.open_logs.blocks
        blocks.budget = min(blocks.budget, admission.limits.memory // 4)
        self._pause = poll_interval if spool.tree.network else 0.0
        self._threads = Threads(_THREADS)
        self._waited: dict[str, Counter[str]] = {}  # of each log, its lines with waiting requests
        self._news: dict[str, int] = {}  # by line: how often there was something new
        self._seen: dict[str, _Stamp] = {}
        self._looking: asyncio.Task[None] | None = None
        self._stopping = False
        self._publishing: Batcher[str, list[LogEntry], int] = Batcher(self._publish)
        self._claiming: Batcher[_OfChannel, Asked, _Got] = Batcher(self._claim, self._return)
        self._finishing: Batcher[_OfChannel, _Finish, int] = Batcher(self._finish)

    def begin_stop(self) -> None:
        """End all waits."""
        self._stopping = True
        self.waiters.wake_all()

    def close(self) -> None:
        """End the threads; nothing may be in progress any more."""
        if self._looking is not None:
            self._looking.cancel()
        self._threads.close()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a verb of a log in a thread."""
        return await self._threads.run(function, *arguments)

    # -- publish ---------------------------------------------------------------------------------

    async def publish(self, log: str, messages: list[LogEntry]) -> int:
        """Store consecutive messages, all or none; returns the offset of the first.

        Raises what :meth:`Log.publish_many` raises.
        """
        return await answer_of(partial(self.begin_publish, log, messages))

    def begin_publish(self, log: str, messages: list[LogEntry], answered: Answered[int]) -> None:
        def done(outcome: int | Exception) -> None:
            if isinstance(outcome, int):
                self.published(log, len(messages))
            answered(outcome)

        self._publishing.begin(log, messages, done)

    async def _publish(self, log: str, batches: list[list[LogEntry]]) -> Sequence[int | FsmqError]:
        return await self.run(self._spool.log(log).publish_each, batches)

    def published(self, log: str, number: int) -> None:
        """Wake requests that wait for messages of a log."""
        for line in list(self._waited.get(log, ())):
            self._news[line] += 1
            # All readers of the log are woken, but of those at a channel only one for each message.
            self.waiters.wake(line, number if "/" in line else len(self.waiters))

    # -- channels --------------------------------------------------------------------------------

    async def claim(
        self,
        call: Call,
        of: _OfChannel,
        count: int,
        visibility: float | None,
        wait: float,
    ) -> list[ChannelMessage]:
        """Claim up to ``count`` messages, waiting up to ``wait`` seconds for the first.

        If the client has hung up, the messages that were claimed for it are released at once.
        """
        end = time.monotonic() + min(wait, call.sender.seconds_left)
        line = "/".join(of)
        with ExitStack() as place:
            if wait:
                place.enter_context(self._in_line(of[0], line))
            waited, turn = False, self.waiters.last_place()
            while True:
                call.admit()
                news = self._news.get(line, 0)
                max_bytes = self._most_bytes(call.account)
                got = await self._claiming.ask(of, Asked(count, visibility, max_bytes))
                if got.messages:
                    return await self._held(call, of, got.messages)
                left = end - time.monotonic()
                if left <= 0 or self._stopping or call.is_gone:
                    return []
                if not waited:
                    place.enter_context(self._admission.waiting(call.account))
                pause = left if got.again_in is None else min(left, got.again_in + 0.001)
                if not await self._wait(call, line, news, pause, turn, again=waited):
                    return []
                waited = True

    async def _held(
        self, call: Call, of: _OfChannel, messages: list[ChannelMessage]
    ) -> list[ChannelMessage]:
        """The claimed messages that fit into memory for the answer; the others are released."""
        try:
            fitting = _fitting(call, [len(message.body) for message in messages])
        except FsmqError:
            self._return(of, _Got(messages, None))
            raise
        self._return(of, _Got(messages[fitting:], None))
        messages = messages[:fitting]
        if call.is_gone:
            self._return(of, _Got(messages, None))
            call.hang_up()
            return []
        return messages

    def begin_claim(
        self,
        account: str | None,
        of: _OfChannel,
        visibility: float | None,
        answered: Callable[[list[ChannelMessage] | Exception], None],
    ) -> None:
        """Claim one message without waiting; ``answered`` gets it, or none.

        account: whose limit of memory applies to the answer.
        """

        def got(outcome: _Got | Exception) -> None:
            answered(outcome.messages if isinstance(outcome, _Got) else outcome)

        self._claiming.begin(of, Asked(1, visibility, self._most_bytes(account)), got)

    def release(self, of: _OfChannel, messages: list[ChannelMessage]) -> None:
        """Release messages that no client has seen; this does not count as a delivery."""
        self._return(of, _Got(messages, None))

    async def _claim(self, of: _OfChannel, asked: list[Asked]) -> Sequence[_Got]:
        return await self.run(_claim_each, self._channel(of), asked)

    def _return(self, of: _OfChannel, got: _Got) -> None:
        """Release messages; if that fails, they are ready again after their deadlines."""
        if got.messages:
            self._threads.submit(lambda: _release(self._channel(of), got.messages))
            asyncio.get_running_loop().call_later(_TICK_S, self.changed, of, len(got.messages))

    async def ack(self, of: _OfChannel, ranges: list[Range], generation: int | None) -> int:
        """Acknowledge messages, durably; returns how many had not been done before.

        Raises NotInFlight, ClaimVoid.
        """
        number = await self._finishing.ask(of, (ranges, generation))
        self.changed(of, number)
        return number

    def begin_ack(
        self,
        of: _OfChannel,
        offset: int,
        generation: int | None,
        answered: Callable[[int | Exception], None],
    ) -> None:
        """The same for one message, with a callback."""

        def done(outcome: int | Exception) -> None:
            if isinstance(outcome, int):
                self.changed(of, outcome)
            answered(outcome)

        self._finishing.begin(of, ([(offset, offset + 1)], generation), done)

    async def _finish(self, of: _OfChannel, asked: list[_Finish]) -> Sequence[int | FsmqError]:
        return await self.run(self._channel(of).done_ranges_each, asked)

    async def change(self, of: _OfChannel, verb: Callable[[Channel], T], number: int = 1) -> T:
        """Carry out a verb of a channel after which up to ``number`` messages may be ready."""
        result = await self.run(verb, self._channel(of))
        self.changed(of, number)
        return result

    async def state(self, of: _OfChannel) -> ChannelState:
        """The state of a channel."""
        return await self.run(self._channel(of).state)

    def changed(self, of: _OfChannel, number: int) -> None:
        """Note that messages of a channel may be ready now."""
        line = "/".join(of)
        if line in self._news:
            self._news[line] += 1
            self.waiters.wake(line, number)

    def _channel(self, of: _OfChannel) -> Channel:
        return self._spool.log(of[0]).channel(of[1])

    # -- read ------------------------------------------------------------------------------------

    async def page(
        self, call: Call, log: str, start: int, count: int, wait: float, most: int = 1 << 62
    ) -> LogBatch:
        """Messages from an offset on, waiting up to ``wait`` seconds for the first.

        most: bytes of their bodies, of which the last may exceed it.

        Raises OffsetGone, NoSuchLog, Unavailable.
        """
        end = time.monotonic() + min(wait, call.sender.seconds_left)
        opened = self._spool.log(log)
        with ExitStack() as place:
            if wait:
                place.enter_context(self._in_line(log, log))
            waited, turn = False, self.waiters.last_place()
            while True:
                call.admit()
                news = self._news.get(log, 0)
                room = min(most, self._most_bytes(call.account))
                batch = await self.run(
                    read_page, self._admission, call.account, opened, start, count, room
                )
                if batch.messages or batch.lost:
                    fitting = _fitting(call, [len(message.body) for message in batch.messages])
                    if fitting < len(batch.messages):
                        behind = batch.messages[fitting].offset
                        lost = behind - start - fitting  # offsets have no gaps
                        batch = LogBatch(batch.messages[:fitting], behind, lost)
                    return batch
                left = end - time.monotonic()
                if left <= 0 or self._stopping or call.is_gone:
                    return batch
                if not waited:
                    place.enter_context(self._admission.waiting(call.account))
                if not await self._wait(call, log, news, left, turn, again=waited):
                    return batch
                waited = True

    def _most_bytes(self, account: str | None) -> int:
        """How many bytes of bodies to read for an answer: half of the memory that is left.

        The last body can exceed it, and the form of bodies in JSON takes additional memory.
        """
        return min(MAX_ANSWER_BYTES, self._admission.room(account) // 2)

    # -- waiting ---------------------------------------------------------------------------------

    @contextmanager
    def _in_line(self, log: str, line: str) -> Iterator[None]:
        """Count a request as one that may wait in a line, so that it misses nothing."""
        of_log = self._waited.setdefault(log, Counter())
        of_log[line] += 1
        self._news.setdefault(line, 0)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            of_log[line] -= 1
            if not of_log[line]:
                del of_log[line], self._news[line]
                self._seen.pop(line, None)
            if not of_log:
                del self._waited[log]
                self._seen.pop(log, None)

    async def _wait(
        self, call: Call, line: str, news: int, seconds: float, turn: int, *, again: bool
    ) -> bool:
        """Wait until there may be something new; False if the client has gone.

        news: the value of ``_news`` before the request last looked for messages.
        """
        if self._news[line] == news:
            await self.waiters.wait(line, seconds, call.on_hang_up, place=turn, again=again)
        return not (call.is_gone or call.sender.is_over)

    async def _look(self) -> None:
        """Poll, while requests wait, for changes by other processes."""
        cost = 0.0
        while self._waited:
            await asyncio.sleep(max(self._pause, _LOOKS.pause(cost)))
            lines = {log: [one for one in of if "/" in one] for log, of in self._waited.items()}
            started = time.monotonic()
            stamps = await self.run(self._stamps, lines)
            cost = time.monotonic() - started
            for log, of_log in lines.items():
                if grown := _grown(self._seen.get(log), stamps[log]):
                    self.published(log, grown)
                for line in of_log:
                    if self._seen.get(line) != stamps[line] or stamps[line] is None:
                        self.changed((log, line.partition("/")[2]), 1)
            self._seen = {
                line: stamp
                for line, stamp in stamps.items()
                if line in self._waited or line in self._waited.get(line.partition("/")[0], ())
            }

    def _stamps(self, lines: dict[str, list[str]]) -> dict[str, _Stamp]:
        """The stamps of logs and channels now; a stamp differs if something has changed."""
        found: dict[str, _Stamp] = {}
        now = self._spool.context.clock()
        for log, of_log in lines.items():
            found[log] = None
            with suppress(FsmqError):
                found[log] = (self._spool.log(log).end(),)
            for line in of_log:
                at = self._channel((log, line.partition("/")[2])).changed_at()
                found[line] = None if at is None or now - at / 1e9 < _TICK_S else (at,)
        return found


def _fitting(call: Call, sizes: Sequence[int]) -> int:
    """Reserve memory for an answer with messages of these sizes; for how many there was enough.

    Raises Overloaded, TooManyRequests: there is not enough for the first.
    """
    for number, size in enumerate(sizes):
        try:
            call.take(size, is_first=not number)
        except FsmqError:
            if not number:
                raise
            return number
    return len(sizes)


def _grown(before: _Stamp, now: _Stamp) -> int:
    """How many messages were added to a log; 1 if that is not known."""
    return 1 if before is None or now is None else abs(now[0] - before[0])


def _claim_each(channel: Channel, asked: list[Asked]) -> list[_Got]:
    """Claim for each in turn."""
    each = channel.claim_each(asked)
    again_in = None if each[-1] else channel.again_in()
    return [_Got(messages, None if messages else again_in) for messages in each]


def _release(channel: Channel, messages: list[ChannelMessage]) -> None:
    with suppress(FsmqError):
        channel.release_unseen(messages)
