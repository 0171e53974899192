"""SIGKILL between any two system calls of a channel's verbs, and while its file is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import NotInFlight
from fsmq.spool.layout.messages.dead_letter import DeadLetter
from fsmq.spool.log.channel import Channel
from tests.spool.crashing import Verb, run_and_die
from tests.spool.helpers import Clock

NUMBER = 8  # messages; 0 to 3 were claimed for 100 seconds, and 0 is acknowledged
CHANNEL = "logs/users/mailer"
GROWS = pytest.mark.parametrize("grows", [True, False])


def channel_of(spool: Spool) -> Channel:
    return spool.log("users").channel("mailer")


def prepare(spool: Spool) -> None:
    spool.log("users", create=True).publish_many([b"%d" % number for number in range(NUMBER)])
    settings = {"order": "none", "visibility_timeout": 100, "dead_letter_queue": "dead"}
    channel_of(spool).create("first", max_deliveries=1, on_poison="skip", **settings)
    channel_of(spool).claim(4)
    channel_of(spool).ack(0)


def crashes(root: Path, clock: Clock, verb: Verb) -> Iterator[tuple[bool, Spool]]:
    """Every crash of a verb: whether it was acknowledged, and a spool opened before the crash."""
    for at in range(1000):
        tree = root / str(at)
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            prepare(spool)
            acknowledged = run_and_die(tree, verb, at, clock)
            if acknowledged is None:
                assert at > 1, "a verb changes something"
                return
            with Spool(tree, sync="none", clock=clock, delivers=False) as later:
                # A process that knew the file finds the same as one that reads the whole file.
                assert channel_of(spool).state() == channel_of(later).state()
            yield acknowledged, spool
            spool.tend_logs()
            [file] = (tree / "logs/users/channels/mailer").glob("*progress*")
            assert file.name.startswith("progress.")
    raise AssertionError("the verb did not end")


@pytest.fixture(autouse=True)
def _replace_the_file_at_each_change(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.callspec.params["grows"]:
        monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", 0)
        monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._TIMES", 0)


def claimed_later(spool: Spool, clock: Clock, seconds: float) -> set[int]:
    clock.advance(seconds)
    try:
        channel_of(spool).configure(on_poison="block", max_deliveries=9)
        return {message.offset for message in channel_of(spool).claim(100)}
    finally:
        clock.advance(-seconds)


@GROWS
def test_an_acknowledgement_is_lasting(root: Path, clock: Clock, grows: bool) -> None:
    for acknowledged, spool in crashes(root, clock, lambda spool: channel_of(spool).ack(1, 2)):
        is_acked = channel_of(spool).state().lag == 5
        assert is_acked or not acknowledged
        assert channel_of(spool).ack(1) == (0 if is_acked else 1)
        got = claimed_later(spool, clock, 500)
        assert got - {2} == {3, 4, 5, 6, 7}
        assert not (acknowledged and 2 in got)


@GROWS
def test_a_released_message_waits_for_its_delay(root: Path, clock: Clock, grows: bool) -> None:
    release = lambda spool: channel_of(spool).release(1, 3, delay=400)  # noqa: E731
    for acknowledged, spool in crashes(root, clock, release):
        got = claimed_later(spool, clock, 200)
        assert got - {1, 3} == {2, 4, 5, 6, 7}
        assert not (acknowledged and got & {1, 3})
        assert claimed_later(spool, clock, 500) >= {1, 3} - got


@GROWS
def test_a_buried_message_is_counted_once(root: Path, clock: Clock, grows: bool) -> None:
    bury = lambda spool: channel_of(spool).bury(1, reason="no address")  # noqa: E731
    for acknowledged, spool in crashes(root, clock, bury):
        assert channel_of(spool).state().buried in ((1,) if acknowledged else (0, 1))
        with suppress(NotInFlight):
            channel_of(spool).bury(1, reason="no address")
        assert channel_of(spool).state().buried == 1
        with Spool(spool.tree.root, sync="none", clock=clock) as mover:
            mover.deliver()
        [letter] = spool.queue("dead").peek()
        assert letter.dead_letter == DeadLetter(CHANNEL, "no address", 1, clock.now)
        assert 1 not in claimed_later(spool, clock, 500)


@GROWS
def test_a_kill_doubles_at_most_one_dead_letter(root: Path, clock: Clock, grows: bool) -> None:
    """Even if the dead letters are removed as soon as they come."""

    def end_poison(spool: Spool) -> None:
        clock.advance(200)
        channel_of(spool).configure(on_poison="bury")
        channel_of(spool).end_poison()

    for _, spool in crashes(root, clock, end_poison):
        dead, put = spool.queue("dead"), 0
        for _ in range(2):
            with Spool(spool.tree.root, sync="none", clock=clock) as mover:
                mover.deliver()
            for letter in dead.claim(9):
                letter.ack()
                put += 1
            end_poison(spool)
            clock.advance(-200)
        assert put + dead.counts().total in (3, 4)
        assert channel_of(spool).state().buried == 3


@GROWS
def test_a_skipped_message_is_counted_once(root: Path, clock: Clock, grows: bool) -> None:
    def skip(spool: Spool) -> None:
        clock.advance(200)
        channel_of(spool).end_poison()

    for _, spool in crashes(root, clock, skip):
        clock.advance(200)
        channel_of(spool).end_poison()
        state = channel_of(spool).state()
        assert (state.skipped, state.position) == (3, 4)
        clock.advance(-200)


@GROWS
def test_a_seek_is_done_or_not_done(root: Path, clock: Clock, grows: bool) -> None:
    for acknowledged, spool in crashes(root, clock, lambda spool: channel_of(spool).seek(6)):
        sought = channel_of(spool).state().position == 6
        assert sought or not acknowledged
        got = claimed_later(spool, clock, 500)
        assert got == ({6, 7} if sought else set(range(1, 8)))
