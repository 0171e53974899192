"""A log and a channel against a model: orders, poison, seeks, retention, clock steps.

Two spools, which share no memory, use one log; now and then one is reopened.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fsmq.spool import ChannelMessage, Spool
from fsmq.spool.errors import ClaimVoid, NotInFlight
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming.dispatch import Asked
from fsmq.spool.log.log import Log, LogEntry
from tests.spool.helpers import Clock
from tests.spool.machines import machine_settings

HOLD_S, MOST, WINDOW = 10.0, 3, 7
DEAD = "dead"
ORDERS = {"none": "none", "key": "key", "strict": "strict", "skips": "key"}


@dataclass
class Held:
    """A message that is claimed, or released with a delay."""

    deliveries: int
    deadline: float
    is_claim: bool


@dataclass
class Reader:
    """The expected state of a channel."""

    order: str
    skips: bool
    done: set[int] = field(default_factory=set)
    held: dict[int, Held] = field(default_factory=dict)
    hands: dict[int, ChannelMessage] = field(default_factory=dict)
    old: list[ChannelMessage] = field(default_factory=list)
    skipped: int = 0
    lost: int = 0
    buried: int = 0
    paused: bool = False


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.clock = Clock()
        self.spools = [self._open(), self._open()]
        self.messages: list[tuple[bytes, str | None]] = []
        self.first = 0
        log = self._log(0)
        log.create(segment_bytes=4096, retain_for=1e6, writers="host")
        self.readers: dict[str, Reader] = {}
        self.dead: set[int] = set()

    @initialize(
        name=st.sampled_from(sorted(ORDERS)),
        keys=st.lists(st.sampled_from([None, "a", "b"]), min_size=8, max_size=12),
    )
    def create(self, name: str, keys: list[str | None]) -> None:
        skips, order = name == "skips", ORDERS[name]
        self.publish(0, keys, large=False)
        self._channel(0, "reader").create(
            "first",
            order=order,
            visibility_timeout=HOLD_S,
            max_deliveries=MOST,
            on_poison="skip" if skips else "block",
            dead_letter_queue=DEAD,
            max_window=WINDOW,
        )
        self.readers["reader"] = Reader(order, skips)

    def _open(self) -> Spool:
        return Spool(self.root / "mq", sync="none", clock=self.clock, delivers=False)

    def teardown(self) -> None:
        for spool in self.spools:
            spool.close()
        shutil.rmtree(self.root)

    def _log(self, process: int) -> Log:
        return self.spools[process].log("users")

    def _channel(self, process: int, name: str) -> Channel:
        return self._log(process).channel(name)

    # -- rules -----------------------------------------------------------------------------------

    @rule(
        process=st.integers(0, 1),
        keys=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=6),
        large=st.booleans(),
    )
    def publish(self, process: int, keys: list[str | None], large: bool) -> None:
        size = 1500 if large else 5
        new = [(b"%0*d" % (size, len(self.messages) + n), key) for n, key in enumerate(keys)]
        got = self._log(process).publish_many([LogEntry(body, key=key) for body, key in new])
        assert got == range(len(self.messages), len(self.messages) + len(new))
        self.messages += new

    @rule(
        process=st.integers(0, 1),
        name=st.just("reader"),
        count=st.sampled_from([1, 1, 2, 3, 50]),
    )
    def claim(self, process: int, name: str, count: int) -> None:
        reader = self.readers[name]
        self._end_poison(reader)
        self._hand_out(reader, count, self._channel(process, name).claim(count))

    @rule(
        process=st.integers(0, 1),
        name=st.just("reader"),
        counts=st.lists(st.sampled_from([1, 1, 1, 2]), min_size=1, max_size=6),
    )
    def claim_each(self, process: int, name: str, counts: list[int]) -> None:
        """Simultaneous claims get the same messages as successive ones."""
        reader = self.readers[name]
        self._end_poison(reader)
        found = self._channel(process, name).claim_each([Asked(count) for count in counts])
        for count, messages in zip(counts, found, strict=True):
            self._hand_out(reader, count, messages)

    def _end_poison(self, reader: Reader) -> None:
        """The first step of a claim."""
        if not reader.paused:
            self._lose(reader)
            self._skip_poison(reader)

    def _skip_poison(self, reader: Reader) -> None:
        if reader.skips:
            for offset, held in list(reader.held.items()):
                if held.deadline <= self.clock() and held.deliveries >= MOST:
                    del reader.held[offset]
                    reader.done.add(offset)
                    reader.skipped += 1

    def _hand_out(self, reader: Reader, count: int, messages: list[ChannelMessage]) -> None:
        expected = [] if reader.paused else self._eligible(reader)
        offsets = [message.offset for message in messages]
        assert offsets == sorted(offsets)
        assert len(offsets) == min(count, len(expected)), (offsets, expected)
        assert set(offsets) <= set(expected), (offsets, expected)
        if reader.order != "key":
            assert offsets == expected[:count]
        self._check_keys(reader, offsets)
        for message in messages:
            assert (message.body, message.key) == self.messages[message.offset]
            before = reader.held.get(message.offset)
            assert message.offset not in reader.done
            assert message.deliveries == (before.deliveries if before else 0) + 1
            reader.held[message.offset] = Held(message.deliveries, self.clock() + HOLD_S, True)
            reader.hands[message.offset] = message

    def _is_ready(self, reader: Reader, offset: int) -> bool:
        held = reader.held.get(offset)
        return held is None or (held.deadline <= self.clock() and held.deliveries < MOST)

    def _within_window(self, reader: Reader) -> list[int]:
        unfinished = self._unfinished(reader)
        return [o for o in unfinished if o in reader.held or o < unfinished[0] + WINDOW]

    def _unfinished(self, reader: Reader) -> list[int]:
        return [o for o in range(self.first, len(self.messages)) if o not in reader.done]

    def _eligible(self, reader: Reader) -> list[int]:
        """The messages that a claim of unlimited size gets in the channel's order."""
        unfinished = self._within_window(reader)
        now = self.clock()
        if reader.order == "none":
            return [offset for offset in unfinished if self._is_ready(reader, offset)]
        if reader.order == "strict":
            if any(held.is_claim and held.deadline > now for held in reader.held.values()):
                return []
            taken = []
            for offset in unfinished:
                if not self._is_ready(reader, offset):
                    break
                taken.append(offset)
            return taken
        stopped = {
            self.messages[offset][1]
            for offset, held in reader.held.items()
            if held.is_claim and held.deadline > now
        } - {None}
        taken = []
        for offset in unfinished:
            key = self.messages[offset][1]
            if key in stopped:
                continue
            if self._is_ready(reader, offset):
                taken.append(offset)
            elif key is not None:
                stopped.add(key)
        return taken

    def _check_keys(self, reader: Reader, offsets: list[int]) -> None:
        if reader.order != "key":
            return
        for offset in offsets:
            key = self.messages[offset][1]
            for lower in self._unfinished(reader):
                if key is not None and lower < offset and self.messages[lower][1] == key:
                    assert lower in offsets, (lower, offset)

    @rule(
        process=st.integers(0, 1),
        name=st.just("reader"),
        data=st.data(),
        verb=st.sampled_from(
            ["done", "done", "through", "done", "release", "delay", "renew", "bury"]
        ),
    )
    def settle(self, process: int, name: str, data: st.DataObject, verb: str) -> None:
        reader = self.readers[name]
        self._lose(reader)
        mine = sorted(offset for offset in reader.held if offset in reader.hands)
        if not mine:
            return
        some = data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=4, unique=True))
        channel = self._channel(process, name)
        now = self.clock()
        if verb == "done":
            assert channel.ack(*some) == len(some)
            assert channel.ack(*some) == 0
            self._finish(reader, some)
        elif verb == "through":
            finished = [offset for offset in reader.held if offset <= some[0]]
            assert channel.done_through(some[0]) == len(finished)
            self._finish(reader, finished)
        elif verb == "bury":
            channel.bury(*some)
            self._finish(reader, some)
            reader.buried += len(some)
            self.dead |= set(some)
        elif verb == "renew":
            held = [reader.held[offset] for offset in some]
            if any(one.deadline <= now or not one.is_claim for one in held):
                with pytest.raises(NotInFlight):
                    channel.renew(*some, visibility=3 * HOLD_S)
                return
            channel.renew(*some, visibility=3 * HOLD_S)
            for offset in some:
                reader.held[offset].deadline = now + 3 * HOLD_S
        else:
            delay = 0.0 if verb == "release" else 2 * HOLD_S
            channel.release(*some, delay=delay)
            for offset in some:
                reader.held[offset].deadline = now + delay
                reader.held[offset].is_claim = False

    @rule(process=st.integers(0, 1), name=st.just("reader"))
    def release_the_lowest(self, process: int, name: str) -> None:
        """Release the lowest claimed message: the orders differ in what can be claimed then."""
        self.claim(process, name, 3)
        reader = self.readers[name]
        now = self.clock()
        mine = [o for o, held in reader.held.items() if held.is_claim and held.deadline > now]
        if mine:
            lowest = min(mine)
            self._channel(process, name).release(lowest)
            reader.held[lowest].deadline = now
            reader.held[lowest].is_claim = False
            self.claim(1 - process, name, 2)

    def _finish(self, reader: Reader, offsets: list[int]) -> None:
        for offset in offsets:
            del reader.held[offset]
            reader.done.add(offset)

    @rule(process=st.integers(0, 1), name=st.just("reader"))
    def pause_or_resume(self, process: int, name: str) -> None:
        reader, channel = self.readers[name], self._channel(process, name)
        if reader.paused:
            channel.resume()
        else:
            channel.pause()
        reader.paused = not reader.paused

    @rule(process=st.integers(0, 1), name=st.just("reader"), part=st.floats(0, 1))
    def seek(self, process: int, name: str, part: float) -> None:
        reader = self.readers[name]
        self._lose(reader)
        to = max(self.first, int(part * len(self.messages)))
        assert self._channel(process, name).seek(to) == to
        reader.old = list(reader.hands.values())
        reader.done, reader.held, reader.hands = set(range(to)), {}, {}

    @rule(process=st.integers(0, 1), name=st.just("reader"))
    def late_ack(self, process: int, name: str) -> None:
        for message in self.readers[name].old[:2]:
            try:
                message.ack()
            except ClaimVoid:
                continue
            raise AssertionError("a claim of an older generation counted")

    @rule(seconds=st.sampled_from([1.0, HOLD_S, 2.5 * HOLD_S, -HOLD_S]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(process=st.integers(0, 1))
    def reopen(self, process: int) -> None:
        self.spools[process].close()
        self.spools[process] = self._open()
        for reader in self.readers.values():
            reader.hands = {o: m for o, m in reader.hands.items() if self._is_open(m)}
            reader.old = [m for m in reader.old if self._is_open(m)]

    def _is_open(self, message: ChannelMessage) -> bool:
        channel = message._bound_to
        assert isinstance(channel, Channel)
        return channel.log.spool in self.spools

    @precondition(lambda self: len(self.messages) > 40)
    @rule(process=st.integers(0, 1))
    def retain(self, process: int) -> None:
        """Remove all but the newest messages, even unread ones."""
        log = self._log(process)
        log.configure(retain_for=0, retain_bytes=6000, max_bytes=1)
        self.spools[process].tend_logs()
        log.configure(retain_for=1e6)
        self.first = log.first()
        for reader in self.readers.values():
            self._skip_poison(reader)  # as the mover does

    def _lose(self, reader: Reader) -> None:
        gone = {offset for offset in range(self.first) if offset not in reader.done}
        reader.lost += len(gone)
        reader.done |= gone
        for offset in gone:
            reader.held.pop(offset, None)
            reader.hands.pop(offset, None)

    # -- invariants ------------------------------------------------------------------------------

    @invariant()
    def all_messages_are_read(self) -> None:
        for process in (0, 1):
            found = [(m.offset, m.body, m.key) for m in self._log(process).read()]
            assert found == [(n, *self.messages[n]) for n in range(self.first, len(self.messages))]

    @invariant()
    def channels_have_the_expected_state(self) -> None:
        for name, reader in self.readers.items():
            self._lose(reader)
            state = self._channel(0, name).state()
            unfinished = self._unfinished(reader)
            assert state.position == (unfinished[0] if unfinished else len(self.messages))
            assert state.lag == len(unfinished)
            waiting = [one for one in reader.held.values() if one.deadline > self.clock()]
            assert state.in_flight == sum(one.is_claim for one in waiting)
            assert state.delayed == sum(not one.is_claim for one in waiting)
            assert (state.lost, state.skipped) == (reader.lost, reader.skipped)
            assert (state.buried, state.paused) == (reader.buried, reader.paused)
        queue = self.spools[0].queue(DEAD)
        bodies = queue.peek(1000) if self.dead else []
        assert sorted(m.body for m in bodies) == sorted(self.messages[n][0] for n in self.dead)


TestLog = LogMachine.TestCase
TestLog.settings = machine_settings(100, 200, steps=30)
