"""The interface of dyno-queues on a spool: each method, with edge cases."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from fsmq import InvalidValue, Spool
from fsmq.dyno import DynoQueue, DynoQueues, Message
from tests.dyno.conftest import UNACK_MS, Make
from tests.dyno.helpers import HOUR_MS, ids, push
from tests.spool.helpers import Clock

# -- messages -----------------------------------------------------------------------------------


def test_messages_with_equal_ids_are_equal() -> None:
    assert Message("a", "x") == Message("a", "y", 5, 9)
    assert Message("a", "x") != Message("b", "x")
    assert len({Message("a", "x"), Message("a", "y")}) == 1


@pytest.mark.parametrize("priority", [-1, 100, "1", 1.5, True])
def test_a_priority_is_0_to_99(priority: object) -> None:
    with pytest.raises(InvalidValue, match="0 to 99"):
        Message("a", "x", priority=priority)  # type: ignore[arg-type]
    message = Message("a", "x")
    with pytest.raises(InvalidValue, match="0 to 99"):
        message.priority = priority  # type: ignore[assignment]


def test_a_timeout_can_have_another_unit() -> None:
    message = Message("a", "x")
    message.set_timeout(3, "min")
    assert message.timeout == 180_000
    with pytest.raises(InvalidValue, match="expected one of"):
        message.set_timeout(3, "weeks")  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", ["text", "", None, "über\n☃", "x" * 100_000])
def test_a_payload_is_text_or_none(queue: DynoQueue, payload: str | None) -> None:
    queue.push([Message("a", payload)])
    [popped] = queue.pop(1)
    assert (popped.id, popped.payload, popped.shard, popped.deliveries) == ("a", payload, "a", 1)


def test_a_missing_id_is_refused_and_nothing_is_pushed(queue: DynoQueue) -> None:
    for bad in (Message(None, "x"), Message("", "x"), Message("b", 5)):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            queue.push([Message("a", "x"), bad])
    assert queue.size() == 0


# -- order ----------------------------------------------------------------------------------------


def test_messages_are_popped_by_priority_and_order_of_pushes(queue: DynoQueue) -> None:
    push(queue, "late", priority=9)
    push(queue, "z", "y", "x")
    push(queue, "urgent-enough", priority=1)
    assert ids(queue.pop(9)) == ["z", "y", "x", "urgent-enough", "late"]


def test_higher_first_reverses_priorities(make: Make) -> None:
    queue = make(higher_first=True)
    push(queue, "low", priority=1)
    push(queue, "high", priority=9)
    [first, second] = queue.pop(9)
    assert [(m.id, m.priority) for m in (first, second)] == [("high", 9), ("low", 1)]


def test_a_message_is_visible_when_its_timeout_has_passed(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "now")
    push(queue, "soon", timeout=1000)
    push(queue, "before", timeout=-5000)
    assert ids(queue.pop(9)) == ["now", "before"]
    clock.advance(0.999)
    assert queue.pop(9) == []
    clock.advance(0.002)
    [soon] = queue.pop(9)
    assert (soon.id, soon.timeout) == ("soon", 1000)


def test_a_delayed_message_is_ordered_by_its_due_time(queue: DynoQueue, clock: Clock) -> None:
    clock.now = time.time() - 10
    push(queue, "delayed", timeout=60_000)
    push(queue, "second")
    clock.advance(61)
    assert ids(queue.pop(9)) == ["second", "delayed"]


def test_a_redelivered_message_keeps_its_place_and_priority(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "first", "second", priority=3)
    queue.pop(1)
    clock.advance(UNACK_MS / 1000 + 1)
    push(queue, "younger", priority=3)
    again = queue.pop(9)
    assert ids(again) == ["first", "second", "younger"]
    assert [(m.priority, m.deliveries) for m in again] == [(3, 2), (3, 1), (3, 1)]


# -- push and pop ---------------------------------------------------------------------------------


def test_push_returns_the_ids_in_order_with_duplicates(queue: DynoQueue) -> None:
    assert queue.push([]) == []
    assert queue.push([Message("b", "1"), Message("a", "2"), Message("b", "3")]) == ["b", "a", "b"]
    assert {m.id: m.payload for m in queue.pop(9)} == {"b": "3", "a": "2"}


def test_a_push_can_be_larger_than_a_batch(queue: DynoQueue) -> None:
    push(queue, *(f"id-{n:04}" for n in range(1001)))
    assert queue.size() == 1001
    assert len(queue.pop(1001)) == 1001


@pytest.mark.parametrize("state", ["ready", "delayed", "unacked"])
def test_a_push_of_an_existing_id_replaces_the_message(queue: DynoQueue, state: str) -> None:
    push(queue, "a", timeout=HOUR_MS if state == "delayed" else 0)
    if state == "unacked":
        queue.pop(1)
    queue.push([Message("a", "new")])
    assert [m.payload for m in queue.pop(9)] == ["new"]
    assert queue.ack("a")
    assert queue.get("a") is None  # no older push is left


def test_an_id_in_two_shards_is_two_messages(make: Make) -> None:
    queue = make(shards=["a", "b"])
    queue.push([Message("x", "1")])
    queue.push([Message("x", "2")])
    assert queue.size() == 2
    assert sorted(str(m.payload) for m in queue.unsafe_pop_all_shards(9)) == ["1", "2"]
    assert queue.ack("x")
    assert queue.ack("x")
    assert not queue.ack("x")


@pytest.mark.parametrize("count", [0, -1])
def test_pop_with_count_zero_returns_nothing(queue: DynoQueue, count: int) -> None:
    push(queue, "a")
    assert queue.pop(count) == queue.bulk_pop(count, 10) == []
    assert queue.size() == 1


def test_pop_returns_fewer_messages_when_the_wait_ends(queue: DynoQueue) -> None:
    push(queue, "a", "b", "c")
    began = time.monotonic()
    assert ids(queue.pop(5, 150)) == ["a", "b", "c"]
    assert 0.15 <= time.monotonic() - began < 20
    assert queue.pop(5, 0) == []


def test_pop_returns_at_once_when_it_has_enough(queue: DynoQueue) -> None:
    push(queue, "a", "b", "c")
    assert ids(queue.pop(2, 1, "d")) == ["a", "b"]
    assert ids(queue.pop(2, 1, "d", first=True)) == ["c"]


def test_pop_waits_for_a_message(tmp_path: Path) -> None:
    with Spool(tmp_path / "real") as spool, Spool(tmp_path / "real") as other:
        queue = DynoQueues(spool, zone="a").get("tasks")
        pushing = DynoQueues(other, zone="a").get("tasks")
        timer = threading.Timer(0.1, lambda: pushing.push([Message("a", "x")]))
        timer.start()
        assert ids(queue.pop(1, 1, "min")) == ["a"]
        timer.join()


def test_a_popped_message_is_hidden_until_its_claim_ends(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "a")
    assert ids(queue.pop(1)) == ["a"]
    assert (queue.pop(1), queue.peek(1), queue.size()) == ([], [], 0)
    clock.advance(UNACK_MS / 1000 + 0.1)
    assert ids(queue.pop(1)) == ["a"]
    assert queue.ack("a")


@pytest.mark.parametrize("timeout", [0, HOUR_MS])
def test_pop_with_an_id_ignores_the_timeout(queue: DynoQueue, timeout: int) -> None:
    push(queue, "a", "b", timeout=timeout)
    found = queue.pop_with_msg_id("b")
    assert found is not None
    assert (found.id, found.payload, found.shard) == ("b", "payload of b", "a")
    assert queue.pop_with_msg_id("b") is None  # unacked
    assert queue.pop_with_msg_id("none") is None
    assert queue.ack("b")


def test_pop_with_an_id_reads_the_local_shard_only(make: Make) -> None:
    push(make(zone="b", strategy="local"), "x")
    queue = make()
    assert queue.pop_with_msg_id("x") is None
    assert queue.unsafe_pop_with_msg_id_all_shards("x") == Message("x", None)
    assert queue.unsafe_pop_with_msg_id_all_shards("x") is None


# -- peek and get ---------------------------------------------------------------------------------


def test_peek_returns_due_messages_and_changes_nothing(queue: DynoQueue) -> None:
    push(queue, "a", "b", "c")
    push(queue, "later", timeout=HOUR_MS)
    for _ in range(2):
        assert ids(queue.peek(2)) == ["a", "b"]
    assert (ids(queue.peek(0)), ids(queue.peek(-1))) == ([], ["a", "b", "c"])
    assert ids(queue.pop(9)) == ["a", "b", "c"]


def test_unsafe_peek_returns_at_most_count_messages(make: Make) -> None:
    push(make(zone="b", strategy="local"), "b1", "b2")
    queue = make(strategy="local")
    push(queue, "a1", "a2")
    assert ids(queue.unsafe_peek_all_shards(3)) == ["a1", "a2", "b1"]
    assert ids(queue.unsafe_peek_all_shards(-1)) == ["a1", "a2", "b1", "b2"]


def test_get_finds_a_message_in_any_state_and_shard(make: Make) -> None:
    push(make(zone="b", strategy="local"), "there")
    queue = make(strategy="local")
    push(queue, "popped", "ready")
    push(queue, "later", timeout=5000)
    queue.pop(1)
    for one in ("there", "popped", "ready", "later"):
        found = queue.get(one)
        assert found is not None
        assert (found.payload, found.shard) == (f"payload of {one}", "b" if one == "there" else "a")
        assert queue.local_get(one) == found
    later = queue.get("later")
    assert later is not None
    assert later.timeout == 5000
    assert queue.get("none") is None


def test_get_all_messages_returns_them_as_they_were_pushed(make: Make) -> None:
    push(make(zone="b", strategy="local"), "there")
    queue = make(strategy="local")
    push(queue, "popped", "ready")
    push(queue, "later", timeout=5000, priority=7)
    queue.pop(1, cross="never")
    everything = {m.id: (m.payload, m.timeout, m.priority) for m in queue.get_all_messages()}
    assert everything == {
        **{one: (f"payload of {one}", 0, 0) for one in ("there", "popped", "ready")},
        "later": ("payload of later", 5000, 7),
    }
    assert next(queue.messages()).id in everything
    assert queue.find_stale_messages() == []


# -- ack ------------------------------------------------------------------------------------------


def test_only_unacked_messages_are_acknowledged(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "popped", "ready")
    push(queue, "later", timeout=HOUR_MS)
    queue.pop(1)
    assert not any(queue.ack(one) for one in ("ready", "later", "none"))
    assert queue.ack("popped")
    assert not queue.ack("popped")
    assert queue.get("popped") is None
    queue.pop(1)
    clock.advance(UNACK_MS / 1000 + 1)
    queue.process_unacks()
    assert not queue.ack("ready")  # it was redelivered


def test_an_ended_claim_can_be_acknowledged_before_redelivery(tmp_path: Path, clock: Clock) -> None:
    with Spool(tmp_path / "alone", sync="none", clock=clock, delivers=False) as spool:
        queue = DynoQueues(spool, zone="a").get("tasks")
        push(queue, "a", "b")
        with Spool(tmp_path / "alone", sync="none", clock=clock) as mover:
            mover.deliver()
        queue.pop(2)
        clock.advance(UNACK_MS / 1000 + 1)
        assert queue.set_unack_timeout("b", 5000)
        assert queue.ack("a")


def test_another_process_can_acknowledge(make: Make) -> None:
    queue, other = make(), make(zone="b")
    push(queue, "a")
    queue.pop(1)
    assert other.ack("a")
    assert not queue.ack("a")


def test_ack_all_acknowledges_many_messages(make: Make) -> None:
    queue = make(shards=["a", "b"])
    push(queue, *"123456")
    popped = queue.unsafe_pop_all_shards(4)
    unknown = [Message("none", "x"), Message("9", "x", shard="gone")]
    assert queue.ack_all([*popped, *unknown]) is None  # type: ignore[func-returns-value]
    assert all(queue.get(m.id) is None for m in popped)
    assert queue.size() == 2


# -- timeouts -------------------------------------------------------------------------------------


def test_the_unack_timeout_can_be_extended_and_shortened(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "long", "short", "now")
    queue.pop(3)
    assert queue.set_unack_timeout("long", 2 * UNACK_MS)
    assert queue.set_unack_timeout("short", 1, "s")
    assert queue.set_unack_timeout("now", -5)
    assert ids(queue.pop(9)) == ["now"]
    clock.advance(1.1)
    assert ids(queue.pop(9)) == ["short"]
    clock.advance(UNACK_MS / 1000)
    assert "long" not in ids(queue.pop(9))
    assert queue.ack("long")


def test_the_unack_timeout_is_set_only_for_unacked_messages(queue: DynoQueue) -> None:
    push(queue, "ready")
    push(queue, "later", timeout=HOUR_MS)
    assert not any(queue.set_unack_timeout(one, 5) for one in ("ready", "later", "none"))
    assert ids(queue.pop(9)) == ["ready"]
    with pytest.raises(InvalidValue):
        queue.set_unack_timeout("ready", 8, "d")
    assert queue.nack("ready")
    assert ids(queue.pop(9)) == ["ready"]


def test_the_timeout_of_a_waiting_message_is_changed(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "ready", priority=4)
    push(queue, "later", timeout=HOUR_MS)
    assert queue.set_timeout("ready", 2000)
    assert queue.set_timeout("later", 1, "s")
    assert queue.pop(9) == []
    clock.advance(1.1)
    assert [(m.id, m.timeout) for m in queue.pop(9)] == [("later", 1000)]
    clock.advance(1)
    assert [(m.id, m.timeout, m.priority) for m in queue.pop(9)] == [("ready", 2000, 4)]


def test_the_timeout_is_set_only_for_waiting_messages(queue: DynoQueue, clock: Clock) -> None:
    push(queue, "a")
    queue.pop(1)
    assert not queue.set_timeout("a", 5)
    assert not queue.set_timeout("none", 5)
    queue.nack("a")
    assert queue.set_timeout("a", 5000)  # it is ready again, without deliveries
    assert not queue.ack("a")
    assert queue.shard_sizes() == {"a": {"size": 1, "uacked": 0}}
    clock.advance(5.1)
    assert [m.deliveries for m in queue.pop(1)] == [1]


def test_a_timeout_of_more_than_a_year_is_refused(queue: DynoQueue) -> None:
    with pytest.raises(InvalidValue, match="366 days"):
        push(queue, "a", timeout=367 * 86_400_000)
    with pytest.raises(InvalidValue, match="7 days"):
        DynoQueues(queue._place, unack_time=8 * 86_400_000)


# -- remove, ensure, clear ------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "delayed", "unacked"])
def test_remove_removes_a_message_in_any_state(queue: DynoQueue, state: str) -> None:
    push(queue, "a", timeout=HOUR_MS if state == "delayed" else 0)
    if state == "unacked":
        queue.pop(1)
    assert queue.remove("a")
    assert not queue.remove("a")
    assert (queue.get("a"), queue.shard_sizes()) == (None, {"a": {"size": 0, "uacked": 0}})


def test_atomic_remove_removes_the_copies_of_all_shards(make: Make) -> None:
    queue = make(shards=["a", "b"])
    push(queue, "x")
    push(queue, "x")
    assert queue.atomic_remove("x")
    assert queue.size() == 0


@pytest.mark.parametrize("state", ["ready", "delayed", "unacked"])
def test_ensure_pushes_only_missing_messages(make: Make, state: str) -> None:
    queue = make(shards=["a", "b", "c"])
    push(queue, "x", timeout=HOUR_MS if state == "delayed" else 0)
    if state == "unacked":
        queue.unsafe_pop_all_shards(1)
    for _ in range(4):  # with each shard as the next one
        assert not queue.ensure(Message("x", "again"))
    assert queue.remove("x")
    assert queue.ensure(Message("x", "again"))
    assert [m.payload for m in queue.unsafe_pop_all_shards(9)] == ["again"]


def test_clear_empties_the_queue_and_keeps_it(make: Make) -> None:
    queue = make(shards=["a", "b"])
    push(queue, "1", "2", "3")
    push(queue, "4", "5", timeout=HOUR_MS)
    queue.unsafe_pop_all_shards(1)
    queue.clear()
    assert queue.shard_sizes() == {s: {"size": 0, "uacked": 0} for s in "ab"}
    assert queue.get_all_messages() == []
    push(queue, "1")
    assert queue.size() == 1


def test_sizes_count_waiting_and_unacked_messages(make: Make) -> None:
    queue = make(shards=["a", "b"])
    push(queue, "1", "2", "3")
    push(queue, "4", timeout=HOUR_MS)
    queue.pop(1)
    assert queue.shard_sizes() == {"a": {"size": 1, "uacked": 1}, "b": {"size": 2, "uacked": 0}}
    assert queue.size() == 3


# -- predicates -----------------------------------------------------------------------------------


def test_a_message_is_found_by_its_payload(make: Make) -> None:
    push(make(zone="b", strategy="local"), "there")
    queue = make(strategy="local")
    push(queue, "popped", "ready")
    push(queue, "later", timeout=HOUR_MS)
    queue.pop(1, cross="never")
    for one in ("there", "popped", "ready", "later"):
        assert queue.get_msg_with_predicate(re.compile(f"of {one}$")) == one
        assert queue.contains_predicate(lambda text, one=one: text.endswith(one))
    assert queue.get_msg_with_predicate(re.compile("none")) is None
    assert not queue.contains_predicate(re.compile("none"))
    assert queue.get_msg_with_predicate(re.compile("of later"), local=True) == "later"
    for elsewhere in ("there", "popped"):
        assert queue.get_msg_with_predicate(re.compile(f"of {elsewhere}"), local=True) is None
    with pytest.raises(InvalidValue, match="regular expression"):
        queue.contains_predicate("text")  # type: ignore[arg-type]


def test_a_predicate_has_limits_of_messages_and_time(queue: DynoQueue) -> None:
    push(queue, *(f"{n:02}" for n in range(20)))
    seen: list[str] = []
    assert not queue.contains_predicate(lambda text: seen.append(text), limit=5)
    assert len(seen) == 5
    assert queue.contains_predicate(lambda text: True, seconds=60)
    assert not queue.contains_predicate(lambda text: True, seconds=1e-9)
    for bad in ({"limit": 0}, {"seconds": 0}):
        with pytest.raises(InvalidValue):
            queue.contains_predicate(lambda text: True, **bad)  # type: ignore[arg-type]


def test_pop_with_predicate_takes_the_first_due_match(make: Make) -> None:
    queue, there = make(strategy="local"), make(zone="b", strategy="local")
    push(queue, "x1")
    push(there, "x2")
    push(queue, "x3", priority=5)
    push(queue, "x4", timeout=HOUR_MS)
    queue.pop_with_msg_id("x1")
    pattern = re.compile("of x")
    found = queue.pop_msg_with_predicate(pattern, local=True)
    assert found is not None
    assert (found.id, found.payload, found.priority) == ("x3", "payload of x3", 5)
    assert queue.pop_msg_with_predicate(pattern, local=True) is None
    found = queue.pop_msg_with_predicate(pattern)
    assert found is not None
    assert (found.id, found.shard) == ("x2", "b")
    assert queue.ack("x2")
    assert queue.pop_msg_with_predicate(pattern) is None


# -- the rest -------------------------------------------------------------------------------------


def test_a_name_has_one_queue_object(spool: Spool) -> None:
    with DynoQueues(spool, zone="a", unack_time=1234) as queues:
        tasks = queues.get("tasks")
        assert tasks is queues.get("tasks")
        assert (tasks.get_name(), tasks.get_unack_time()) == ("tasks", 1234)
        queues.get("more")
        assert [queue.get_name() for queue in queues.queues()] == ["tasks", "more"]
    push(tasks, "a")  # a closed queue still works
    assert ids(tasks.pop(1)) == ["a"]


def test_a_time_to_live_and_dead_letters(queue: DynoQueue, spool: Spool, clock: Clock) -> None:
    queue.push([Message("brief", "x")], ttl=5)
    queue.configure(max_deliveries=1, dead_letter_queue="dead")
    push(queue, "hard")
    clock.now = time.time() + 10
    assert ids(queue.pop(9)) == ["hard"]
    queue.nack("hard")
    assert queue.pop(9) == []
    assert spool.queue("dead").counts().ready == 1
