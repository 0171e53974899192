"""The client for threads has the methods, results and errors of the library."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
from uuid6 import uuid7

from fsmq import (
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NewMessage,
    NoSuchMessage,
    QueueFull,
    Spool,
)
from tests.harness.suite import Suite, eventually, eventually_on_loop

ARRIVAL_S = 20.0
UUID = str(uuid7())


@pytest.fixture
def kind() -> str:
    """The client for threads; `test_alike.py` tests the async one, from which it is generated."""
    return "threads"


async def counted(jobs: Any, total: int) -> None:
    """Wait until a queue has ``total`` messages: counts of a server may be 0.2 s old."""

    async def are_counted() -> bool:
        return sum(await jobs.counts()) == total

    await eventually_on_loop(are_counted)


async def test_a_claimed_message_equals_that_of_the_library(
    jobs: Any, queue: str, suite: Suite
) -> None:
    body = bytes(range(256))
    put = await jobs.put(
        body, priority=3, ttl=500, content_type="text/x", attributes={"Trace": "8 f", "b": ""}
    )
    [claimed] = await jobs.claim(wait=ARRIVAL_S)
    assert (claimed.id, claimed.body, claimed.queue, claimed.state) == (
        put,
        body,
        queue,
        "in_flight",
    )
    with Spool(suite.root, delivers=False) as spool:
        embedded = spool.queue(queue).find(put)
    assert await jobs.find(put) == embedded == claimed


@pytest.mark.parametrize(
    "facts",
    [
        {"attributes": {"Name": "grün"}},
        {"attributes": {"Name": "x" * 9000}},
        {"attributes": {f"n{n}": "x" for n in range(200)}},
        {"content_type": "text/grün"},
        {"attributes": {"Name": "ä"}, "priority": 5, "delay": 0.01, "ttl": 50.5},
    ],
)
async def test_facts_that_headers_cannot_carry_are_stored(jobs: Any, facts: dict[str, Any]) -> None:
    for body in (b"text", b"\xff" * 100):
        put = await jobs.put(body, **facts)
        [claimed] = await jobs.claim(wait=ARRIVAL_S)
        assert (claimed.id, claimed.body) == (put, body)
        for name in ("attributes", "content_type", "priority"):
            assert getattr(claimed, name) == facts.get(name, getattr(claimed, name))
        assert await jobs.remove(put) == 1


async def test_a_claim_is_renewed_released_and_buried(jobs: Any, remote: Any, queue: str) -> None:
    await jobs.configure(max_deliveries=9, dead_letter_queue=f"{queue}.dead")
    put = await jobs.put(b"x")
    [first] = await jobs.claim(visibility=100, wait=ARRIVAL_S)
    assert await jobs.renew(put, 500) > first.deadline + 300
    released = time.monotonic()
    await jobs.release(put, delay=0.2)
    [second] = await jobs.claim(wait=ARRIVAL_S)
    assert time.monotonic() - released >= 0.2
    await jobs.release(put)
    [third] = await jobs.claim()
    assert [m.deliveries for m in (first, second, third)] == [1, 2, 3]
    await jobs.bury(put)
    [dead] = await remote.queue(f"{queue}.dead").claim()
    assert (dead.id, dead.deliveries) == (put, 1)
    for verb in (jobs.renew, jobs.release, jobs.bury):
        with pytest.raises(NoSuchMessage) as caught:
            await verb(put)
        assert (caught.value.queue, caught.value.message_id) == (queue, put)


async def test_many_are_put_in_order_and_removed(jobs: Any) -> None:
    bodies = [b"%d" % n for n in range(600)]
    ids = await jobs.put_many([*bodies[:599], NewMessage(bodies[599], id="own")])
    assert ids[:599] == sorted(ids[:599])
    assert ids[599] == "own"
    await counted(jobs, 600)
    assert [(await jobs.find(i)).body for i in (ids[0], ids[300], ids[599])] == [
        b"0",
        b"300",
        b"599",
    ]
    assert await jobs.remove(*ids, "gone", ids[0]) == 600
    await counted(jobs, 0)
    assert await jobs.put_many([]) == []
    assert await jobs.remove() == 0


async def test_large_messages_are_put_in_several_batches(jobs: Any) -> None:
    bodies = [bytes([n]) * 5_000_000 for n in (200, 65, 66)] + [b"small", b"\xfe" * 16_000_000]
    ids = await jobs.put_many(bodies)
    found = [await jobs.find(i) for i in ids]
    assert [m.body for m in found] == bodies


async def test_an_error_in_put_many_names_the_message(jobs: Any) -> None:
    for wrong, index in ((NewMessage(b"", priority=100), 300), (NewMessage(b"", delay=-1), 3)):
        with pytest.raises(InvalidValue) as caught:
            await jobs.put_many([b"x"] * index + [wrong])
        assert caught.value.index == index
        assert str(caught.value).startswith(f"message {index}: ")
    await counted(jobs, 250)  # the first batch of the first call
    await jobs.purge()
    await counted(jobs, 0)


async def test_peek_takes_pages_and_states(jobs: Any) -> None:
    ids = await jobs.put_many([b"x"] * 1100)

    async def are_ready() -> bool:
        return bool((await jobs.counts()).ready == 1100)

    await eventually_on_loop(are_ready)
    assert [m.id for m in await jobs.peek(1050)] == ids[:1050]
    assert [m.id for m in await jobs.peek(9, after=ids[1097])] == ids[1098:]
    [claimed] = await jobs.claim()
    assert await jobs.peek(state="in_flight") == [claimed]
    assert await jobs.peek(state="delay") == [claimed]  # the folder of both states
    assert await jobs.peek(state="delayed") == []
    for wrong in ({"state": "remove"}, {"state": "x"}, {"count": 0}):
        with pytest.raises(InvalidValue):
            await jobs.peek(**wrong)


async def test_any_file_name_is_an_id(jobs: Any, queue: str, suite: Suite) -> None:
    folder = suite.root / "queues" / queue
    names = ["a b", "a%41", "grün", "\udcff", "a+b&c=d;e", "\u2028"]
    for name in names:
        (folder / name).write_bytes(b"by hand")
    seen = await jobs.peek(100)
    assert [m.id for m in seen] == sorted(names)
    assert [m.id for m in await jobs.peek(100, after="a%41")] == [
        n for n in sorted(names) if n > "a%41"
    ]
    assert (await jobs.find("\udcff")).id == "\udcff"
    [claimed, *rest] = await jobs.claim(10)
    await jobs.renew(claimed.id, 20)
    await jobs.release(claimed.id)
    assert await jobs.remove(*names) == len(names)
    assert len(rest) == len(names) - 1


async def test_a_long_wait_takes_several_requests(
    jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.client.verbs.queue_verbs.MAX_WAIT_S", 0.2)
    await jobs.put(b"late", delay=0.7)
    [claimed] = await jobs.claim(wait=ARRIVAL_S)
    assert claimed.body == b"late"
    assert await jobs.claim(wait=0.5) == []


def refused(queue: Any) -> list[tuple[type[FsmqError], Any]]:
    """Errors and the calls that raise them; the queue has ``here`` and takes 10 bytes."""
    return [
        (InvalidValue, lambda: queue.put(b"", priority=100)),
        (InvalidValue, lambda: queue.put(b"", delay=-1)),
        (InvalidValue, lambda: queue.put(b"", ttl=float("nan"))),
        (InvalidValue, lambda: queue.put(b"", id="a/b")),
        (InvalidValue, lambda: queue.put(b"", id="p01.@plain@")),
        (InvalidValue, lambda: queue.put(b"", content_type="a\nb")),
        (InvalidValue, lambda: queue.put(b"", attributes={"a b": ""})),
        (InvalidValue, lambda: queue.put(b"", attributes={"a": "b\r\nX-Evil: 1"})),
        (InvalidValue, lambda: queue.claim(0)),
        (InvalidValue, lambda: queue.claim(1001)),
        (InvalidValue, lambda: queue.claim(visibility=-1)),
        (InvalidValue, lambda: queue.claim(wait=-1)),
        (InvalidValue, lambda: queue.renew("x", 1e9)),
        (InvalidValue, lambda: queue.renew("a/b")),
        (InvalidValue, lambda: queue.release("x", -1)),
        (InvalidValue, lambda: queue.bury("here")),
        (InvalidValue, lambda: queue.remove("x", "..")),
        (NoSuchMessage, lambda: queue.release("x")),
        (DuplicateMessage, lambda: queue.put(b"", id="here")),
        (DuplicateMessage, lambda: queue.put_many([b"", NewMessage(b"", id="here")])),
        (MessageTooLarge, lambda: queue.put(b"x" * 11)),
        (MessageTooLarge, lambda: queue.put_many([b"", b"x" * 11])),
    ]


async def test_errors_are_those_of_the_library(jobs: Any, queue: str, suite: Suite) -> None:
    await jobs.configure(max_message_bytes=10)
    await jobs.put(b"", id="here")
    with Spool(suite.root, delivers=False) as spool:
        pairs = zip(refused(jobs), refused(spool.queue(queue)), strict=True)
        for (kind, remote), (_, embedded) in pairs:
            with pytest.raises(kind) as ours:
                embedded()
            with pytest.raises(kind) as theirs:
                await remote()
            assert type(theirs.value) is type(ours.value)
            for name in ("index", "queue", "message_id", "field", "limit"):
                expected = getattr(ours.value, name, None)
                assert getattr(theirs.value, name, None) == expected, (ours.value, theirs.value)


async def test_a_full_queue_raises(make: Any, suite: Suite, queue: str) -> None:
    impatient = make(suite.url, retry_for=0).queue(queue)
    await impatient.configure(max_depth=1)
    await impatient.put(b"1")
    with pytest.raises(QueueFull) as caught:
        await impatient.put(b"2")
    assert caught.value.retry_after == 1


def test_the_library_alone_imports_no_http() -> None:
    program = """
import sys, fsmq
heavy = {"aiohttp", "urllib3", "asyncio", "http.client"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert set(fsmq.__all__) <= set(dir(fsmq))
fsmq.Client("http://localhost")
assert "aiohttp" not in sys.modules
assert all(getattr(fsmq, name) for name in fsmq.__all__)
try:
    fsmq.Klient
except AttributeError as error:
    assert "Klient" in str(error)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_client_survives_a_fork(suite: Suite, queue: str) -> None:
    program = f"""
import os, fsmq
client = fsmq.Client({suite.url!r})
queue = client.queue({queue!r})
queue.put(b"parent before")
children = [os.fork() for _ in range(2)]
for n in range(20):
    queue.put(b"%d" % os.getpid())
if all(children):
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    # Two forks make four processes.
    with Spool(suite.root, delivers=False) as spool:
        counted = eventually(lambda: spool.queue(queue).counts())
    assert counted.total == 1 + 4 * 20
