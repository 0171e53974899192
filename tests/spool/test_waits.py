"""Claims that wait: events that wake them, and events that do not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq import NewMessage, Queue, Spool

LONG_S = 30.0


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c", "d"]])
def test_the_right_thread_is_woken(root: Path, names: list[str]) -> None:
    with (
        Spool(root, sync="none", delivers=False) as spool,
        Spool(root, sync="none", delivers=False) as other,
    ):
        claimed = threading.Semaphore(0)

        def consume(queue: Queue) -> None:
            while messages := queue.claim(wait=LONG_S):
                messages[0].ack()
                claimed.release()
                if messages[0].body == b"last":
                    return

        threads = [
            threading.Thread(target=consume, args=(spool.queue(name, create=True),))
            for name in names
        ]
        for thread in threads:
            thread.start()
        for number in range(20):
            other.queue(names[number % len(names)]).put(b"next")
            assert claimed.acquire(timeout=LONG_S / 2), number
        for name in names:
            other.queue(name).put(b"last")
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("choice", ["a", "a,b"])
def test_an_arrival_that_another_thread_reads_during_a_claim_is_not_missed(
    root: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    with Spool(root, sync="none", delivers=False) as spool, Spool(root, sync="none") as other:
        for name in "ab":
            spool.create_queue(name)
        complete = spool.complete

        def put_meanwhile(prepared: Any) -> Any:
            monkeypatch.setattr(spool, "complete", complete)
            other.queue("a").put(b"late")
            spool.context.ready.refresh()  # as a claim in another thread does
            return complete(prepared)

        monkeypatch.setattr(spool, "complete", put_meanwhile)
        began = time.monotonic()
        source = spool.select(choice) if "," in choice else spool.queue(choice)
        [message] = source.claim(wait=LONG_S)
        assert message.body == b"late"
        assert time.monotonic() - began < LONG_S / 2


def fifo(spool: Spool) -> Queue:
    spool.create_queue("waited", fifo=True)
    queue = spool.queue("waited")
    queue.put_many([NewMessage(b"x", group="g")] * 2)
    assert len(queue.claim()) == 1
    return queue


def fair(spool: Spool) -> Queue:
    queue = spool.queue("waited", create=True)
    queue.configure(fetch_order="fair")
    return queue


def limited(spool: Spool) -> Queue:
    queue = spool.queue("waited", create=True)
    queue.configure(max_in_flight=1)
    return queue


def full(spool: Spool) -> Queue:
    queue = fifo(spool)
    queue.configure(max_in_flight=1)
    return queue


@pytest.mark.parametrize("make", [fifo, fair, limited, full])
def test_a_claim_is_not_woken_by_its_own_locks(
    root: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Spool], Queue]
) -> None:
    """They are in the folder of the settings, which is watched once a queue was paused."""
    with Spool(root, sync="none", delivers=False) as spool:
        paused = spool.queue("paused", create=True)
        paused.put(b"x")
        paused.configure(paused=True)
        assert paused.claim() == []
        queue = make(spool)
        claims = 0
        complete = spool.complete

        def counted(prepared: Any) -> Any:
            nonlocal claims
            claims += 1
            return complete(prepared)

        monkeypatch.setattr(spool, "complete", counted)
        assert queue.claim(wait=1.0) == []
        assert claims < 10


def test_a_wait_without_a_descriptor_is_short(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError("too many open files")

    with Spool(root, sync="none", delivers=False) as spool:
        queue = spool.queue("a", create=True)
        monkeypatch.setattr(os, "eventfd", refuse)
        began = time.monotonic()
        spool.wait(LONG_S)
        assert time.monotonic() - began < LONG_S / 2
        assert queue.claim(wait=0.3) == []
