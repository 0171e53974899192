"""Queues whose `fetch_order` is fair: groups are served in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq import InvalidValue, Message, NewMessage, Queue, Spool
from fsmq.spool.layout.names import fair_group

QUEUE = "work"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none") as spool:
        spool.create_queue(QUEUE)
        spool.configure(QUEUE, {"fetch_order": "fair"})
        yield spool


@pytest.fixture
def queue(spool: Spool) -> Queue:
    return spool.queue(QUEUE)


def put(queue: Queue, *texts: str, **more: object) -> list[str]:
    """Put texts, whose first letter is the group."""
    return queue.put_many(
        [NewMessage(text.encode(), group=text[0], **more) for text in texts]  # type: ignore[arg-type]
    )


def bodies(messages: list[Message]) -> list[str]:
    return [m.body.decode() for m in messages]


def test_a_large_group_does_not_delay_the_others(queue: Queue) -> None:
    put(queue, *(f"a{n:03}" for n in range(500)))
    put(queue, "b1", "c1", "b2")
    first = bodies(list(queue.claim(6)))
    assert sorted(first) == ["a000", "a001", "a002", "b1", "b2", "c1"]
    assert {text[0] for text in first[:3]} == {"a", "b", "c"}


def test_a_group_may_have_several_messages_in_flight(queue: Queue) -> None:
    put(queue, "a1", "a2", "a3")
    assert sorted(bodies(list(queue.claim(9)))) == ["a1", "a2", "a3"]


def test_a_group_whose_message_was_released_has_had_its_turn(queue: Queue) -> None:
    queue.put_many([NewMessage(b"x", group=f"g{number}") for number in range(9)])
    served = set()
    for _ in range(9):
        [message] = queue.claim(visibility=60)
        served.add(message.group)
        queue.release(message)
    assert len(served) == 9


def test_a_group_has_its_turn_while_new_groups_arrive(queue: Queue) -> None:
    put(queue, "a1", "a2", "a3")
    for number in range(9):
        queue.put("x", group=f"before {number}")
    served = []
    for number in range(100):
        queue.put("x", group=f"new {number}")  # one new group for each message acknowledged
        [message] = queue.claim()
        message.ack()
        served.append(message.body)
    assert {b"a1", b"a2", b"a3"} < set(served)


def test_a_new_group_comes_before_those_just_served(queue: Queue) -> None:
    put(queue, "a1", "a2", "b1", "b2")
    assert bodies(list(queue.claim(2))) == ["a1", "b1"]
    put(queue, "c1", "d1")
    assert bodies(list(queue.claim(4))) == ["c1", "d1", "a2", "b2"]


def test_a_message_without_a_group_is_a_group_of_its_own(queue: Queue) -> None:
    put(queue, *(f"a{n}" for n in range(9)))
    queue.put("x")
    queue.put("y", id="mine")
    assert {"x", "y"} < set(bodies(list(queue.claim(4))))


def test_ids_are_unique_and_have_the_group(queue: Queue) -> None:
    ids = put(queue, *["a"] * 200, *["b"] * 3)
    ids += put(queue, "a", priority=7, ttl=60)
    assert len(set(ids)) == len(ids)
    assert len({fair_group(one) for one in ids}) == 2
    assert fair_group("mine") == "mine"


def test_urgent_messages_come_first_in_their_group(queue: Queue) -> None:
    put(queue, "a1", priority=5)
    put(queue, "a2", "b1")
    claimed = bodies(list(queue.claim(9)))
    assert claimed.index("a2") < claimed.index("a1")


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_all_processes_together_keep_the_limit_of_a_group(tmp_path: Path, watch: str) -> None:
    root = tmp_path / "spool"
    with (
        Spool(root, sync="none", watch=watch, poll_interval=0.01) as here,  # type: ignore[arg-type]
        Spool(root, sync="none", watch="poll", poll_interval=0.01) as there,
    ):
        here.create_queue(QUEUE)
        here.configure(QUEUE, {"fetch_order": "fair", "max_in_flight_per_group": 2})
        one, two = here.queue(QUEUE), there.queue(QUEUE)
        put(one, *(f"{group}{n}" for n in range(4) for group in "ab"))
        here.deliver()
        first = [*one.claim(3, wait=30), *two.claim(9, wait=30)]
        assert sorted(text[0] for text in bodies(list(first))) == ["a", "a", "b", "b"]
        assert [*one.claim(9), *two.claim(9)] == []
        for message in first:
            if message.group == "a":
                message.ack()
        again = two.claim(9, wait=30)
        assert {message.group for message in again} == {"a"}
        assert len(again) == 2


def test_waiting_messages_do_not_count_for_the_limit_of_a_group(queue: Queue) -> None:
    queue.configure(max_in_flight_per_group=1, retry_backoff=600.0, retry_jitter=0.0)
    put(queue, "a1", delay=600)
    put(queue, "a2", "a3")
    [message] = queue.claim(9)
    assert message.body == b"a2"
    message.release()  # it waits for its backoff
    assert bodies(list(queue.claim(9))) == ["a3"]


def test_the_order_can_be_changed_while_it_is_in_use(queue: Queue) -> None:
    put(queue, *(f"a{n}" for n in range(5)), "b0")
    queue.configure(fetch_order="oldest")
    assert bodies(list(queue.claim(2))) == ["a0", "a1"]
    queue.configure(fetch_order="fair")
    assert "b0" in bodies(list(queue.claim(2)))
    queue.configure(max_in_flight_per_group=3)
    assert bodies(list(queue.claim(9))) == []
    queue.configure(max_in_flight_per_group=None)
    assert bodies(list(queue.claim(9))) == ["a3", "a4"]


def test_settings_that_contradict_each_other_are_refused(spool: Spool, queue: Queue) -> None:
    spool.create_queue("ordered", fifo=True)
    spool.create_queue("plain")
    for name, changes in (
        ("ordered", {"fetch_order": "fair"}),
        ("plain", {"max_in_flight_per_group": 2}),
        ("plain", {"fetch_order": "newest"}),
    ):
        with pytest.raises(InvalidValue):
            spool.configure(name, changes)


def test_a_claim_by_a_given_id_ignores_the_limit_of_its_group_and_counts(spool: Spool) -> None:
    spool.create_queue("indexed", index=True)
    jobs, by_id = spool.queue("indexed"), spool.indexed("indexed")
    jobs.configure(fetch_order="fair", max_in_flight_per_group=2)
    by_id.upsert([NewMessage(b"%d" % n, id=str(n), group="a") for n in range(5)])
    spool.deliver()
    assert by_id.claim("4") is not None
    assert bodies(list(jobs.claim(5))) == ["0"]
    assert by_id.claim("3") is not None
    assert jobs.claim() == []
    by_id.ack("4")
    assert jobs.claim() == []  # two are in flight still
    by_id.ack("3")
    assert bodies(list(jobs.claim(5))) == ["1"]
