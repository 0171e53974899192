"""Every crash state of every verb of a log and its channels.

Each verb acts on a durable log, and each state is inspected as the next program finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import NoSuchChannel, NoSuchLog
from fsmq.spool.fsck import check
from fsmq.spool.layout import filesystem
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming.forwarding import Feed
from fsmq.spool.log.idempotent import publish_once
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.log.retention import Retention
from fsmq.spool.log.segment import newest, segments
from tests.replay.inspecting import inspect_states
from tests.replay.place import state_folder
from tests.replay.recorder import Recorder, Step, Sync, SyncAll
from tests.replay.states import Files
from tests.spool.helpers import Clock

LOG, CHANNEL = "users", "mailer"
BEGIN = 12  # messages before the verb; the channel has acknowledged 0, 1 and 4, and holds 2 and 3
NEW = "x" * 30
ONCE = (b"once", b"and once")


@dataclass
class Promised:
    """The promises to a user."""

    messages: dict[int, bytes] = field(default_factory=dict)
    begun: list[list[bytes]] = field(default_factory=list)  # batches that may be stored
    done: set[int] = field(default_factory=lambda: {0, 1, 4})
    may_be_done: set[int] = field(default_factory=lambda: {0, 1, 4})
    log: bool | None = True  # whether it exists; None: unknown
    channel: bool | None = True
    position: int | None = None  # of an answered seek
    seeks: bool = False
    first: int = 0  # retention may have removed messages before it
    buried: bool | None = False
    settings: set[int] = field(default_factory=lambda: {4096})
    delayed: set[int] = field(default_factory=set)
    copied: bool = False  # a message of a topic is also in the queue
    once: bool = False  # the batch of a job is tried again
    fed: bool = False  # a channel feeds a queue


Effect = Callable[[Promised], None]


class Actor:
    """Runs verbs, and marks the promises that each changes before and after it."""

    def __init__(self, spool: Spool, recorder: Recorder) -> None:
        self.spool = spool
        self.recorder = recorder

    @property
    def log(self) -> Log:
        return self.spool.log(LOG)

    @property
    def channel(self) -> Channel:
        return self.log.channel(CHANNEL)

    def mark(self, effect: Effect) -> None:
        self.recorder.mark(effect)

    def publish(self) -> None:
        self._publish([NEW.encode()])

    def publish_batch(self) -> None:
        self._publish([b"of a batch", b"", NEW.encode()])

    def publish_two(self) -> None:
        self._publish([b"first"])
        self._publish([b"second"])

    def publish_to_a_new_segment(self) -> None:
        with self.log._store.writing() as tail:
            tail.roll()
        self._publish([NEW.encode()])

    def take_turn(self) -> None:
        self._publish([b"first"])
        with Spool(self.spool.tree.root, sync="fsync", delivers=False) as other:
            Actor(other, self.recorder)._publish([NEW.encode()])
        self._publish([b"last"])

    def _publish(self, bodies: list[bytes]) -> None:
        self.mark(lambda p: p.begun.append(bodies))
        offsets = self.log.publish_many(bodies)
        self.mark(lambda p: p.messages.update(zip(offsets, bodies, strict=True)))

    def publish_to_topic(self) -> None:
        self.mark(lambda p: p.begun.append([NEW.encode()]))
        offset = int(self.spool.topic("news").publish(NEW.encode())[f"logs/{LOG}"])
        self.mark(lambda p: (p.messages.update({offset: NEW.encode()}), setattr(p, "copied", True)))  # type: ignore[func-returns-value]

    def publish_once(self) -> None:
        self.mark(lambda p: (p.begun.append(list(ONCE)), setattr(p, "once", True)))  # type: ignore[func-returns-value]
        offsets = publish_once(self.log, "job", 0, [LogEntry(body) for body in ONCE])
        assert offsets is not None
        self.mark(lambda p: p.messages.update(zip(offsets, ONCE, strict=True)))

    def feed(self) -> None:
        self.mark(lambda p: setattr(p, "fed", True))
        feed_of(self.log).step()

    def create(self) -> None:
        self.mark(lambda p: setattr(p, "log", None))
        self.log.create(writers="host")
        self.mark(lambda p: setattr(p, "log", True))

    def delete(self) -> None:
        self.mark(lambda p: setattr(p, "log", None))
        self.log.delete()
        self.mark(lambda p: setattr(p, "log", False))

    def configure(self) -> None:
        self.mark(lambda p: p.settings.add(5000))
        self.log.configure(segment_bytes=5000)
        self.mark(lambda p: p.settings.discard(4096))

    def create_channel(self) -> None:
        self.log.channel("other").create(5)
        self.mark(lambda p: setattr(p, "position", 5))

    def delete_channel(self) -> None:
        self.mark(lambda p: setattr(p, "channel", None))
        self.channel.delete()
        self.mark(lambda p: setattr(p, "channel", False))

    def claim(self) -> None:
        self.channel.claim(3)

    def done(self) -> None:
        self._done(2)

    def done_all(self) -> None:
        self._done(2, 3)

    def claim_and_done(self) -> None:
        offsets = [message.offset for message in self.channel.claim(2)]
        self._done(*offsets)

    def _done(self, *offsets: int) -> None:
        self.mark(lambda p: p.may_be_done.update(offsets))
        self.channel.ack(*offsets)
        self.mark(lambda p: p.done.update(offsets))

    def done_again(self) -> None:
        self.channel.ack(0, 1)

    def done_in_a_new_file(self) -> None:
        """Replace the file of the channel, which has grown."""
        monkey = pytest.MonkeyPatch()
        monkey.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", 0)
        monkey.setattr("fsmq.spool.log.consuming.open_channel._TIMES", 0)
        try:
            offsets = [message.offset for message in self.channel.claim(4)]
            self._done(offsets[1])
            self._done(offsets[3])
        finally:
            monkey.undo()

    def renew(self) -> None:
        self.channel.renew(2, visibility=500)

    def release(self) -> None:
        self.channel.release(2, delay=400)
        self.mark(lambda p: p.delayed.add(2))

    def release_all(self) -> None:
        self.channel.release(2, 3, delay=400)
        self.mark(lambda p: p.delayed.update((2, 3)))

    def bury(self) -> None:
        self.mark(lambda p: (setattr(p, "buried", None), p.may_be_done.add(2)))  # type: ignore[func-returns-value]
        self.channel.bury(2)
        self.mark(lambda p: (setattr(p, "buried", True), p.done.add(2)))  # type: ignore[func-returns-value]

    def seek(self) -> None:
        self.mark(lambda p: setattr(p, "seeks", True))
        self.channel.seek(7)
        self.mark(lambda p: setattr(p, "position", 7))

    def retain(self) -> None:
        self.mark(lambda p: (setattr(p, "first", 10), p.may_be_done.update(range(10))))  # type: ignore[func-returns-value]
        self.log.configure(retain_for=0)
        self.mark(lambda p: p.done.clear())
        store = self.log._store
        self.log.channel(CHANNEL).configure(max_lag=0)
        Retention(self.spool.open_logs, store).step()


ON_HOST = (
    "publish",
    "publish_batch",
    "publish_two",
    "publish_to_a_new_segment",
    "publish_to_topic",
    "publish_once",
    "feed",
    "create",
    "delete",
    "configure",
    "create_channel",
    "delete_channel",
    "claim",
    "done",
    "done_all",
    "claim_and_done",
    "done_again",
    "done_in_a_new_file",
    "renew",
    "release",
    "release_all",
    "bury",
    "seek",
    "retain",
)
ON_HOSTS = (
    "publish",
    "publish_batch",
    "publish_two",
    "publish_to_a_new_segment",
    "take_turn",
    "retain",
)
CASES = [*(("host", verb) for verb in ON_HOST), *(("hosts", verb) for verb in ON_HOSTS)]


def prepare(spool: Spool, writers: str, verb: str) -> Promised:
    promised = Promised()
    if verb == "create":
        promised.log, promised.channel = False, False
        return promised
    log = spool.log(LOG)
    log.create(writers=writers, segment_bytes=4096)
    bodies = [b"%d" % number for number in range(BEGIN)]
    log.publish_many(bodies[:6])
    if verb == "retain":
        with log._store.writing() as tail:
            tail.roll()
    log.publish_many(bodies[6:10])
    for body in bodies[10:]:
        log.publish(body)
    promised.messages = dict(enumerate(bodies))
    channel = log.channel(CHANNEL)
    channel.create("first", order="none", visibility_timeout=100, dead_letter_queue="dead")
    channel.claim(5)
    channel.ack(0, 1)
    channel.ack(4)
    if verb == "publish_to_topic":
        spool.create_queue("copies")
        spool.create_topic("news")
        spool.subscribe("news", "copies")
        spool.subscribe("news", f"logs/{LOG}")
    if verb == "feed":
        spool.create_queue("fed")
        log.channel("fed").create(FED)
    return promised


FED = 11  # the first offset that a channel feeds to a queue


def feed_of(log: Log) -> Feed:
    spool = log.spool
    assert isinstance(spool, Spool)
    return Feed(log.channel("fed"), spool.queue("fed"), LOG, log.stats().uuid)


@pytest.mark.parametrize(("writers", "verb"), CASES)
def test_no_crash_state_of_a_verb_breaks_a_promise(writers: str, verb: str) -> None:
    assert check_states(writers, verb) > 0


@pytest.mark.parametrize(
    "verb",
    ["publish", "publish_batch", "publish_two", "publish_to_a_new_segment", "publish_to_topic"],
)
def test_no_crash_state_of_a_publish_over_zeros_breaks_a_promise(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_IN_PLACE", {"tmpfs", "ext4", "xfs"})
    monkeypatch.setattr(newest, "_SMALL_IN_A_ROW", 1)
    monkeypatch.setattr(segments, "_AHEAD", bytes(300))
    assert check_states("host", verb, is_warm=True) > 3


@pytest.mark.parametrize(
    "verb", ["publish", "done", "release", "seek", "create", "delete", "create_channel", "bury"]
)
def test_without_its_syncs_a_verb_breaks_a_promise(verb: str) -> None:
    with pytest.raises((AssertionError, KeyError, NoSuchLog)):
        check_states("host", verb, lambda step: not isinstance(step, Sync | SyncAll))


def check_states(
    writers: str,
    verb: str,
    counts: Callable[[Step], bool] = lambda step: True,
    is_warm: bool = False,
) -> int:
    """Inspect every crash state of a verb; their number.

    counts: selects steps. is_warm: the process has published before.
    """
    clock = Clock()
    with state_folder() as place:
        root = place.with_name("first")
        with Spool(root, sync="fsync", clock=clock, delivers=False) as spool:
            first = prepare(spool, writers, verb)
            spool.open_logs.close()
            if is_warm:
                assert spool.log(LOG).publish(b"warm") == BEGIN
                first.messages[BEGIN] = b"warm"
            before = Files.of(root)
            recorder = Recorder(root)
            with recorder.recording():
                getattr(Actor(spool, recorder), verb)()
            recorder.close()
        steps = [step for step in recorder.steps if counts(step)]
        return inspect_states(
            place,
            before,
            steps,
            lambda: deepcopy(first),
            lambda promised: inspect(place, promised, clock),
        )


def inspect(place: Path, promised: Promised, clock: Clock) -> None:
    with Spool(place, sync="none", clock=clock) as spool:
        log = spool.log(LOG)
        if LOG not in spool.logs():
            assert not promised.log
            return
        assert promised.log is not False
        if promised.once:
            again = publish_once(log, "job", 0, [LogEntry(body) for body in ONCE])
            assert again is not None
            promised.messages.update(zip(again, ONCE, strict=True))
            promised.begun.clear()
        inspect_messages(log, promised)
        if promised.copied:
            spool.deliver()
            assert [m.body for m in spool.queue("copies").claim(9)] == [NEW.encode()]
        if promised.fed:
            clock.advance(1000)
            while feed_of(log).step():
                pass
            clock.advance(-1000)
            spool.deliver()
            found = sorted(message.body for message in spool.queue("fed").claim(99))
            assert found == sorted(m.body for m in log.read(FED))
        if promised.channel is not None or CHANNEL in log.channels():
            inspect_channel(log, promised, clock)
        if promised.position == 5:
            assert log.channel("other").state().position == 5
    found = check(place, offline=True, bodies=True).findings
    assert {f.kind.value for f in found if f.path.startswith("logs")} <= {"leftover"}


def inspect_messages(log: Log, promised: Promised) -> None:
    assert log.settings().segment_bytes in promised.settings | {16 << 20}
    shown = {message.offset: message.body for message in log.read()}
    end = log.publish(b"after")  # completes what a dead writer had appended
    found = {message.offset: message.body for message in log.read()}
    assert shown.items() <= found.items()
    assert found.pop(end) == b"after"
    first = log.first()
    assert first <= promised.first
    assert sorted(found) == list(range(first, end))
    for offset, body in promised.messages.items():
        assert offset < first or found[offset] == body, offset
    rest = [found[offset] for offset in sorted(found) if offset not in promised.messages]
    begun = [list(batch) for batch in promised.begun]
    while rest:  # whole batches, in the order of their starts
        batch = next((one for one in begun if rest[: len(one)] == one), None)
        assert batch is not None, rest
        del begun[: begun.index(batch) + 1]
        rest = rest[len(batch) :]


def inspect_channel(log: Log, promised: Promised, clock: Clock) -> None:
    channel = log.channel(CHANNEL)
    if not promised.channel and CHANNEL not in log.channels():
        with pytest.raises((NoSuchChannel, NoSuchLog)):
            channel.claim()
        return
    assert promised.channel is not False
    state = channel.state()
    sought = promised.seeks and state.position == 7
    assert not (promised.position == 7 and not sought)
    if promised.delayed and not sought:
        clock.advance(200)  # their claim would have ended
        early = {message.offset for message in channel.claim(100)}
        clock.advance(-200)
        assert not early & promised.delayed
    clock.advance(1000)
    try:
        got = {message.offset for message in channel.claim(100)}
    finally:
        clock.advance(-1000)
    got |= early if promised.delayed and not sought else set()
    end = log.end()
    if sought:
        assert got == set(range(7, end))
        return
    assert not got & promised.done
    assert got >= set(range(log.first(), end)) - promised.may_be_done
    if promised.buried is True or (promised.buried is None and 2 not in got):
        log.spool.deliver()  # type: ignore[attr-defined]
        dead = log.spool.queue("dead").claim(9)  # type: ignore[attr-defined]
        assert [message.body for message in dead] == [b"2"]
