"""A spool for one run, with its clock and clients, and its inspection at the end."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsmq.spool import NoSuchQueue, Spool
from fsmq.spool.fsck import Kind as FindingKind
from fsmq.spool.fsck import check
from fsmq.spool.index.events import Event, Kind
from fsmq.spool.layout.duty_cycle import DutyCycle
from fsmq.spool.layout.names import UUID7, split_entry
from tests.interleave import model
from tests.interleave.client import LONG_S, OTHER, WAIT_S, Client, Q, known, lets_wait, may_bury
from tests.interleave.gate import Gate
from tests.interleave.judge import Log
from tests.interleave.model import Operation, Seen, World
from tests.spool.helpers import Clock

# After this time a mover delivers files with foreign names.
_RIPE_S = 1.5
# After this time all claims and delays have ended, and leftovers of writers are removed.
_AGES_S = 200.0
_MOST_OF_ONE_ID = 3
# Longer than any action that is not a wait.
_POLL_S = 1.0
FIRST = World(frozenset({Q, OTHER}), frozenset())


class Scene:
    """A spool with two queues, a running mover, and clients.

    delivers: whether the first client is a mover.
    """

    def __init__(self, gate: Gate, root: Path, delivers: bool = False) -> None:
        self.gate = gate
        self.root = root
        self.clock = Clock()
        self.clock.now = round(time.time(), 3)
        self.log = Log()
        self._open: list[Client] = []
        self._afterwards: list[Callable[[], None]] = []
        self.mover = self.client("mover", delivers=True)
        self.one = self.client("a", delivers=delivers)
        self.other = self.client("b", watch="poll", poll_interval=0.0)
        for queue in sorted(FIRST.queues):
            os.mkdir(root / "queues" / queue)
        self.mover.spool.deliver()
        self.one.spool.deliver()
        self._log_time()

    def client(self, name: str, *, delivers: bool = False, **options: object) -> Client:
        # Reading the clock is a call before which an actor can be stopped.
        gate_clock = self.gate.watched("clock", self.clock)
        spool = Spool(
            self.root,
            sync="fsync",
            workers=1,
            delivers=delivers,
            clock=gate_clock,
            **options,  # type: ignore[arg-type]
        )
        # The interval of polls depends on the duration of the last listing; here each operation
        # lists again.
        spool.context.ready._polling = DutyCycle(math.inf, _POLL_S)
        self._open.append(Client(name, spool, self.log))
        return self._open[-1]

    @contextmanager
    def third_client(self) -> Iterator[None]:
        """Replace the second client and the mover, which may have been stopped."""
        second, mover = self.other, self.mover
        self.other = self.client("c", watch="poll", poll_interval=0.0)
        self.other.claims = second.claims
        self.mover = self.client("mover of c", delivers=True)
        # As if it had run for long: a new mover takes all writers for dead (`restart_mover`).
        delivery = self.mover.spool._delivery
        assert delivery is not None
        delivery._from_new._has_started = True
        try:
            yield
        finally:
            self.other, self.mover = second, mover

    def close(self) -> None:
        for client in self._open:
            client.close()
        shutil.rmtree(self.root)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.gate.pass_time(seconds)
        self._log_time()

    def _log_time(self) -> None:
        self.log.time(int(self.clock() * 1000))

    def deliver(self) -> None:
        self.mover.spool.deliver()

    def restart_mover(self) -> None:
        """Start another mover, which takes all writers for dead."""
        self.client("new mover", delivers=True).deliver()

    def drop_events(self) -> None:
        """Drop file events of the first client, whose loop notices it at once."""
        ready, events = self.one.spool.context.ready, self.one.spool._events
        # The loop would wait for the thread that holds the lock.
        if events is None or not ready._lock.acquire(blocking=False):
            return
        # mq lists again in another thread, after the first client is done.
        ready.on_lost = lambda: self._afterwards.append(ready.rescan)
        try:
            read = events.read
            events.read = lambda timeout_ms=0: [*read(timeout_ms), Event(Kind.LOST, "", "")]  # type: ignore[method-assign]
            try:
                ready.refresh()
            finally:
                events.read = read  # type: ignore[method-assign]
        finally:
            ready._lock.release()

    def end(self) -> str | None:
        """Finish everything and inspect the spool; a problem that no answer shows."""
        for step in self._afterwards:
            step()
        self.pass_time(_RIPE_S)
        self.deliver()
        self._look()
        problem = self._check_census()
        self.pass_time(_AGES_S)
        self.deliver()
        if lets_wait(self.log):
            self.pass_time(WAIT_S + 1)
            self.deliver()
        self.mover.spool.reap()
        problem = problem or self._check() or self._check_index()
        self._drain()
        self.deliver()
        self.mover.spool.reap()
        self._look()
        return problem or self._check_empty()

    def _look(self) -> None:
        op = Operation(len(self.log.entries) + 1, "inspect the tree")
        self.log.ask(op)
        queues = frozenset(os.listdir(self.root / "queues"))
        messages = self.seen(queues)
        settings = frozenset(
            (path.removesuffix(".json"), known(self.mover.spool.context.settings.get(path[:-5])))
            for path in os.listdir(self.root / "config")
        )
        subscribed = frozenset(
            (topic, queue)
            for topic in os.listdir(self.root / "topics")
            for queue in os.listdir(self.root / "topics" / topic)
        )
        op.must = [model.looks(messages, queues, settings, subscribed)]
        op.answer = f"{_text(messages, int(self.clock() * 1000))}; queues {sorted(queues)}"
        op.answer += f"; settings {sorted(settings)}" if settings else ""
        op.answer += f"; subscribed {sorted(subscribed)}" if subscribed else ""
        self.log.answer(op)

    def seen(self, queues: frozenset[str]) -> list[Seen]:
        """All messages in the tree."""
        found = [
            self._one(queue, name, f"queues/{queue}/{name}", hidden=False)
            for queue in queues
            for name in os.listdir(self.root / "queues" / queue)
        ]
        for folder in ("new", "delay"):
            for name in os.listdir(self.root / folder):
                if name[0] != ".":
                    queue, message_id = split_entry(name) or ("", "")
                    found.append(self._one(queue, message_id, f"{folder}/{name}", hidden=True))
        return found

    def _one(self, queue: str, message_id: str, path: str, *, hidden: bool) -> Seen:
        stamp = self.mover.spool.context.stamps.decode(
            message_id, os.stat(self.root / path).st_mtime_ns
        )
        until = stamp.deadline_ms if stamp is not None and hidden else 0
        count = stamp.deliveries if stamp is not None else 0
        return Seen(queue, message_id, (self.root / path).read_bytes(), until, count or 0)

    def _check(self) -> str | None:
        """The errors of fsck. It is slow, so it runs once for trees with the same names."""
        kind = _kind_of(self.root)
        if kind in _SOUND:
            return None
        found = check(self.mover.spool.tree, offline=True, clock=self.clock).findings
        # The check of the log decides whether two messages may have one id.
        found = [f for f in found if f.kind is not FindingKind.DUPLICATE]
        errors = [f"{f.path} {f.reason}" for f in found if f.severity.value == "error"]
        if errors:
            return f"fsck: {errors}"
        _SOUND.add(kind)
        return None

    def _check_index(self) -> str | None:
        """Check that the index of the first client has all ready messages, or is incomplete."""
        ready = self.one.spool.context.ready
        for queue in self.one.spool.queues():
            known = ready.first(queue, 1000)
            there = set(self.one.spool.tree.ready_names(queue) or ())
            if known is not None and not there <= set(known):
                return f"the index of {queue} has {known}, and {sorted(there)} are ready"
        return None

    def _check_census(self) -> str | None:
        census = self.one.spool.census
        if not census._asked:
            return None
        self.other.put(None, delay=10.0)
        self.deliver()
        with suppress(NoSuchQueue):
            size, truth = census.size(Q), self.other.spool.counts(Q).total
            if size != truth:
                return f"the census says {size}, and there are {truth}"
        return None

    def _drain(self) -> None:
        """Claim and remove all messages. One of two with the same id waits for the other."""
        self.gate.pass_time(0.1)  # end the priority of other claimers
        queues = self.one.spool.queues()
        for _ in range(_MOST_OF_ONE_ID):
            for queue in queues:
                if messages := self.one.claim(100, LONG_S, queue):
                    self.one.remove(*(m.id for m in messages), queue=queue)
            if not os.listdir(self.root / "new"):
                return
            self.gate.pass_time(_AGES_S)
            self.deliver()

    def _check_empty(self) -> str | None:
        left = [
            f"{folder}/{name}"
            for folder in ("new", "delay", "remove")
            for name in os.listdir(self.root / folder)
        ]
        return f"left: {left}" if left else None


_SOUND: set[str] = set()
_UUID = re.compile(UUID7)


def _kind_of(root: Path) -> str:
    """All names in a tree."""
    found = []
    for folder, folders, files in os.walk(root):
        found += [f"{folder[len(str(root)) :]}/{name}" for name in (*folders, *files)]
    return _UUID.sub("uuid", " ".join(sorted(found)))


def always(log: Log) -> list[Operation]:
    """Operations that may happen without a request."""
    op = Operation(0, "the mover ends claims")
    if may_bury(log):
        op.often.append(model.buries_used_up(Q, 1))
    if lets_wait(log):
        op.often.append(model.backs_off(op, Q, round(WAIT_S * 1000)))
    return [op] if op.often else []


def _text(messages: list[Seen], now: int) -> str:
    texts = [
        f"{m.body.decode()} in {m.queue}:{m.id}"
        f"{f' until {(m.until - now) / 1000:+g} s' if m.until else ''} count {m.count}"
        for m in sorted(messages)
    ]
    return ", ".join(texts) or "nothing"
