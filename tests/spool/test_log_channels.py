"""Channels of a log: orders, claims, acknowledgements, seeks, poison messages, windows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import (
    ClaimVoid,
    InvalidValue,
    MessageTooLarge,
    NoSuchChannel,
    NoSuchLog,
    NotInFlight,
    Unavailable,
)
from fsmq.spool.layout.messages.dead_letter import DeadLetter
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming.dispatch import Asked
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.log.segment.record import FIRST, MARK_BYTES
from fsmq.spool.verbs.moves.redrive import Redriven
from tests.spool.helpers import Clock
from tests.spool.logs import forget, offsets
from tests.spool.running import in_threads

ORDERS = pytest.mark.parametrize("order", ["none", "key", "strict"])


@pytest.fixture
def log(spool: Spool) -> Log:
    return spool.log("users", create=True)


def channel(log: Log, name: str = "mailer", **settings: object) -> Channel:
    made = log.channel(name)
    made.create("first", **settings)
    return made


def fill(log: Log, number: int = 10, keys: int = 0) -> None:
    log.publish_many(
        [LogEntry(b"%d" % n, key=f"k{n % keys}" if keys else None) for n in range(number)]
    )


def folder(made: Channel, *parts: str) -> Path:
    root = made.log.spool.context.tree.root
    return root.joinpath("logs", made.log.name, "channels", made.name, *parts)


def reopened(made: Channel) -> Channel:
    """The channel as a new process sees it."""
    forget(made.log)
    return made


@ORDERS
def test_each_message_is_claimed_once_and_acknowledged(log: Log, order: str) -> None:
    fill(log, 100, keys=7)
    ch = channel(log, order=order)
    got: list[int] = []
    while messages := ch.claim(8):
        assert all(message.deliveries == 1 for message in messages)
        got += offsets(messages)
        assert ch.ack(*messages) == len(messages)
        assert ch.ack(*messages) == 0
    assert got == list(range(100))
    state = ch.state()
    assert (state.position, state.lag, state.in_flight) == (100, 0, 0)
    assert reopened(ch).claim() == []


@ORDERS
def test_messages_are_redelivered_when_a_claim_ends(log: Log, clock: Clock, order: str) -> None:
    fill(log, 5)
    ch = channel(log, order=order, visibility_timeout=10)
    first = ch.claim(3)
    assert first[0].deadline == clock() + 10
    ch.ack(first[1])
    clock.advance(9)
    assert offsets(ch.claim(1)) == ([] if order == "strict" else [3])
    ch.renew(first[0], visibility=30)
    clock.advance(2)
    again = reopened(ch).claim(10)
    if order == "strict":
        assert again == []
        clock.advance(40)
        again = ch.claim(10)
        assert [(m.offset, m.deliveries) for m in again] == [(0, 2), (2, 2), (3, 1), (4, 1)]
        return
    assert [(m.offset, m.deliveries) for m in again] == [(2, 2), (4, 1)]
    clock.advance(30)
    assert [(m.offset, m.deliveries) for m in ch.claim(1)] == [(0, 2)]


def test_order_none_passes_released_messages(log: Log, clock: Clock) -> None:
    fill(log)
    ch = channel(log, order="none")
    a, b, c = ch.claim(3)
    ch.release(b, delay=5)
    a.ack()
    assert offsets(ch.claim(2)) == [3, 4]
    clock.advance(6)
    assert [(m.offset, m.deliveries) for m in ch.claim(2)] == [(1, 2), (5, 1)]
    c.release()
    assert [(m.offset, m.deliveries) for m in ch.claim(1)] == [(2, 2)]


def test_order_strict_waits_for_all_messages_of_a_claim(log: Log, clock: Clock) -> None:
    fill(log)
    ch = channel(log, order="strict")
    a, b, c = ch.claim(3)
    assert ch.claim() == []
    ch.ack(b, c)
    assert ch.claim() == []
    a.release(delay=5)
    assert ch.claim(9) == []
    clock.advance(6)
    assert [(m.offset, m.deliveries) for m in ch.claim(3)] == [(0, 2), (3, 1), (4, 1)]


def test_a_key_is_in_one_claim_at_a_time(log: Log, clock: Clock) -> None:
    fill(log, 12, keys=3)
    ch = channel(log)
    first = ch.claim(4)
    assert offsets(first) == [0, 1, 2, 3]
    assert ch.claim(10) == []
    ch.ack(first[1])
    assert offsets(ch.claim(2)) == [4, 7]
    ch.release(first[0], first[3], delay=5)  # 6 and 9 have the same key
    ch.ack(first[2])
    assert offsets(ch.claim(9)) == [5, 8, 11]
    clock.advance(6)
    assert offsets(reopened(ch).claim(9)) == [0, 3, 6, 9]


def test_two_processes_share_a_channel(log: Log, spool: Spool, clock: Clock) -> None:
    fill(log, 60, keys=5)
    ch = channel(log)
    with Spool(spool.tree.root, sync="none", clock=clock) as two:
        other = two.log("users").channel("mailer")
        got: list[int] = []
        while mine := ch.claim(2):
            theirs = other.claim(2)
            assert not {m.key for m in mine} & {m.key for m in theirs}
            assert other.ack(*theirs) == len(theirs)
            ch.ack(*mine)
            got += offsets(mine) + offsets(theirs)
        assert sorted(got) == list(range(60))
        assert other.state()[:2] == ch.state()[:2] == (60, 0)


def test_threads_never_get_the_same_message(log: Log) -> None:
    fill(log, 400, keys=50)
    ch = channel(log)
    got: list[int] = []

    def work() -> None:
        while messages := ch.claim(3, wait=0.2):
            got.extend(offsets(messages))
            ch.ack(*messages)

    in_threads([work] * 6)
    assert sorted(got) == list(range(400))


@ORDERS
def test_simultaneous_claims_are_written_together(log: Log, clock: Clock, order: str) -> None:
    fill(log, 10)
    ch = channel(log, order=order)
    each = ch.claim_each([Asked(1)] * 3 + [Asked(2)] + [Asked(1, visibility=90.0)] * 2)
    if order == "strict":
        assert list(map(offsets, each)) == [[0], [], [], [], [], []]
        return
    assert list(map(offsets, each)) == [[0], [1], [2], [3, 4], [5], [6]]
    lines = folder(ch, "progress.1").read_text().splitlines()
    assert len([line for line in lines if line.startswith("claimed ")]) == 3
    ch.ack(each[1][0])
    ch.renew(each[0][0], visibility=60.0)
    clock.advance(31)  # the claims of 30 s have ended
    assert offsets(reopened(ch).claim(10)) == [2, 3, 4, 7, 8, 9]
    assert [m.deliveries for m in ch.claim(10)] == []


def test_only_one_of_simultaneous_claims_gets_messages_of_a_key(log: Log) -> None:
    fill(log, 9, keys=3)
    ch = channel(log, order="key")
    assert list(map(offsets, ch.claim_each([Asked(1)] * 5))) == [[0], [1], [2], [], []]
    ch.release(0, 1)
    ch.ack(2)
    assert list(map(offsets, ch.claim_each([Asked(1)] * 5))) == [[0], [1], [5], [], []]


def test_simultaneous_claims_get_a_large_message_each(log: Log) -> None:
    fill(log, 6)
    ch = channel(log, order="none")
    each = ch.claim_each([Asked(1, max_bytes=1)] * 4)
    assert list(map(offsets, each)) == [[0], [1], [2], [3]]
    each = ch.claim_each([Asked(1, max_bytes=0)] * 2)
    assert list(map(offsets, each)) == [[4], [5]]


def test_done_through_acknowledges_only_claimed_messages(log: Log) -> None:
    fill(log)
    ch = channel(log, order="none")
    ch.claim(3)
    later = ch.claim(3)
    assert ch.done_through(4) == 5
    assert ch.done_through(9) == 1
    assert ch.ack(later[-1]) == 0
    assert ch.state().position == 6


def test_messages_that_are_not_claimed_cannot_be_settled(log: Log) -> None:
    fill(log)
    ch = channel(log)
    ch.claim(2)
    with pytest.raises(NotInFlight):
        ch.ack(1, 2)
    with pytest.raises(NotInFlight):
        ch.release(5)
    assert ch.ack(0, 1) == 2
    with pytest.raises(NotInFlight):
        ch.renew(1)


def test_a_late_acknowledgement_counts_during_the_next_claim(log: Log, clock: Clock) -> None:
    fill(log, 2)
    ch = channel(log, order="none", visibility_timeout=1)
    [slow] = ch.claim(1)
    clock.advance(2)
    [again] = ch.claim(1)
    assert again.offset == slow.offset
    assert slow.ack()
    assert not again.ack()


def test_a_seek_makes_claims_void(log: Log) -> None:
    fill(log)
    ch = channel(log)
    old = ch.claim(3)
    old[0].ack()
    assert ch.seek("first") == 0
    for verb in (lambda: old[1].ack(), lambda: ch.renew(old[1]), lambda: old[2].release()):
        with pytest.raises(ClaimVoid):
            verb()
    with pytest.raises(NotInFlight):
        ch.ack(5)
    new = reopened(ch).claim(4)
    assert [(m.offset, m.deliveries) for m in new] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    with pytest.raises(ClaimVoid):
        old[1].ack()
    assert ch.seek(7) == 7
    assert offsets(ch.claim(9)) == [7, 8, 9]
    assert ch.seek("last") == 10
    assert ch.claim() == []
    assert ch.state().generation == old[0].generation + 3
    assert sorted(path.name for path in folder(ch).iterdir()) == ["channel.json", "progress.1"]


@pytest.mark.parametrize("recreated", ["log", "channel"])
@pytest.mark.parametrize(
    "verb",
    [
        lambda channel, old, new: old.ack(),
        lambda channel, old, new: channel.ack(new, old),
        lambda channel, old, new: channel.done_through(old),
        lambda channel, old, new: old.renew(500),
        lambda channel, old, new: old.release(),
        lambda channel, old, new: channel.release(new, old),
        lambda channel, old, new: old.bury(),
    ],
    ids=["done", "done-both", "done-through", "renew", "release", "release-both", "bury"],
)
def test_a_claim_is_void_after_its_log_or_channel_was_recreated(
    log: Log, spool: Spool, clock: Clock, recreated: str, verb: Callable[..., object]
) -> None:
    """Another consumer holds the same offsets of the new one, with the same delivery counts."""
    log.publish_many([b"0", b"1", b"2"])
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        for _ in range(9):  # not by chance
            ch = channel(log, order="none", dead_letter_queue="dead")
            old = ch.claim(3)[0]
            theirs = other.log(log.name)
            if recreated == "log":
                theirs.delete()
                theirs.create()
                theirs.publish_many([b"new 0", b"new 1", b"new 2"])
            else:
                theirs.channel("mailer").delete()
            channel(theirs, order="none", dead_letter_queue="dead", visibility_timeout=5)
            new = theirs.channel("mailer").claim(3)[1]
            before = ch.state()
            with pytest.raises(ClaimVoid):
                verb(ch, old, new)
            assert ch.state() == before
            assert before.in_flight == 3
            clock.advance(6)
            assert offsets(ch.claim(9)) == [0, 1, 2]
            ch.delete()


def test_a_channel_starts_at_the_given_place(log: Log, clock: Clock) -> None:
    fill(log, 5)
    clock.advance(10)
    fill(log, 5)
    moment = datetime.fromtimestamp(clock() - 5, UTC)
    for place, begin in (("first", 0), ("last", 10), (3, 3), (moment, 5), (99, 10)):
        made = log.channel(f"from-{begin}-{place}".replace(" ", "_").replace("+", "-"))
        assert made.create(place)
        assert not made.create("first")
        assert made.state().position == begin
    assert log.channels() == log.stats().channels
    assert len(log.channels()) == 5


def test_nothing_can_be_claimed_from_a_paused_channel(log: Log) -> None:
    fill(log)
    ch = channel(log)
    [first, second] = ch.claim(2)
    ch.pause()
    assert reopened(ch).claim() == []
    assert first.ack()
    second.release()
    assert ch.state().paused
    ch.resume()
    assert offsets(ch.claim(1)) == [1]


def test_the_window_is_bounded(log: Log) -> None:
    fill(log, 30)
    ch = channel(log, order="none", max_window=10)
    messages = ch.claim(20)
    assert len(messages) == 10
    ch.ack(*messages[1:])
    assert ch.claim() == []
    assert ch.state().stalled == "window"
    messages[0].ack()
    assert offsets(ch.claim(20)) == list(range(10, 20))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["none", "key"])
def test_the_progress_file_is_replaced_when_it_has_grown(
    log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", 2000)
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._TIMES", 0)
    fill(log, 1000, keys=999)
    ch = channel(log, order=order)
    other = Spool(log.spool.context.tree.root, sync="none", clock=clock).log("users")
    messages = ch.claim(1000)
    for message in messages[::2]:
        message.ack()
        other.channel("mailer").renew(message.offset + 1, visibility=40 + message.offset)
    [path] = folder(ch).glob("*progress*")
    assert int(path.suffix[1:]) > 3
    assert path.stat().st_size < 100_000
    clock.advance(500)
    for made in (ch, other.channel("mailer"), reopened(ch)):
        state = made.state()
        assert (state.lag, state.in_flight, state.position) == (500, 269, 1)
    assert ch.ack(*messages) == 500
    assert reopened(ch).state().position == 1000
    other.spool.close()  # type: ignore[attr-defined]


def claim_and_release_first(ch: Channel, times: int) -> None:
    for _ in range(times):
        for message in ch.claim(1):
            assert message.offset == 0
            message.release()


@ORDERS
def test_poison_blocks(log: Log, order: str) -> None:
    fill(log, 4, keys=2)
    ch = channel(log, order=order, max_deliveries=2)
    claim_and_release_first(ch, 2)
    rest = ch.claim(9)
    assert offsets(rest) == {"none": [1, 2, 3], "key": [1, 3], "strict": []}[order]
    assert reopened(ch).state().blocked_at == 0
    assert ch.ack(0) == 1
    ch.ack(*rest)
    assert ch.state().blocked_at is None
    ch.ack(*ch.claim(9))
    assert ch.state().position == 4


def test_poison_is_skipped(log: Log) -> None:
    fill(log, 4, keys=1)
    ch = channel(log, max_deliveries=2, on_poison="skip")
    claim_and_release_first(ch, 2)
    assert offsets(ch.claim(9)) == [1, 2, 3]
    assert reopened(ch).state().skipped == 1


def test_poison_is_buried_once(log: Log, spool: Spool, clock: Clock) -> None:
    log.publish(b"bad", key="k", content_type="text/plain", attributes={"trace": "1"})
    fill(log, 2)
    ch = channel(log, order="none", max_deliveries=1, dead_letter_queue="dead")
    assert spool.has_queue("dead")
    ch.claim(1, visibility=5)
    clock.advance(6)
    assert offsets(ch.claim(1)) == [1]
    ch.bury(1, reason="no such\nuser")
    state = ch.state()
    assert (state.buried, state.position) == (2, 2)
    spool.deliver()
    dead = sorted(spool.queue("dead").claim(9), key=lambda message: message.body, reverse=True)
    assert [(m.body, m.content_type) for m in dead] == [(b"bad", "text/plain"), (b"0", None)]
    assert dead[0].attributes == {
        "log": "users",
        "channel": "mailer",
        "offset": "0",
        "key": "k",
        "trace": "1",
    }
    letters = [spool.queue("dead").find(message.id) for message in dead]
    origin = "logs/users/mailer"
    assert [one and one.dead_letter for one in letters] == [
        DeadLetter(origin, "max_deliveries", 1, clock.now),
        DeadLetter(origin, "no such user", 1, clock.now),
    ]


@ORDERS
def test_the_reason_of_the_last_release_is_kept(log: Log, spool: Spool, order: str) -> None:
    fill(log, 1, keys=1)
    settings = {"on_poison": "bury", "dead_letter_queue": "dead"}
    ch = channel(log, order=order, max_deliveries=2, **settings)
    for reason in ("no answer", "no address"):
        [message] = ch.claim(1)
        message.release(reason=reason)
    assert (ch.state().buried, ch.state().position) == (1, 1)
    [letter] = spool.queue("dead").peek()
    assert letter.dead_letter is not None
    assert letter.dead_letter[1:3] == ("max_deliveries: no address", 2)


def test_a_released_message_that_cannot_be_buried_is_buried_later(
    log: Log, spool: Spool, clock: Clock
) -> None:
    spool.queue("dead", create=True).put(b"0")
    spool.queue("dead").configure(max_depth=1)
    fill(log, 1, keys=1)
    ch = channel(log, max_deliveries=1, on_poison="bury", dead_letter_queue="dead")
    [message] = ch.claim(1)
    message.release(reason="no address")
    assert ch.state().buried == 0
    spool.queue("dead").configure(max_depth=2)
    clock.advance(60)
    ch.end_poison()
    assert ch.state().buried == 1


@pytest.mark.parametrize("limit", [{"max_depth": 1}, {"max_message_bytes": 2}])
@ORDERS
def test_a_message_that_the_dead_letter_queue_refuses_holds_up_only_its_order(
    log: Log, spool: Spool, clock: Clock, order: str, limit: dict[str, int]
) -> None:
    dead = spool.queue("dead", create=True)
    dead.configure(**limit)
    dead.put(b"0")
    log.publish_many([LogEntry(b"bad", key="a"), LogEntry(b"1", key="b"), LogEntry(b"2", key="a")])
    ch = channel(log, order=order, max_deliveries=1, on_poison="bury", dead_letter_queue="dead")
    ch.claim(1, visibility=5)
    clock.advance(6)
    rest = ch.claim(9)
    assert offsets(rest) == {"none": [1, 2], "key": [1], "strict": []}[order]
    state = reopened(ch).state()
    assert (state.unburied_at, state.blocked_at, state.buried) == (0, None, 0)
    assert ch.again_in() == pytest.approx(10, abs=0.1)
    ch.ack(*rest)
    dead.configure(**dict.fromkeys(limit))
    assert offsets(ch.claim(9)) == []  # not every claim retries it
    assert dead.counts().total == 1
    clock.advance(10)
    assert offsets(ch.claim(9)) == {"none": [], "key": [2], "strict": [1, 2]}[order]
    state = ch.state()
    assert (state.unburied_at, state.buried) == (None, 1)
    spool.deliver()
    assert {message.body for message in dead.claim(9)} == {b"0", b"bad"}


def test_refused_dead_letters_do_not_hold_up_or_repeat_others(
    log: Log, spool: Spool, clock: Clock
) -> None:
    dead = spool.queue("dead", create=True)
    dead.configure(max_message_bytes=4)
    log.publish_many([b"bad" if number % 2 else b"large" for number in range(6)])
    ch = channel(log, order="none", max_deliveries=1, dead_letter_queue="dead")
    for _ in range(6):
        ch.claim(1, visibility=5)
    found: list[bytes] = []
    for _ in range(4):
        clock.advance(20)
        ch.end_poison()
        spool.deliver()
        for letter in dead.claim(9):
            found.append(letter.body)
            letter.ack()
    assert found == [b"bad"] * 3
    assert (ch.state().buried, ch.state().unburied_at) == (3, 0)


def test_messages_before_a_refused_one_are_buried(log: Log, spool: Spool) -> None:
    dead = spool.queue("dead", create=True)
    dead.configure(max_message_bytes=4)
    log.publish_many([b"bad", b"large", b"bad"])
    ch = channel(log, order="none", dead_letter_queue="dead")
    messages = ch.claim(3)
    with pytest.raises(MessageTooLarge):
        ch.bury(*messages)
    assert ch.state().buried == 1
    dead.configure(max_message_bytes=None)
    ch.bury(*messages[1:])
    assert (ch.state().buried, dead.counts().total) == (3, 3)


def test_a_fifo_queue_is_refused_as_the_dead_letter_queue(log: Log, spool: Spool) -> None:
    spool.create_queue("groups", fifo=True)
    with pytest.raises(InvalidValue, match=r"dead_letter_queue: .*fifo"):
        channel(log, dead_letter_queue="groups")
    ch = channel(log, max_deliveries=1)
    with pytest.raises(InvalidValue, match=r"dead_letter_queue: .*fifo"):
        ch.configure(dead_letter_queue="groups", on_poison="bury")
    assert ch.settings().dead_letter_queue is None


def test_a_channel_works_when_its_dead_letter_queue_was_recreated_as_fifo(
    log: Log, spool: Spool, clock: Clock
) -> None:
    log.publish_many([b"bad", b"good"])
    ch = channel(log, order="none", max_deliveries=1, dead_letter_queue="dead")
    spool.queue("dead").delete()
    spool.create_queue("dead", fifo=True)
    ch.claim(1, visibility=5)
    clock.advance(6)
    ch.pause()
    ch.resume()
    assert offsets(ch.claim(9)) == [1]
    assert ch.state().unburied_at == 0


def test_dead_letters_of_a_channel_are_not_redriven_to_the_log(log: Log, spool: Spool) -> None:
    fill(log, 2)
    ch = channel(log, dead_letter_queue="dead")
    ch.claim(2)[0].bury("why")
    ch.bury(1)
    spool.deliver()
    dead = spool.queue("dead")
    assert {one.dead_letter and one.dead_letter.reason for one in dead.peek()} == {"why", None}
    assert dead.redrive() == Redriven(no_origin=2)
    move = spool.begin_redrive("dead")
    spool.make_moves()
    found = spool.find_move(move.ref)
    assert found is not None
    assert "they came from a log" in (found.error or "")
    spool.create_queue("again")
    assert dead.redrive(to="again") == Redriven(moved=2)


def test_burying_without_a_dead_letter_queue_is_refused(log: Log) -> None:
    fill(log)
    ch = channel(log)
    [message] = ch.claim(1)
    with pytest.raises(InvalidValue):
        message.bury()
    with pytest.raises(InvalidValue):
        ch.configure(on_poison="bury")
    assert message.ack()


def test_a_with_block_settles_its_message(log: Log) -> None:
    fill(log, 2)
    ch = channel(log, order="strict")
    with ch.claim(1)[0]:
        pass
    with pytest.raises(KeyError), ch.claim(1)[0]:
        raise KeyError
    assert [(m.offset, m.deliveries) for m in ch.claim(1)] == [(1, 2)]


@pytest.mark.parametrize("act", ["renew", "release", "bury"])
def test_a_late_consumer_does_not_affect_the_next_claim(log: Log, clock: Clock, act: str) -> None:
    fill(log, 2)
    ch = channel(log, order="none", dead_letter_queue="dead")
    late, other = ch.claim(2, visibility=5)
    clock.advance(6)
    [own] = ch.claim(1, visibility=5)
    for messages in ([late], [other, late]):
        with pytest.raises(NotInFlight) as caught:
            getattr(ch, act)(*messages)
        assert caught.value.offset == 0
    with pytest.raises(ZeroDivisionError), late:
        _ = 1 / 0
    assert offsets(ch.claim(9, visibility=5)) == [1]
    own.renew(20)
    clock.advance(6)
    assert offsets(ch.claim(9)) == [1]
    getattr(ch, act)(0)  # an offset alone means the current claim
    assert late.ack() is (act != "bury")


@ORDERS
def test_a_claim_that_has_ended_is_not_renewed(log: Log, clock: Clock, order: str) -> None:
    """Otherwise a key, or a strict channel, would be in two claims."""
    log.publish_many([LogEntry(body, key="ann") for body in ("0", "1")])
    ch = channel(log, order=order)
    late = ch.claim(2, visibility=5)
    clock.advance(6)
    [own] = reopened(ch).claim(1, visibility=5)
    with pytest.raises(NotInFlight):
        late[1].renew()
    own.ack()
    assert [(m.offset, m.deliveries) for m in ch.claim(9)] == [(1, 2)]


@ORDERS
def test_a_late_renewal_does_not_shorten_the_delay_of_a_release(
    log: Log, clock: Clock, order: str
) -> None:
    fill(log, 1)
    ch = channel(log, order=order)
    [message] = ch.claim(1, visibility=5)
    message.release(delay=100)
    for renew in (message.renew, lambda: ch.renew(0, visibility=5)):
        with pytest.raises(NotInFlight):
            renew()
    clock.advance(60)
    assert reopened(ch).claim() == []
    clock.advance(41)
    assert [m.deliveries for m in ch.claim()] == [2]


@ORDERS
def test_what_reached_no_consumer_is_no_delivery(log: Log, order: str) -> None:
    fill(log, 3, keys=1)
    ch = channel(log, order=order, max_deliveries=1, on_poison="skip")
    for _ in range(3):
        ch.release_unseen(ch.claim(3))
        assert reopened(ch).state().in_flight == 0
    messages = ch.claim(3)
    assert [(m.offset, m.deliveries) for m in messages] == [(0, 1), (1, 1), (2, 1)]
    ch.ack(*messages)
    assert ch.state().skipped == 0


def test_a_claim_buries_a_part_of_many_poison_messages(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others who wait for the lock would else be refused, and their claims would end."""
    monkeypatch.setattr("fsmq.spool.log.consuming.channels._BURIED_AT_A_TIME", 4)
    fill(log, 10)
    ch = channel(log, order="none", max_deliveries=1, dead_letter_queue="dead")
    for count in (2, 1, 7):  # several claims end, and parts of them are buried
        ch.claim(count, visibility=5)
    log.publish(b"good")
    clock.advance(6)
    assert offsets(ch.claim(9)) == [10]
    assert (ch.state().buried, ch.state().unburied_at) == (4, None)
    assert ch.again_in() == 0.0  # who waits claims at once, and so buries the next part
    ch.pause()
    assert ch.again_in() != 0.0
    ch.resume()
    reopened(ch).end_poison()
    assert ch.claim(9) == []
    assert ch.state().buried == 10
    assert ch.again_in() != 0.0
    assert sorted(m.body for m in spool.queue("dead").claim(99)) == [b"%d" % n for n in range(10)]


def test_who_waits_claims_again_at_once_behind_many_messages_of_a_held_key(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One claim looks at a part of them; else a waiting request would miss the one behind."""
    monkeypatch.setattr("fsmq.spool.log.consuming.dispatch._MOST_LOOKED_AT", 99)
    log.publish_many([LogEntry(b"x", key="a")] * 400 + [LogEntry(b"x", key="b")])
    ch = channel(log, order="key")
    assert offsets(ch.claim(1, visibility=500)) == [0]
    claims = 1
    while not (found := offsets(ch.claim(1))):
        claims += 1
        assert ch.again_in() == 0.0
    assert (found, claims > 2) == ([400], True)
    assert ch.claim(1) == []
    assert ch.again_in() != 0.0


def test_verbs_of_a_deleted_channel_fail(log: Log, spool: Spool) -> None:
    fill(log)
    ch = channel(log)
    messages = ch.claim(2)
    ch.delete()
    for verb in (ch.claim, ch.state, ch.settings, ch.delete, messages[0].ack, ch.pause):
        with pytest.raises(NoSuchChannel):
            verb()
    assert log.channels() == []
    with pytest.raises(NoSuchLog):
        spool.log("none").channel("x").claim()


def test_a_channel_without_its_progress_file_fails(log: Log) -> None:
    fill(log, 4)
    ch = channel(log, order="none")
    ch.ack(*ch.claim(2))
    path = folder(ch, "progress.1")
    path.rename(path.with_name("kept"))
    for made in (ch, reopened(ch)):
        with pytest.raises(Unavailable, match="has no progress"):
            made.claim()
    path.with_name("kept").rename(path)
    assert offsets(ch.claim(9)) == [2, 3]


def test_a_channel_counts_damaged_messages_as_lost(log: Log) -> None:
    fill(log, 3)
    path = log.spool.context.tree.root / "logs/users/log" / f"{1:020}"
    data, at = path.read_bytes(), FIRST + MARK_BYTES + 20
    path.write_bytes(data[:at] + b"X" + data[at + 1 :])
    ch = channel(log)
    messages = ch.claim(9)
    assert offsets(messages) == [1, 2]
    ch.ack(*messages)
    state = reopened(ch).state()
    assert (state.position, state.lost, state.first_lost) == (3, 1, 0)


def test_done_is_another_name_of_ack(log: Log) -> None:
    channel = log.channel("words")
    channel.create("first", order="none")
    log.publish_many(["a", "b", "c", "d"])
    first, *others = channel.claim(4)
    assert first.done()
    assert not first.done()
    assert channel.done(others[0], others[1].offset) == 2
    assert channel.done_through(others[2]) == 1
    assert channel.state().lag == 0
