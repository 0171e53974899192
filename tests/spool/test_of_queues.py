"""Processes soon forget deleted queues and topics."""

from __future__ import annotations

from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.layout.of_queues import OfQueues
from fsmq.spool.layout.topics.filters import Filter


def test_values_of_deleted_queues_are_dropped(spool: Spool) -> None:
    known: OfQueues[int] = OfQueues(spool.tree)
    for number in range(200):
        queue = spool.queue(f"jobs-{number}", create=True)
        known[queue.name] = number
        if number % 10:
            queue.delete()
    present = {f"jobs-{number}": number for number in range(0, 200, 10)}
    assert {queue: known.get(queue) for queue in present} == present
    assert len(known) <= 2 * len(present) + 1


def test_a_limit_applies_while_other_queues_are_created_and_deleted(spool: Spool) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.configure(max_in_flight=2)
    jobs.put_many([b"1", b"2", b"3"])
    first, *_ = jobs.claim(9)
    for number in range(40):
        other = spool.queue(f"other-{number}", create=True)
        other.configure(max_in_flight=1)
        other.put(b"one")
        assert len(other.claim(9)) == 1
        other.delete()
        assert jobs.claim(9) == []
    first.ack()
    assert len(jobs.claim(9)) == 1


def test_topics_and_depths_that_another_process_deletes_are_forgotten(
    spool: Spool, root: Path
) -> None:
    spool.topic("news", create=True).subscribe(spool.queue("stays", create=True).name)
    with Spool(root, sync="none", delivers=False) as other:
        for number in range(200):
            name = f"gone-{number}"
            other.create_queue(name)
            other.configure(name, {"max_depth": 9})
            other.subscribe("news", name, Filter({"kind": ["none"]}))
            spool.topic("news").publish(b"x", attributes={"kind": "other"})
            spool.queue(name).put(b"x")
            other.topic(name, create=True).subscribe("stays")
            spool.topic(name).publish(b"x")
            other.delete_topic(name)
            other.delete_queue(name)
    spool.topic("news").publish(b"x")
    known = spool.context.topics._known
    assert len(known) < 40
    assert list(known["news"].filters) == ["stays"]
    assert len(spool.context.depths._known) < 40
