"""A new priority renames a message, which keeps its body, its count and its age."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmq.spool import (
    DuplicateMessage,
    InvalidValue,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
)
from fsmq.spool.layout.uuids import uuid7
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock, tree_of


def test_a_message_is_claimed_by_its_new_priority(spool: Spool, jobs: Queue) -> None:
    first, second = jobs.put_many([b"first", NewMessage(b"second", content_type="a/b", ttl=60)])
    jobs.claim(2)[0].release()
    jobs.release(second)
    last = jobs.set_priority(first, 7)
    assert last == f"p07.{first}"
    messages = jobs.peek()
    assert [m.body for m in messages] == [b"second", b"first"]
    assert (messages[1].priority, messages[1].deliveries) == (7, 1)
    again = jobs.set_priority(second, 9)
    assert again == f"p09.{second}"
    claimed = jobs.claim(2)
    assert [(m.body, m.deliveries, m.content_type) for m in claimed] == [
        (b"first", 2, None),
        (b"second", 2, "a/b"),
    ]
    jobs.release(last)
    assert jobs.set_priority(last, 0) == first


def test_a_new_message_is_delivered_first(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"x", priority=3)
    new_id = jobs.set_priority(message_id, 4)
    assert tree_of(root)["queues/jobs"] == [new_id]
    assert jobs.set_priority(new_id, 4) == new_id


def test_errors(spool: Spool, jobs: Queue) -> None:
    own = uuid7()
    jobs.put(b"a", id=own)
    jobs.put(b"b", id=own, priority=5)
    with pytest.raises(DuplicateMessage):
        jobs.set_priority(own, 5)
    with pytest.raises(DuplicateMessage):
        jobs.set_priority(f"p05.{own}", 0)
    headed = jobs.put(b"c", id=own, priority=6, content_type="a/b")
    with pytest.raises(DuplicateMessage):
        jobs.set_priority(headed, 5)
    Path(spool.tree.root, "queues/jobs/by hand").touch()
    with pytest.raises(InvalidValue, match="a file name that carries none"):
        jobs.set_priority("by hand", 5)
    Path(spool.tree.root, "queues/jobs/by hand").unlink()
    for wrong in (-1, 100, True, 1.5):
        with pytest.raises(InvalidValue, match="priority"):
            jobs.set_priority(own, wrong)  # type: ignore[arg-type]
    with pytest.raises(NoSuchMessage):
        jobs.set_priority(uuid7(), 5)
    with pytest.raises(NoSuchQueue):
        Queue(spool, "none").set_priority(own, 5)
    jobs.claim(9)
    with pytest.raises(NoSuchMessage, match="ready"):
        jobs.set_priority(own, 7)
    spool.create_queue("tasks", index=True)
    spool.indexed("tasks").upsert([NewMessage(b"x", id="one")])
    spool.deliver()
    [task] = spool.queue("tasks").peek()
    with pytest.raises(InvalidValue, match="index"):
        spool.queue("tasks").set_priority(task, 5)
    long = spool.queue("q" * 180, create=True)
    message_id = long.put(b"x")
    assert long.set_priority(message_id, 99)


def test_a_kill_neither_loses_nor_duplicates_the_message(root: Path, clock: Clock) -> None:
    own = uuid7()
    for at in range(100):
        tree = root / str(at)
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.queue("jobs", create=True).put(b"x", id=own)
            spool.queue("jobs").claim()[0].release()
        is_answered = run_and_die(tree, lambda s: Queue(s, "jobs").set_priority(own, 5), at, clock)
        if is_answered is None:
            break
        with Spool(tree, sync="none", clock=clock) as spool:
            [message] = Queue(spool, "jobs").claim(9)
            assert message.id == f"p05.{own}" or (message.id == own and not is_answered)
            assert message.body == b"x"
    assert at > 3
    assert not [name for name in os.listdir(root / str(at) / "new") if name[0] != "."]
