"""Workers of the library: failing disks, and cancelled claims."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq import Bury, Claim, Message, NoSuchQueue, Queue, Spool, Unavailable
from fsmq.spool.worker.source import channel_source, queue_source
from tests.harness.suite import eventually_on_loop


@pytest.fixture
def work(root: Path) -> Any:
    """A queue with the real clock."""
    with Spool(root, sync="none") as spool:
        yield spool.queue("work", create=True)


def failing(verb: Callable[..., Any], times: int) -> Callable[..., Any]:
    """A verb whose first calls fail."""
    left = [times]

    def tried(*of: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Unavailable("the disk is full", retry_after=0)
        return verb(*of)

    return tried


@pytest.mark.parametrize("verb", ["claim", "remove"])
async def test_failed_verbs_are_retried(
    work: Queue, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    seen: list[bytes] = []
    work.put(b"x")
    monkeypatch.setattr(work, verb, failing(getattr(work, verb), 2))
    worker = work.worker(lambda message, claim: seen.append(message.body))
    running = asyncio.create_task(asyncio.to_thread(worker.run))
    await eventually_on_loop(lambda: work.counts().total == 0)
    worker.stop()
    await running
    assert seen == [b"x"]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("kind", [Mute, type("MuteBury", (Mute, Bury), {})])
async def test_an_exception_without_a_text_does_not_end_a_worker(
    work: Queue, kind: type[Exception]
) -> None:
    work.configure(max_deliveries=1, dead_letter_queue="dead")
    work.put(b"1")
    work.put(b"2")

    def fail(message: Message, claim: Claim) -> None:
        raise kind

    worker = work.worker(fail)
    running = asyncio.create_task(asyncio.to_thread(worker.run))
    await eventually_on_loop(lambda: work.spool.queue("dead").counts().total == 2)
    worker.stop()
    await running


@pytest.mark.parametrize("kind", ["queue", "channel"])
async def test_a_cancelled_claim_releases_its_messages_without_counting_them(
    work: Queue, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    began, may_claim = threading.Event(), threading.Event()
    log = work.spool.log("users", create=True)
    channel = log.channel("c", create=True)
    claim = work.claim if kind == "queue" else channel.claim

    def slow(*of: Any) -> Any:
        began.set()
        assert may_claim.wait(60)
        return claim(*of)

    work.put(b"x")
    log.publish(b"x")
    monkeypatch.setattr(work if kind == "queue" else channel, "claim", slow)
    source = queue_source(work.spool, work, 1) if kind == "queue" else channel_source(channel, 1)
    claiming = asyncio.create_task(source.claim(1, 60.0))
    await eventually_on_loop(began.is_set)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    may_claim.set()
    await source.close()
    [message] = claim(1, 60.0)
    assert message.deliveries == 1


def test_a_worker_of_a_missing_queue_ends(work: Queue) -> None:
    def handle(message: Message, claim: Claim) -> None: ...

    with pytest.raises(NoSuchQueue):
        work.spool.queue("none").worker(handle).run(signals=False)
