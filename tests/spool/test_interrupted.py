"""Verbs that a signal handler ends, as Ctrl-C does: they leave nothing that blocks others."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, Spool, context, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.durability import ids, locks, send_lines
from fsmq.spool.durability.put_numbers import PutNumbers
from fsmq.spool.index.events import Events
from fsmq.spool.index.ready import Ready
from fsmq.spool.limits import shared
from fsmq.spool.limits.group_queue import GroupQueue
from fsmq.spool.log import group_commit
from fsmq.spool.verbs import latch
from fsmq.spool.verbs.put import Staging
from tests.harness.calls import Trap, seen
from tests.spool.test_ready import make_noise


class Interrupted(BaseException):
    pass


def interrupted(at: int, spool: Spool, verb: Callable[[Spool], Prepared[Any]]) -> bool:
    """Begin a verb that is ended at its call of this number; False if it makes fewer calls."""

    def stop(name: str, arguments: tuple[Any, ...]) -> None:
        raise Interrupted

    trap = Trap(at, stop)
    try:
        with seen(trap, looks=True):
            prepared = verb(spool)
    except Interrupted:
        return True
    prepared.abort()
    return trap.is_sprung


def put_own(spool: Spool) -> Prepared[Any]:
    return prepare.put(
        spool.context, "jobs", [NewMessage(b"once", id="one"), NewMessage(b"once", id="two")]
    )


def put(spool: Spool) -> Prepared[Any]:
    return prepare.put(spool.context, "jobs", [NewMessage(b"once"), NewMessage(b"once")])


def publish(spool: Spool) -> Prepared[Any]:
    return prepare.publish(spool.context, "news", NewMessage(b"once", id="one"))


def publish_in_order(spool: Spool) -> Prepared[Any]:
    return prepare.publish(spool.context, "news", NewMessage(b"once", group="g"))


@pytest.mark.parametrize("verb", [put_own, put, publish, publish_in_order])
def test_a_verb_interrupted_at_any_call_before_its_sync_leaves_nothing(
    tmp_path: Path, verb: Callable[[Spool], Prepared[Any]]
) -> None:
    at, was_interrupted = -1, True
    with Spool(tmp_path, sync="none") as spool, Spool(tmp_path, sync="none") as other:
        for name in ("jobs", "more"):
            spool.create_queue(name)
        if verb is publish_in_order:
            spool.create_queue("ordered", fifo=True)
        for name in spool.queues():
            spool.topic("news", create=True).subscribe(name)
        while was_interrupted:
            at += 1
            was_interrupted = interrupted(at, spool, verb)
            if at % 4 == 0:  # a mover may find its files first
                other.deliver()
            for name in spool.queues():
                queue = (other if at % 2 else spool).queue(name)
                if name == "ordered":
                    queue.put("once", group="g")
                for own in () if name == "ordered" else ("one", "two"):
                    with suppress(DuplicateMessage):  # the message was shown
                        queue.put("once", id=own)
                found = queue.claim(9)
                own_ids = [message.id for message in found if message.id in ("one", "two")]
                assert sorted(own_ids) == ([] if name == "ordered" else ["one", "two"]), at
                assert {message.body for message in found} == {b"once"}, at
                queue.remove_each(found)
            other.deliver()
            assert os.listdir(tmp_path / "new") == [], at
    assert at > 5


def interrupt_at(function: Callable[..., Any], event: str, verb: Callable[[], object]) -> None:
    """End a verb where a function begins ("call") or has just ended ("return"), or where it has
    just left a lock of threads ("c_return")."""
    code = function.__code__

    def stop(frame: FrameType, kind: str, called: Any) -> None:
        is_exit = kind != "c_return" or called.__name__ == "__exit__"
        if kind == event and frame.f_code is code and is_exit:
            sys.setprofile(None)
            raise Interrupted

    sys.setprofile(stop)
    try:
        verb()
    except Interrupted:
        return
    finally:
        sys.setprofile(None)
    raise AssertionError(f"{function} was not called")


VERBS: dict[str, Callable[[Spool], object]] = {
    "settings": lambda spool: spool.configure("jobs", {"visibility_timeout": 60}),
    "own id": lambda spool: spool.queue("jobs").put("x", id=os.urandom(8).hex()),
    "given id": lambda spool: spool.indexed("indexed").ensure(NewMessage(b"x", id="one")),
    "limits": lambda spool: spool.queue("limited").claim()[0].release(),
    "order": lambda spool: spool.queue("ordered").claim()[0].release(),
    "sends": lambda spool: spool.queue("ordered").put("x", group="g"),
    "latch": lambda spool: spool.queue("jobs").claim()[0].release(),
    "log": lambda spool: spool.log("users", create=True).publish(b"x"),
}


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("settings", locks.lock),
        ("settings", locks.hold),
        ("settings", locks.Lock.free),
        ("own id", locks.lock),
        ("own id", locks.Reservations.free),
        ("given id", ids.hold),
        ("given id", ids.Held.free),
        ("limits", shared.Shared._lock),
        ("limits", locks.Lock.unlock),
        ("order", locks.lock),
        ("order", locks.Lock.unlock),
        ("sends", send_lines.lock_sends),
        ("sends", locks.Lock.unlock),
        ("latch", latch.latch),
        ("latch", latch.Latched.close),
        ("latch", latch.Latched.unlatch),
        ("log", group_commit.GroupCommit._lead),
    ],
)
def test_a_lock_ends_with_an_interrupted_verb(
    tmp_path: Path, name: str, function: Callable[..., Any], event: str
) -> None:
    """For example between the lock and the ``try`` after it, or where its release begins."""
    with Spool(tmp_path, sync="none") as spool, Spool(tmp_path, sync="none") as other:
        for queue in ("jobs", "limited"):
            spool.create_queue(queue)
            spool.queue(queue).put_many(["1", "2"])
        spool.create_queue("ordered", fifo=True)
        spool.create_queue("indexed", index=True)
        spool.configure("limited", {"max_in_flight": 2})
        for group in ("a", "b"):
            spool.queue("ordered").put("1", group=group)
        verb = VERBS[name]
        verb(spool)
        interrupt_at(function, event, lambda: verb(spool))
        verb(other)
        verb(spool)


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize(
    "function",
    [context.complete, PutNumbers.take, PutNumbers.end, Staging.write_all, Staging.publish],
)
def test_a_number_ends_with_an_interrupted_put(
    tmp_path: Path, function: Callable[..., Any], event: str
) -> None:
    """A mover finishes or removes what was written while the program lives."""
    with Spool(tmp_path, sync="none") as spool, Spool(tmp_path, sync="none") as other:
        jobs = spool.queue("jobs", create=True)
        jobs.put("first")
        interrupt_at(function, event, lambda: jobs.put("lost"))
        other.deliver()
        assert os.listdir(tmp_path / "new") == []
        jobs.put("last")
        other.deliver()
        assert {"first", "last"} <= {message.body.decode() for message in jobs.claim(9)}


def test_a_latch_ends_with_its_object(tmp_path: Path) -> None:
    with Spool(tmp_path, sync="none") as spool:
        path = f"queues/jobs/{spool.queue('jobs', create=True).put('x')}"
        spool.deliver()
        open_files = len(os.listdir("/proc/self/fd"))
        latched = latch.latch(spool.context, path)
        with pytest.raises(BlockingIOError):
            latch.latch(spool.context, path)
        assert latched is not None
        del latched
        assert latch.latch(spool.context, path) is not None
        assert latch.pin(spool.context, path) is not None
        assert len(os.listdir("/proc/self/fd")) == open_files


def test_an_interrupted_publish_blocks_no_other(tmp_path: Path) -> None:
    with Spool(tmp_path, sync="none") as spool:
        VERBS["log"](spool)
        interrupt_at(group_commit.GroupCommit._join, "c_return", lambda: VERBS["log"](spool))
        other = threading.Thread(target=VERBS["log"], args=(spool,), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()


@pytest.mark.parametrize(
    ("function", "event"),
    [(Events.read, "return"), (Ready._apply, "call"), (GroupQueue.on_event, "call")],
)
def test_events_read_by_an_interrupted_claim_are_not_lost(
    tmp_path: Path, function: Callable[..., Any], event: str
) -> None:
    with (
        Spool(tmp_path, sync="none") as spool,
        Spool(tmp_path, sync="none", delivers=False) as other,
    ):
        spool.create_queue("ordered", fifo=True)
        ordered, theirs = spool.queue("ordered"), other.queue("ordered")
        ordered.put(b"0", group="a")
        theirs.claim()[0].ack()
        assert theirs.claim() == []
        ordered.put(b"1", group="a")
        interrupt_at(function, event, theirs.claim)
        ordered.put(b"2", group="a")
        assert [message.body for message in theirs.claim(9)] == [b"1"]


def test_an_interrupted_listing_after_lost_events_is_repeated(tmp_path: Path) -> None:
    with Spool(tmp_path, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"first")
        jobs.claim()[0].ack()
        make_noise(tmp_path / "queues" / "jobs")
        (tmp_path / "queues" / "jobs" / "late").write_bytes(b"x")
        interrupt_at(Ready.rescan, "call", jobs.claim)
        assert [message.id for message in jobs.claim(5)] == ["late"]
