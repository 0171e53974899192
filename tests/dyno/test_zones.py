"""Shards and zones: where messages are pushed, which zone reads them, and rebalancing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from fsmq import InvalidValue, Spool
from fsmq.dyno import ByHash, DynoQueue, DynoQueues, LeastFull, Local, Message, RoundRobin
from fsmq.dyno.folder import Folder
from fsmq.dyno.rebalance import plan
from fsmq.dyno.shards import shard_of
from fsmq.spool.layout.names import split_shard
from fsmq.spool.layout.tree import Tree
from fsmq.spool.records import peers
from tests.dyno.conftest import Make
from tests.dyno.helpers import ids, push
from tests.spool.helpers import Clock


def sizes(queue: DynoQueue) -> dict[str, int]:
    return {shard: found["size"] for shard, found in queue.shard_sizes().items()}


def make_dead(spool: Spool, zone: str) -> None:
    """Make the last heartbeat of a zone too old."""
    old = time.time() - peers.DEAD_AFTER_S - 1
    beaten = spool.tree.root / "peers" / f".zone@{zone}"
    beaten.touch()
    os.utime(beaten, (old, old))


def test_a_shard_is_a_queue_of_the_spool(spool: Spool) -> None:
    queue = DynoQueues(spool, zone="us-east-1a").get("team@x:tasks")
    push(queue, "a")
    assert spool.queues() == ["team@x:tasks@us-east-1a"]
    assert split_shard("team@x:tasks@us-east-1a") == ("team@x:tasks", "us-east-1a")
    assert [split_shard(name) for name in ("tasks", "tasks@", "@a", "tasks@" + "a" * 41)] == [
        None
    ] * 4


@pytest.mark.parametrize("zone", ["", "a@b", "a:b", "a b", "x" * 41])
def test_invalid_zones_are_refused(spool: Spool, zone: str) -> None:
    with pytest.raises(InvalidValue, match="1 to 40"):
        DynoQueues(spool, zone=zone)


def test_the_default_zone_is_the_name_of_the_host(spool: Spool) -> None:
    assert DynoQueues(Folder(spool, "web-1")).zone == "web-1"
    long = "x" * 60
    assert shard_of(long) != shard_of(long + "y")
    assert len(shard_of(long)) == 40
    assert DynoQueues(spool).zone == shard_of(peers.host_name())


def test_round_robin_is_shared_by_all_queues(spool: Spool) -> None:
    queues = DynoQueues(spool, zone="a", shards=["a", "b", "c"])
    queue = queues.get("tasks")
    push(queue, "first")
    assert sizes(queue) == {"a": 0, "b": 1, "c": 0}  # as dyno's does
    push(queue, *"123456")
    assert sizes(queue) == {"a": 2, "b": 3, "c": 2}
    for number in range(4):  # alternating between two queues
        push(queues.get("one"), f"{number}")
        push(queues.get("two"), f"{number}")
    assert sum(sizes(queues.get("one")).values()) == 4


def test_round_robin_skips_dead_zones(make: Make, spool: Spool) -> None:
    there = make(zone="b", strategy="local")
    push(there, "x")
    there.pop(0)
    there.process_unacks()
    assert make()._shards.live() == ["a"]  # no pop was there yet
    there.pop(1)
    there.nack("x")
    assert make()._shards.live() == ["a", "b"]
    make_dead(spool, "b")
    queue = make()
    push(queue, *"1234")
    assert sizes(queue) == {"a": 4, "b": 1}


def test_strategies_local_least_full_and_by_hash(
    make: Make,
) -> None:
    shards = ["a", "b", "c"]
    queue = make(strategy=Local(), shards=shards)
    push(queue, *"12345")
    assert sizes(queue) == {"a": 5, "b": 0, "c": 0}
    least = make(strategy=LeastFull(), shards=shards)
    push(least, *(f"l{n}" for n in range(7)))
    assert sorted(sizes(least).values()) == [3, 4, 5] or sizes(least)["a"] == 5
    assert sizes(least)["b"] + sizes(least)["c"] == 7
    by_hash = make(strategy=ByHash(), shards=shards)
    for _ in range(2):
        push(by_hash, *(f"h{n}" for n in range(20)))
    assert sum(sizes(by_hash).values()) == 5 + 7 + 20  # each id stayed in one shard


def test_a_function_can_choose_the_shard(make: Make) -> None:
    queue = make(shards=["a", "b"], strategy=lambda shards, message: message.id[0])
    push(queue, "a1", "b1", "b2")
    assert sizes(queue) == {"a": 1, "b": 2}
    with pytest.raises(InvalidValue, match="expected one of: a, b"):
        push(queue, "z1")
    with pytest.raises(InvalidValue, match="expected one of"):
        make(strategy="at random")
    assert sizes(make(strategy=RoundRobin(), shards=["a", "b"])) == {"a": 1, "b": 2}


def test_cross_never_reads_only_the_local_shard(make: Make, spool: Spool) -> None:
    push(make(zone="b", strategy="local"), "x")
    make_dead(spool, "b")
    queue = make()
    assert queue.pop(9, cross="never") == queue.peek(9, cross="never") == []
    assert sizes(queue) == {"a": 0, "b": 1}
    with pytest.raises(InvalidValue, match="expected one of"):
        queue.pop(9, cross="sometimes")  # type: ignore[arg-type]


def test_cross_empty_reads_others_when_the_local_shard_is_empty(make: Make) -> None:
    push(make(zone="b", strategy="local"), "x")
    queue = make(cross="empty", strategy="local")
    push(queue, "mine")
    assert ids(queue.pop(9)) == ["mine"]
    assert ids(queue.peek(9)) == ids(queue.pop(9)) == ["x"]
    assert queue.ack("x")


def test_orphans_of_a_dead_zone_are_read(make: Make, spool: Spool) -> None:
    there = make(zone="b", strategy="local")
    push(there, "ready", "unacked")
    there.pop_with_msg_id("unacked")
    there.nack("unacked")
    there.pop(1)  # a pop is a heartbeat
    there.nack("ready")
    assert make().pop(9) == []
    there.pop_with_msg_id("unacked")
    make_dead(spool, "b")
    queue = make(strategy="local")
    push(queue, "mine")
    assert ids(queue.pop(9)) == ["mine", "ready"]
    assert queue.ack("ready")


def test_unacked_messages_of_a_dead_zone_are_redelivered(
    make: Make, spool: Spool, clock: Clock
) -> None:
    there = make(zone="b", strategy="local")
    push(there, "x")
    there.pop(1)
    make_dead(spool, "b")
    assert make().pop(1) == []
    clock.advance(61)
    assert [(m.id, m.shard, m.deliveries) for m in make().pop(1)] == [("x", "b", 2)]


def test_a_zone_that_returns_gets_its_shard_back(make: Make, spool: Spool) -> None:
    push(make(zone="b", strategy="local"), "1", "2")
    make_dead(spool, "b")
    assert ids(make().pop(1)) == ["1"]
    assert ids(make(zone="b").pop(1)) == ["2"]
    push(make(zone="b", strategy="local"), "3")
    assert make().pop(1) == []


def test_each_orphaned_shard_is_assigned_to_one_live_zone(
    spool: Spool,
) -> None:
    zones = ["a", "b", "c"]
    for shard in (f"dead{n}" for n in range(12)):
        DynoQueues(spool, zone=shard).get("tasks")
    for zone in zones:
        DynoQueues(spool, zone=zone).get("tasks").pop(1)
    readers: dict[str, list[str]] = {}
    for zone in zones:
        queue = DynoQueues(spool, zone=zone).get("tasks")
        mine, others = queue._shards.orphans()
        for shard in mine:
            readers.setdefault(shard, []).append(zone)
        assert len(mine) + len(others) == 12
    assert sorted(len(found) for found in readers.values()) == [1] * 12
    assert len({zone for found in readers.values() for zone in found}) > 1


def test_a_node_of_mq_is_a_live_zone(make: Make, spool: Spool) -> None:
    push(make(zone="web-1", strategy="local"), "x")
    make_dead(spool, "web-1")
    peers.beat(spool.tree, "web-1")
    assert make().pop(9) == []
    peers.leave(spool.tree, "web-1")
    assert ids(make().pop(9)) == ["x"]


def test_zones_are_not_listed_as_hosts(make: Make, spool: Spool) -> None:
    make().pop(1)
    peers.beat(spool.tree, "web-1")
    assert peers.alive(spool.tree, "web-1") == ["web-1"]


def test_a_pop_lists_only_the_local_shard_when_it_has_enough(
    make: Make, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [f"z{number}" for number in range(8)]
    filling = make(zone="z0", shards=shards)
    push(filling, *(f"{n}" for n in range(40)))
    spool.deliver()
    spool.context.ready.forget("tasks@z0")
    listed: list[str] = []
    list_names = Tree.ready_names

    def ready_names(tree: Tree, queue: str) -> list[str] | None:
        listed.append(queue)
        return list_names(tree, queue)

    monkeypatch.setattr(Tree, "ready_names", ready_names)
    for cross in ("never", "orphans", "empty"):
        queue = make(zone="z0", cross=cross)
        assert len(queue.pop(1)) == 1
    assert set(listed) <= {"tasks@z0"}


# -- rebalancing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "targets", "moves"),
    [
        ({"a": 10, "b": 0}, ["a", "b"], [("a", "b", 5)]),
        ({"a": 11, "b": 0}, ["a", "b"], [("a", "b", 5)]),
        ({"a": 3, "b": 3}, ["a", "b"], []),
        ({"a": 9, "b": 0, "c": 0}, ["a", "b", "c"], [("a", "b", 3), ("a", "c", 3)]),
        ({"a": 4, "b": 2}, ["b"], [("a", "b", 4)]),
        ({"a": 0, "b": 0}, ["a", "b"], []),
    ],
)
def test_a_rebalance_plan_moves_no_message_twice(
    before: dict[str, int], targets: list[str], moves: list[tuple[str, str, int]]
) -> None:
    assert plan(before, targets) == moves


def test_a_rebalance_keeps_ids_and_timers(make: Make, clock: Clock) -> None:
    shards = ["a", "b", "c"]
    queue = make(shards=shards, strategy="local")
    push(queue, *(f"{n}" for n in range(8)))
    queue.push([Message("later", "x", timeout=30_000)])
    queue.pop(2, cross="never")
    assert sum(queue.rebalance().values()) == 4
    assert queue.shard_sizes() == {
        "a": {"size": 3, "uacked": 2},
        "b": {"size": 2, "uacked": 0},
        "c": {"size": 2, "uacked": 0},
    }
    assert queue.ack("0")
    assert queue.set_timeout("7", 0)
    assert not queue.ensure(Message("6", "again"))
    clock.advance(31)
    found = {m.id: m.timeout for m in queue.unsafe_pop_all_shards(99)}
    assert set(found) == {*"234567", "later"}
    assert found["later"] == 30_000
    with pytest.raises(InvalidValue, match="unknown shards"):
        queue.rebalance(["z"])


def test_a_zone_is_retired(make: Make, spool: Spool) -> None:
    there = make(zone="b", strategy="local")
    push(there, "1", "2")
    there.pop(1)
    queue = make()
    with pytest.raises(InvalidValue, match="unacked"):
        queue.retire("b")
    there.nack("1")
    queue.retire("b")
    assert spool.queues() == ["tasks@a"]
    assert ids(queue.pop(9)) == ["1", "2"]
    assert there.pop(9) == []
    with pytest.raises(InvalidValue, match="last"):
        queue.retire("a")


def test_a_killed_rebalance_is_finished_by_the_next(tmp_path: Path) -> None:
    with Spool(tmp_path / "killed", sync="none") as spool:
        queue = DynoQueues(spool, zone="a", shards=["a", "b"], strategy="local").get("tasks")
        push(queue, *(f"{n}" for n in range(10)))
        spool.begin_move("tasks@a", "tasks@b", in_flight=False, delayed=True, count=5)
    with Spool(tmp_path / "killed", sync="none") as spool:  # the move was not begun
        queue = DynoQueues(spool, zone="a", shards=["a", "b"]).get("tasks")
        queue.rebalance()
        assert sizes(queue) == {"a": 5, "b": 5}


def test_concurrent_rebalances_do_not_move_too_much(tmp_path: Path) -> None:
    root = tmp_path / "twice"
    with Spool(root, sync="none") as one, Spool(root, sync="none") as other:
        queues = [
            DynoQueues(spool, zone="a", shards=["a", "b"], strategy="local").get("tasks")
            for spool in (one, other)
        ]
        push(queues[0], *(f"{n}" for n in range(400)))
        threads = [threading.Thread(target=queue.rebalance) for queue in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sizes(queues[0]) == {"a": 200, "b": 200}


def test_a_message_delivered_during_a_listing_is_listed_once(tmp_path: Path) -> None:
    with Spool(tmp_path / "once", sync="none") as spool:
        queue = DynoQueues(spool, zone="a", shards=["a"]).get("tasks")
        push(queue, "1", "2")
        found = queue.messages()
        listed = [next(found).id]
        spool.deliver()
        listed += [message.id for message in found]
        assert sorted(listed) == ["1", "2"]


def test_a_late_ack_does_not_remove_a_newer_push(tmp_path: Path) -> None:
    root = tmp_path / "late"
    with Spool(root, sync="none") as one, Spool(root, sync="none") as other:
        mine, theirs = (
            DynoQueues(spool, zone="a", shards=["a"]).get("tasks") for spool in (one, other)
        )
        push(mine, "k")
        first = mine.pop(1, 1000)
        push(theirs, "k")
        assert ids(theirs.pop(1, 1000)) == ["k"]
        mine.ack_all(first)
        assert not mine.ack("k")
        assert theirs.ack("k")
