"""Concurrent pushes of the same ids to several shards: no push waits while it holds an id."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fsmq import NewMessage, Spool
from fsmq.dyno.folder import Folder
from fsmq.spool.durability.ids import PATIENCE_S, hold
from fsmq.spool.layout.messages.given_ids import link_name

ONE, TWO = NewMessage(b"1", id="one"), NewMessage(b"2", id="two")
A, B = "tasks@a", "tasks@b"


def test_a_waiting_push_locks_no_ids(tmp_path: Path) -> None:
    with Spool(tmp_path, sync="none") as spool, Spool(tmp_path, sync="none") as other:
        for queue in (A, B):
            spool.create_queue(queue, index=True)
        stopped = hold(spool.tree, {B: [link_name("two")]})
        assert stopped is not None
        pushing = threading.Thread(target=Folder(spool).upsert, args=[{A: [ONE], B: [TWO]}])
        pushing.start()
        longest = 0.0
        for _ in range(20):  # meanwhile the push retries
            began = time.monotonic()
            other.indexed(A).upsert([ONE])
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.01)
        stopped.free()
        pushing.join()
        assert longest < PATIENCE_S / 2
        assert spool.counts(B).total == 1


def test_pushes_with_opposite_orders_do_not_deadlock(tmp_path: Path) -> None:
    refused: list[BaseException] = []
    orders = ({A: [ONE], B: [TWO]}, {B: [TWO], A: [ONE]})

    def push(number: int) -> None:
        with Spool(tmp_path, sync="none") as spool:
            try:
                for _ in range(100):
                    Folder(spool).upsert(orders[number])
            except BaseException as error:
                refused.append(error)

    with Spool(tmp_path, sync="none") as spool:
        for queue in (A, B):
            spool.create_queue(queue, index=True)
        threads = [threading.Thread(target=push, args=[number]) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == []
        assert [spool.counts(queue).total for queue in (A, B)] == [1, 1]
