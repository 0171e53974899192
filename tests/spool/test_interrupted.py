"""Verbs that a signal's handler ends, Ctrl-C for one: nothing of theirs is in anybody's way."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, Spool
from fsmq.spool.context import Pending
from tests.harness.calls import Trap, seen


class Interrupted(BaseException):
    pass


def interrupted(at: int, spool: Spool, verb: Callable[[Spool], Pending[Any]]) -> bool:
    """Begin a verb that is ended at its call of a number; False if it makes fewer."""

    def stop(name: str, arguments: tuple[Any, ...]) -> None:
        raise Interrupted

    trap = Trap(at, stop)
    try:
        with seen(trap, looks=True):
            pending = verb(spool)
    except Interrupted:
        return True
    pending.abandon()
    return trap.is_sprung


def put_own(spool: Spool) -> Pending[Any]:
    return spool.unsynced.put(
        "jobs", [NewMessage(b"once", id="one"), NewMessage(b"once", id="two")]
    )


def put(spool: Spool) -> Pending[Any]:
    return spool.unsynced.put("jobs", [NewMessage(b"once"), NewMessage(b"once")])


def publish(spool: Spool) -> Pending[Any]:
    return spool.unsynced.publish("news", NewMessage(b"once", id="one"))


def publish_in_order(spool: Spool) -> Pending[Any]:
    return spool.unsynced.publish("news", NewMessage(b"once", group="g"))


@pytest.mark.parametrize("verb", [put_own, put, publish, publish_in_order])
def test_a_verb_that_is_interrupted_anywhere_before_its_sync_leaves_nothing(
    tmp_path: Path, verb: Callable[[Spool], Pending[Any]]
) -> None:
    at, goes_on = -1, True
    with Spool(tmp_path, sync="none") as spool, Spool(tmp_path, sync="none") as other:
        for name in ("jobs", "more"):
            spool.create_queue(name)
        if verb is publish_in_order:
            spool.create_queue("ordered", fifo=True)
        for name in spool.queues():
            spool.topic("news", create=True).subscribe(name)
        while goes_on:
            at += 1
            goes_on = interrupted(at, spool, verb)
            if at % 4 == 0:  # a mover finds what it has left
                other.deliver()
            who = other if at % 2 else spool
            for name in spool.queues():
                queue = who.queue(name)
                if name == "ordered":
                    queue.put("once", group="g")
                for own in () if name == "ordered" else ("one", "two"):
                    with suppress(DuplicateMessage):  # it was shown, whole
                        queue.put("once", id=own)
                found = queue.claim(9)
                own_ids = [message.id for message in found if message.id in ("one", "two")]
                assert sorted(own_ids) == ([] if name == "ordered" else ["one", "two"]), at
                assert {message.body for message in found} == {b"once"}, at
                queue.remove_each(found)
            other.deliver()
            assert os.listdir(tmp_path / "new") == [], at
    assert at > 5
