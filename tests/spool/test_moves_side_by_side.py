"""Background moves: a problem with one move, or one message, does not hold up the others."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest

from fsmq.spool import NewMessage, Spool, Unavailable, prepare
from fsmq.spool.durability.locks import lock, reserve
from fsmq.spool.errors import InUse
from fsmq.spool.layout.transitions import State
from fsmq.spool.verbs.dedup import content_id, read_side, write_side
from fsmq.spool.verbs.moves import links_of_move
from fsmq.spool.verbs.moves.move import move_messages
from fsmq.spool.verbs.moves.redrive import redrive_messages
from fsmq.spool.views import browse
from tests.harness.calls import seen
from tests.harness.suite import eventually
from tests.spool.test_faults import refuse

# Shorter than any wait for a stopped process.
SOON_S = 3.0


@pytest.fixture
def slow(spool: Spool) -> str:
    """A move that takes hours."""
    spool.queue("slow", create=True).put_many([NewMessage(b"x")] * 99)
    spool.deliver()
    return spool.begin_move("slow", "slower", rate=0.01).ref


@contextmanager
def worked_on(spool: Spool) -> Iterator[None]:
    """Make all moves in a thread."""
    is_over = threading.Event()
    working = threading.Thread(target=spool.make_moves, args=(is_over.is_set,))
    working.start()
    try:
        yield
    finally:
        is_over.set()
        working.join()


def filled(spool: Spool, *queues: str) -> None:
    for queue in queues:
        spool.queue(queue, create=True).put(queue.encode())
    spool.deliver()


def create_dedup_queues(spool: Spool) -> None:
    for name in "ab":
        for side in (read_side(name), write_side(name)):
            spool.create_queue(side)


def is_done(spool: Spool, ref: str) -> Callable[[], bool]:
    return lambda: getattr(spool.find_move(ref), "status", None) == "complete"


def finish(spool: Spool, ref: str) -> None:
    eventually(lambda: bool(spool.make_moves()) or is_done(spool, ref)())


def test_a_failed_move_is_retried_beside_a_slow_one(spool: Spool, slow: str) -> None:
    filled(spool, "a")
    failed = []

    def fail_once(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_rename2" and str(arguments[1]).startswith("queues/a/") and not failed:
            failed.append(name)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    ref = spool.begin_move("a", "b").ref
    with seen(fail_once), worked_on(spool):
        eventually(is_done(spool, ref))
    assert failed
    assert spool.counts("b").ready == 1
    assert getattr(spool.find_move(slow), "status", None) == "in_progress"


def test_a_move_whose_worker_dies_continues_beside_a_slow_one(spool: Spool, slow: str) -> None:
    filled(spool, "a")
    ref = spool.begin_move("a", "b").ref
    worker = lock(spool.tree, f"moves/.{ref}.lock", os.O_CREAT)
    assert worker is not None
    with worked_on(spool):
        eventually(lambda: spool.counts("slow").ready == 98)
        assert spool.counts("a").ready == 1
        worker.unlock()
        eventually(is_done(spool, ref))


@pytest.mark.parametrize("redrives", [False, True])
def test_a_locked_target_holds_up_no_other_move(spool: Spool, redrives: bool) -> None:
    filled(spool, "a", "b", "c", "d")
    stopped = lock(spool.tree, "config/.b.lock", os.O_CREAT)
    assert stopped is not None
    kept = spool.begin_redrive("a", to="b") if redrives else spool.begin_move("a", "b")
    other = spool.begin_move("c", "d")
    with worked_on(spool):
        eventually(is_done(spool, other.ref), SOON_S)
        assert spool.counts("a").ready == 1
        stopped.free()
        eventually(is_done(spool, kept.ref))
    assert spool.counts("b").ready == 2


def test_a_message_that_a_stopped_process_puts_holds_up_no_other(spool: Spool) -> None:
    create_dedup_queues(spool)
    bodies = [b"%03d" % number for number in range(20)]
    spool.complete(prepare.dedup_send(spool.context, "a", bodies))
    spool.deliver()
    stopped = reserve(spool.tree, write_side("b"), content_id(bodies[0]))
    assert stopped is not None
    ref = spool.begin_move("a", "b", dedup=True).ref
    with worked_on(spool):
        eventually(lambda: spool.counts(write_side("b")).ready == 19, SOON_S)
        begun = time.monotonic()
        spool.create_queue(write_side("b"))
        spool.configure(write_side("b"), {"max_depth": 99})  # its name is not locked
        assert time.monotonic() - begun < SOON_S
        stopped.free()
        eventually(is_done(spool, ref))
    assert spool.counts(write_side("b")).ready == 20


def indexed(spool: Spool) -> list[str]:
    """Create two queues with an index, and return the ids of messages in the first."""
    for queue in "ab":
        spool.create_queue(queue, index=True)
    ids = [f"id{number}" for number in range(20)]
    spool.indexed("a").upsert([NewMessage(b"old", id=one) for one in ids])
    spool.deliver()
    return ids


def begin_move(spool: Spool) -> str:
    return spool.begin_move("a", "b").ref


def begin_redrive(spool: Spool) -> str:
    return spool.begin_redrive("a", to="b").ref


@pytest.mark.parametrize("begin", [begin_move, begin_redrive])
@pytest.mark.parametrize("where", ["a", "b"])
def test_a_locked_id_holds_up_only_its_message(
    spool: Spool, begin: Callable[[Spool], str], where: str
) -> None:
    indexed(spool)
    stopped = prepare.upsert(spool.context, where, [NewMessage(b"new", id="id7")])
    ref = begin(spool)
    with worked_on(spool):
        begun = time.monotonic()
        eventually(lambda: spool.counts("b").ready == 19)
        spool.configure("b", {"max_depth": 99})  # its name is not locked
        assert time.monotonic() - begun < SOON_S
        assert getattr(spool.find_move(ref), "status", None) == "in_progress"
        stopped.abort()
        eventually(is_done(spool, ref))
    assert spool.counts("b").ready == 20


def move_now(spool: Spool, verb: str, names: list[str]) -> object:
    if verb == "move":
        return spool.complete(move_messages(spool.context, "a", "b"))
    return spool.complete(redrive_messages(spool.context, "a", names, "b"))


@pytest.mark.parametrize("verb", ["move", "redrive"])
def test_a_locked_id_holds_up_only_its_message_in_the_foreground(
    spool: Spool, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = indexed(spool)
    stopped = prepare.upsert(spool.context, "a", [NewMessage(b"new", id="id7")])
    monkeypatch.setattr(links_of_move, "patiently", lambda attempt, patience_s: attempt())
    names = [message.id for message in spool.queue("a").peek(len(ids))]
    with pytest.raises(InUse):
        move_now(spool, verb, names)
    assert spool.counts("b").ready == 19
    stopped.abort()
    assert spool.complete(move_messages(spool.context, "a", "b")).moved == 1


def test_a_move_that_waits_for_one_message_pauses(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(spool)
    stopped = prepare.upsert(spool.context, "a", [NewMessage(b"new", id="id7")])
    monkeypatch.setattr(links_of_move, "PATIENCE_S", 0.0)
    ref = begin_move(spool)
    with pytest.raises(InUse):
        spool.make_moves()
    assert getattr(spool.find_move(ref), "moved", None) == 19
    stopped.abort()
    assert spool.make_moves() == 1
    assert getattr(spool.find_move(ref), "moved", None) == 20


def prepared(spool: Spool, kind: str) -> tuple[str, Callable[[], str]]:
    """Put nine messages into a queue; the target, and a function that begins the move."""
    if kind == "dedup":
        create_dedup_queues(spool)
        spool.complete(prepare.dedup_send(spool.context, "a", [b"%d" % n for n in range(9)]))
        spool.deliver()
        return write_side("b"), lambda: spool.begin_move("a", "b", dedup=True).ref
    spool.create_queue("b", index=kind == "indexed")
    if kind == "indexed":
        spool.create_queue("a", index=True)
        spool.indexed("a").upsert([NewMessage(b"x", id=f"id{number}") for number in range(9)])
    else:
        spool.queue("a", create=True).put_many([NewMessage(b"x")] * 9)
    spool.deliver()
    if kind == "redrive":
        return "b", lambda: spool.begin_redrive("a", to="b").ref
    count = 9 if kind == "count" else None
    return "b", lambda: spool.begin_move("a", "b", count=count).ref


@pytest.mark.parametrize("call", ["_rename2", "link"])
@pytest.mark.parametrize("kind", ["plain", "count", "redrive", "dedup", "indexed", "at once"])
def test_a_call_that_fails_for_one_message_holds_up_no_other(
    spool: Spool, kind: str, call: str
) -> None:
    target, order = prepared(spool, kind)
    source = write_side("a") if kind == "dedup" else "a"
    bad = list(browse.ids(spool.context, source, State.READY))[3]

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == call and bad in str(arguments[0 if call == "link" else 1]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    if kind == "at once":
        with seen(fail), pytest.raises(Unavailable) if call == "_rename2" else nullcontext():
            spool.queue("a").move_to("b")
        assert spool.counts("b").total == 8 + (call == "link")
        return
    ref = order()
    with seen(fail):
        for _ in range(2):
            with suppress(Unavailable):
                spool.make_moves()
        moved = spool.find_move(ref)
        assert moved is not None
        fails = call == "_rename2" or kind == "indexed"
        assert spool.counts(target).total == 8 + (not fails)
        assert (moved.moved, moved.status) == (8, "in_progress") if fails else (9, "complete")
    finish(spool, ref)
    assert spool.counts(target).total == 9


@pytest.mark.parametrize("verb", ["move", "redrive"])
def test_a_message_that_cannot_be_read_holds_up_no_other_in_the_foreground(
    spool: Spool, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = indexed(spool)
    names = [message.id for message in spool.queue("a").peek(len(ids))]
    with monkeypatch.context() as patched:
        refuse(spool, patched, "open", names[3], errno.EIO)
        with pytest.raises(Unavailable, match="EIO"):
            move_now(spool, verb, names)
        assert spool.counts("b").total == 19
    move_now(spool, verb, names)
    assert spool.counts("b").total == 20


@pytest.mark.parametrize("to", ["home", None])
def test_a_dead_letter_that_cannot_be_read_at_first_is_redriven_later(
    spool: Spool, to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = buried(spool, "home")[1]
    ref = spool.begin_redrive("dead", to=to).ref
    with monkeypatch.context() as patched:
        refuse(spool, patched, "open", bad, errno.EIO)
        with pytest.raises(Unavailable, match="EIO"):
            spool.make_moves()
        assert spool.counts("home").total == 2
    finish(spool, ref)
    assert spool.counts("home").total == 3


def test_a_delayed_message_whose_stat_fails_holds_up_no_other(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.queue("a", create=True).put_many([NewMessage(b"x", delay=60)] * 3)
    filled(spool, "b", "a")
    bad = list(browse.ids(spool.context, "a", State.DELAY))[1]
    ref = spool.begin_move("a", "b", in_flight=False, delayed=True).ref
    with monkeypatch.context() as patched:
        refuse(spool, patched, "stat", bad, errno.EIO)
        with pytest.raises(Unavailable, match="EIO"):
            spool.make_moves()
        assert spool.counts("b").total == 4
    finish(spool, ref)
    assert spool.counts("b").total == 5


def test_a_locked_origin_holds_up_no_dead_letter_of_another(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    buried(spool, "a", "b")
    monkeypatch.setattr("fsmq.spool.moves.work._PATIENCE_S", 0.0)
    stopped = lock(spool.tree, "config/.a.lock", os.O_CREAT)
    assert stopped is not None
    ref = spool.begin_redrive("dead").ref
    with pytest.raises(InUse):
        spool.make_moves()
    assert (spool.counts("a").total, spool.counts("b").total) == (0, 3)
    stopped.free()
    finish(spool, ref)
    assert (spool.counts("a").total, spool.counts("b").total) == (3, 3)


def test_a_locked_id_holds_up_no_later_portion(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = indexed(spool)
    stopped = prepare.upsert(spool.context, "a", [NewMessage(b"new", id=ids[-1])])
    monkeypatch.setattr("fsmq.spool.moves.work.MAX_CHOSEN", 5)
    monkeypatch.setattr(links_of_move, "PATIENCE_S", 0.0)
    ref = spool.begin_move("a", "b", count=20).ref
    with pytest.raises(InUse):
        spool.make_moves()
    assert spool.counts("b").total == 19
    stopped.abort()
    finish(spool, ref)
    assert spool.counts("b").total == 20


def buried(spool: Spool, *queues: str) -> list[str]:
    """Put three messages into each, bury them all in one queue, and return their ids."""
    spool.create_queue("dead")
    ids = []
    for queue in queues:
        spool.queue(queue, create=True).configure(dead_letter_queue="dead", max_deliveries=1)
        ids += spool.queue(queue).put_many([NewMessage(b"x")] * 3)
        spool.deliver()
        for message in spool.queue(queue).claim(3):
            message.bury("x")
    return ids
