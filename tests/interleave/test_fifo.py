"""Verbs on a fifo queue while another process acts between any two of their calls.

The other process finishes before the verb continues, or gives up at once if it would have to wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import FsmqError, NewMessage, Spool
from fsmq.spool.durability import send_lines
from fsmq.spool.layout.tree import Tree
from fsmq.spool.limits import contention, sequencer
from tests.spool.crashing import MUTATING

QUEUE = "orders"
Act = Callable[[Spool], object]


def put(spool: Spool) -> str:
    return spool.queue(QUEUE).put("a3", group="a", dedup_id="3")


def acknowledge(spool: Spool) -> None:
    for message in spool.queue(QUEUE).claim(9):
        message.ack()
    spool.reap()


def release(spool: Spool) -> None:
    for message in spool.queue(QUEUE).claim(9):
        message.release()


def recover(spool: Spool) -> None:
    """Recover as a starting mover does."""
    send_lines.Recovery(spool.tree, spool.context.stamps, QUEUE, spool.context.clock()).try_it()


def start(spool: Spool) -> None:
    """Start a program that delivers, and end it."""
    with Spool(spool.tree.root, sync="none") as another:
        another.deliver()


def purge(spool: Spool) -> None:
    spool.queue(QUEUE).purge()


VERBS: dict[str, Act] = {"put": put, "acknowledge": acknowledge}
OTHERS: dict[str, Act] = {
    **VERBS,
    "release": release,
    "recover": recover,
    "purge": purge,
    "start": start,
}


@contextmanager
def between(at: int, act: Callable[[], object]) -> Iterator[list[str]]:
    """Act before the mutating call of a number; the calls until now."""
    calls: list[str] = []
    names = {name: getattr(os, name) for name in MUTATING}
    rename2 = Tree._rename2
    is_inside = False

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            nonlocal is_inside
            if not is_inside:
                calls.append(name)
                if len(calls) == at + 1:
                    is_inside = True
                    with suppress(FsmqError):
                        act()
                    is_inside = False
            return call(*arguments, **named)

        return wrapped

    for name, call in names.items():
        setattr(os, name, wrap(name, call))
    Tree._rename2 = wrap("rename2", rename2)  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        for name, call in names.items():
            setattr(os, name, call)
        Tree._rename2 = rename2  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "LONG_S", 0.0)
    monkeypatch.setattr(sequencer, "PATIENCE_S", 0.0)
    monkeypatch.setattr(send_lines, "PATIENCE_S", 0.0)
    monkeypatch.setattr(send_lines, "_CLAIMS_S", 0.0)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("verb", VERBS)
def test_another_process_between_two_calls_breaks_no_promise(
    tmp_path: Path, verb: str, other: str
) -> None:
    for at in range(1000):
        root = tmp_path / str(at)
        with Spool(root, sync="none") as one, Spool(root, sync="none") as two:
            one.create_queue(QUEUE, fifo=True)
            known = one.queue(QUEUE).put_many(
                [NewMessage(b"a%d" % n, group="a", dedup_id=str(n)) for n in (1, 2)]
            )
            for spool in (one, two):  # both have used the queue
                assert spool.queue(QUEUE).put("a1", group="a", dedup_id="1") == known[0]
                release(spool)
            put_id = None
            with between(at, lambda two=two: OTHERS[other](two)) as calls, suppress(FsmqError):
                put_id = VERBS[verb](one)
            inspect(one, two, put_id, is_purged=other == "purge")
        if len(calls) <= at:
            return
    raise AssertionError("the verb did not end")


def test_a_deletion_removes_deduplication_ids(tmp_path: Path) -> None:
    """A message is stored in the next queue of the name, whatever another has put meanwhile."""
    for at in range(1000):
        root = tmp_path / str(at)
        with Spool(root, sync="none") as one, Spool(root, sync="none") as two:
            one.create_queue(QUEUE, fifo=True)
            for spool in (one, two):  # both have used the queue
                spool.queue(QUEUE).put("a1", group="a", dedup_id=str(id(spool)))
            with between(at, lambda two=two: put_and_acknowledge(two)) as calls:
                one.queue(QUEUE).delete()
            if one.create_queue(QUEUE, fifo=True):
                put_id = put(two)
                assert [m.id for m in one.queue(QUEUE).peek(9)] == [put_id]
        if len(calls) <= at:
            return
    raise AssertionError("the deletion did not end")


def test_a_search_finds_a_message_that_moves_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first put is still known after a power cut that lost the line of sends."""
    look, looks = Tree.look, 0
    for at in range(100):
        root = tmp_path / str(at)
        with Spool(root, sync="none") as one, Spool(root, sync="none") as two:
            one.create_queue(QUEUE, fifo=True)
            known = put(one)
            line = root / "config" / f".{QUEUE}.sends"
            with line.open("r+b") as file:
                last = send_lines.read_line(file.fileno()).last
                send_lines.write_line(file.fileno(), send_lines.Line(last))
            two.tree.rename(f"queues/{QUEUE}/{known}", f"delay/{QUEUE}:{known}")
            looks = 0

            def moving(tree: Tree, path: str, two: Spool = two, at: int = at) -> object:
                nonlocal looks
                if tree is not two.tree and path.endswith(known):  # noqa: B023
                    looks += 1
                    if looks == at + 1:
                        with suppress(FsmqError):
                            two.queue(QUEUE).release(known)  # noqa: B023
                    elif looks == at + 2:
                        with suppress(FsmqError):  # a recovering put blocks claims
                            two.queue(QUEUE).claim()
                return look(tree, path)

            with monkeypatch.context() as patch:
                patch.setattr(Tree, "look", moving)
                again = put(Spool(root, sync="none", delivers=False))
            assert again == known
        if looks <= at:
            assert at > 1
            return
    raise AssertionError("the look did not end")


def put_and_acknowledge(spool: Spool) -> None:
    put(spool)
    acknowledge(spool)


def inspect(one: Spool, two: Spool, put_id: object, is_purged: bool) -> None:
    """Messages are claimed one at a time, in order, and their ids are known."""
    hidden = [m.id for m in one.queue(QUEUE).peek(9, state="in_flight")]
    assert len(hidden) <= 1
    for message_id in hidden:
        one.queue(QUEUE).release(message_id)
    found = []
    for spool in (one, two) * 3:
        messages = spool.queue(QUEUE).claim(9)
        assert len(messages) <= 1
        for message in messages:
            found.append(message)
            message.ack()
    assert one.queue(QUEUE).counts().total == 0
    places = [message.sequence or 0 for message in found]
    assert places == sorted(places)
    assert len({message.dedup_id for message in found}) == len(found)
    if put_id is not None and not is_purged:
        assert two.queue(QUEUE).put("a3", group="a", dedup_id="3") == put_id
        assert one.queue(QUEUE).counts().total == 0
