"""Lost requests and answers: every method is carried out once, or raises."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from uuid6 import uuid7

from fsmq import (
    AccessDenied,
    AsyncClient,
    Client,
    ConnectionFailed,
    DuplicateMessage,
    InvalidValue,
    NewMessage,
    NoSuchMessage,
    Unavailable,
    UnexpectedAnswer,
)
from fsmq.client.exchange import Answer
from tests.client.proxy import Proxy
from tests.faults.test_real_disks import disk, fill  # noqa: F401 - a fixture
from tests.harness import certificates
from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http.keyfile import add_key

ARRIVAL_S = 20.0


# -- lost answers ----------------------------------------------------------------------------------


async def test_a_put_whose_answer_is_lost_is_stored_once(far: Any, jobs: Any, proxy: Proxy) -> None:
    proxy.lose_answers = 2
    put = await far.put(b"x", content_type="text/plain")
    assert proxy.lose_answers == 0
    [claimed] = await jobs.claim(10, wait=ARRIVAL_S)
    assert (claimed.id, claimed.body) == (put, b"x")
    assert await jobs.claim(wait=0.1) == []


async def test_a_put_whose_request_is_lost_is_stored(far: Any, jobs: Any, proxy: Proxy) -> None:
    proxy.lose_requests = 1
    put = await far.put(b"x")
    assert [m.id for m in await jobs.claim(10, wait=ARRIVAL_S)] == [put]


async def test_a_batch_whose_answer_is_lost_is_stored_once(
    far: Any, jobs: Any, proxy: Proxy
) -> None:
    proxy.lose_answers = 1
    ids = await far.put_many([b"%d" % n for n in range(100)])
    found: list[str] = []
    while len(found) < 100:
        found += [m.id for m in await jobs.claim(200, wait=ARRIVAL_S)]
    assert sorted(found) == ids
    assert await jobs.claim(wait=0.1) == []


async def test_a_batch_of_which_a_part_is_stored_is_completed(
    far: Any, jobs: Any, proxy: Proxy
) -> None:
    """As after a kill of the server during the batch."""
    messages = [NewMessage(b"%d" % n, id=str(uuid7())) for n in range(5)]
    await jobs.put(messages[2].body, id=messages[2].id)
    proxy.lose_requests = 1
    assert await far.put_many(messages) == [m.id for m in messages]
    found: list[str] = []
    while len(found) < 5:
        found += [m.id for m in await jobs.claim(9, wait=ARRIVAL_S)]
    assert sorted(found) == sorted(m.id for m in messages)


async def test_an_own_id_that_was_stored_before_is_a_duplicate(
    make: Any, far: Any, jobs: Any, proxy: Proxy, queue: str
) -> None:
    await jobs.put(b"first", id="order-1")
    with pytest.raises(DuplicateMessage):
        await far.put(b"second", id="order-1")
    # A refused connection cannot have stored it.
    proxy.hang_up()
    fresh = make(proxy.url).queue(queue)
    again = asyncio.create_task(fresh.put(b"second", id="order-1"))
    assert await asyncio.wait({again}, timeout=0.3) == (set(), {again})
    proxy.listen()
    with pytest.raises(DuplicateMessage):
        await again


async def test_a_remove_whose_answer_is_lost_succeeds(far: Any, jobs: Any, proxy: Proxy) -> None:
    ids = await jobs.put_many([b"1", b"2"])
    proxy.lose_answers = 1
    assert await far.remove(*ids) == 2
    assert await far.remove(*ids) == 0


async def test_a_claim_whose_answer_is_lost_comes_back_at_its_deadline(
    far: Any, jobs: Any, proxy: Proxy
) -> None:
    put = await jobs.put(b"x")
    proxy.lose_answers = 1
    [claimed] = await far.claim(visibility=1, wait=ARRIVAL_S)
    assert (claimed.id, claimed.deliveries) == (put, 2)


async def test_release_and_bury_succeed_when_their_answers_are_lost(
    far: Any, jobs: Any, proxy: Proxy, queue: str
) -> None:
    await jobs.configure(max_deliveries=9, dead_letter_queue=f"{queue}.dead")
    put = await jobs.put(b"x")
    for verb in (far.release, far.bury):
        await jobs.claim(wait=ARRIVAL_S)
        proxy.lose_answers = 1
        await verb(put)
        assert proxy.lose_answers == 0
        with pytest.raises(NoSuchMessage):
            await verb(put)


async def test_a_second_try_returns_what_the_route_documents(
    make: Any, remote: Any, proxy: Proxy, queue: str
) -> None:
    """The texts are `again` in `Operation`, the source of the table in docs/client.md."""
    client = make(proxy.url)
    topic, log, schedule = client.topic(queue), client.log(queue), client.schedule(queue)
    channel, dead = log.channel("c"), f"{queue}.dead"

    async def lost(verb: Any) -> Any:
        proxy.lose_answers = 1
        found = await verb
        assert proxy.lose_answers == 0
        return found

    # It exists already.
    assert await lost(client.create_queue(queue)) is False
    assert await lost(topic.create()) is False
    assert await lost(topic.subscribe(queue)) is False
    assert await lost(log.create()) is False
    assert await lost(topic.subscribe(f"logs/{queue}")) is False
    assert await lost(channel.create("first")) is False
    assert await lost(schedule.define("@yearly", queue)) is False
    # Repeated with the same result.
    work = client.queue(queue)
    settings = await lost(work.configure(max_deliveries=9, dead_letter_queue=dead))
    assert settings.dead_letter_queue == dead
    assert (await lost(log.configure(retain_for=60))).retain_for == 60
    assert (await lost(channel.configure(dead_letter_queue=dead))).dead_letter_queue == dead
    assert (await lost(schedule.configure(paused=True))).paused
    assert await lost(channel.seek("first")) == 0
    # Not stored or counted twice.
    assert [await lost(log.publish(b"x")) for _ in range(3)] == [0, 1, 2]
    assert await lost(log.publish_many([b"x"])) == range(3, 4)
    one, two, three = [(await channel.claim(1, wait=ARRIVAL_S))[0] for _ in range(3)]
    assert await lost(channel.ack(one)) == 1
    assert await lost(channel.renew(two, visibility=600)) > time.time() + 500
    await lost(channel.release(two, delay=60))
    await lost(channel.bury(three))
    # A second message, or a copy, may come.
    await lost(schedule.put_now())
    assert set(await lost(topic.publish(b"x"))) == {queue, f"logs/{queue}"}
    ready = remote.queue(queue)

    async def are_ready() -> bool:
        return (await ready.counts()).ready == 4

    await eventually_on_loop(are_ready)
    # A moved message is not counted again.
    [message, other, *_] = await work.peek()
    changed = await lost(work.set_priority(message, 7))
    assert (await work.find(changed)).priority == 7
    assert await lost(work.move_to(dead, only=[other.id])) == (0, 0)
    assert (await client.queue(dead).find(other.id)) is not None
    await lost(work.purge())

    async def is_empty() -> bool:
        return (await ready.counts()).total == 0

    await eventually_on_loop(is_empty)  # counts of a server may be a little old
    # A missing object was deleted by the first try.
    assert await lost(topic.unsubscribe(queue)) is True
    assert await lost(topic.unsubscribe(f"logs/{queue}")) is True
    for there in (schedule, channel, log, topic, work):
        await lost(there.delete())
    assert not await remote.has_queue(queue)


# -- connections -----------------------------------------------------------------------------------


async def test_connections_are_kept(far: Any, proxy: Proxy) -> None:
    for _ in range(20):
        await far.put(b"x")
    await far.put_many([b"x", b"y"])
    await far.claim(5, wait=ARRIVAL_S)
    assert proxy.connections == 1


async def test_a_closed_connection_is_replaced(far: Any, proxy: Proxy) -> None:
    await far.put(b"x")
    proxy.hang_up()
    proxy.listen()
    await far.put(b"x")
    assert proxy.connections == 2


async def test_an_unreachable_server_is_an_error_after_the_retries(make: Any, proxy: Proxy) -> None:
    proxy.hang_up()
    started = time.monotonic()
    with pytest.raises(ConnectionFailed) as caught:
        await make(proxy.url, retry_for=0.5).queues()
    assert 0.5 <= time.monotonic() - started < 30
    assert isinstance(caught.value, ConnectionError)
    assert proxy.url in str(caught.value)


async def test_a_silent_server_is_a_timeout(make: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = make(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3, retry_for=0)
        with pytest.raises(ConnectionFailed, match=r"within 0\.3 seconds") as caught:
            await client.queue("q").put(b"x")
    assert caught.value.maybe_done


# -- Retry-After -----------------------------------------------------------------------------------


class Scripted:
    """A real HTTP server that sends the answers of a script, and then 201."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str]]] = []
        self.asked: list[tuple[float, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                outer.asked.append((time.monotonic(), self.path))
                status, headers = outer.script.pop(0) if outer.script else (201, {})
                self.send_response_only(status)
                for name, value in {"X-Message-Id": "it", "Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *of: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.mark.parametrize("status", [503, 429, 502])
async def test_a_retry_waits_for_retry_after(make: Any, scripted: Scripted, status: int) -> None:
    scripted.script = [(status, {"Retry-After": "1"})]
    assert await make(scripted.url).queue("q").put(b"x") == "it"
    (first, path), (second, same_path) = scripted.asked
    assert path == same_path
    assert "id=0" in path
    assert 1 <= second - first < 30


async def test_a_date_in_retry_after_uses_the_clock_of_the_server(
    make: Any, scripted: Scripted
) -> None:
    wrong = datetime.now(UTC) - timedelta(days=1000)
    dates = {
        "Date": format_datetime(wrong, usegmt=True),
        "Retry-After": format_datetime(wrong + timedelta(seconds=1), usegmt=True),
    }
    scripted.script = [(503, dates)]
    await make(scripted.url).queue("q").put(b"x")
    (first, _), (second, _) = scripted.asked
    assert 1 <= second - first < 30


async def test_a_retry_after_beyond_the_limit_raises_at_once(make: Any, scripted: Scripted) -> None:
    scripted.script = [(503, {"Retry-After": "3600"})]
    started = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        await make(scripted.url, retry_for=30).queue("q").put(b"x")
    assert time.monotonic() - started < 20
    assert caught.value.retry_after == 3600


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("9" * 99, 999_999_999)],
)
def test_retry_after_is_parsed(value: str, seconds: float | None) -> None:
    assert Answer(503, {"retry-after": value}, b"").retry_after == seconds


def test_a_past_date_in_retry_after_is_zero() -> None:
    over = {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT", "date": "nonsense"}
    assert Answer(503, over, b"").retry_after == 0


@pytest.mark.parametrize("status", [500, 418, 301])
async def test_an_unexpected_status_is_not_retried(
    make: Any, scripted: Scripted, status: int
) -> None:
    scripted.script = [(status, {"Location": "/elsewhere"})]
    with pytest.raises(UnexpectedAnswer) as caught:
        await make(scripted.url).queue("q").put(b"x")
    assert caught.value.status == status
    assert len(scripted.asked) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small filesystem")
@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
async def test_a_put_waits_for_a_full_disk(disk: Path) -> None:  # noqa: F811
    with Suite(disk / "mq", logs=disk.parent / "logs") as small:
        (small.root / "queues" / "q").mkdir()
        ballast = fill(disk)
        client, loop_client = Client(small.url), AsyncClient(small.url)
        started = time.monotonic()
        tries = [
            asyncio.create_task(asyncio.to_thread(client.queue("q").put, b"x" * 5000)),
            asyncio.create_task(loop_client.queue("q").put(b"x" * 5000)),
        ]

        def refused() -> int:
            return sum(" 503" in str(e) or "full" in str(e) for e in small.logs("mq"))

        await eventually_on_loop(lambda: refused() >= 2)
        ballast.unlink()
        ids = await asyncio.gather(*tries)
        # The server asks for 5 seconds when its disk is full.
        assert time.monotonic() - started >= 5
        assert {m.id for m in await loop_client.queue("q").claim(2, wait=5)} <= set(ids)
        client.close()
        await loop_client.close()


# -- TLS and keys ----------------------------------------------------------------------------------


async def test_a_server_with_a_certificate(
    make: Any, suite: Suite, queue: str, tmp_path: Path
) -> None:
    if not certificates.HAS_OPENSSL:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = certificates.make(tmp_path, "proxy")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with Proxy(suite.port, context) as secure:
        trusting = make(secure.url, ca=certificate).queue(queue)
        assert await trusting.find(await trusting.put(b"x")) is not None
        started = time.monotonic()
        with pytest.raises(ConnectionFailed, match=r"(?i)certificate") as caught:
            await make(secure.url).queues()
        # It is not retried.
        assert caught.value.lasting
        assert time.monotonic() - started < 30
    with pytest.raises(InvalidValue, match="ca: "):
        make("https://localhost", ca=tmp_path / "missing")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, str]]:
    """A suite with keys, and a key that may send to the queue ``q``."""
    folder = tmp_path_factory.mktemp("locked")
    key = add_key(folder / "keys.toml", "sender", "--send", "q")
    options = [f"--keys={folder / 'keys.toml'}"]
    with Suite(folder / "mq", mq_options=options, reaper=False) as running:
        (running.root / "queues" / "q").mkdir()
        yield running, key


async def test_a_key_is_sent_and_never_shown(
    make: Any,
    locked: tuple[Suite, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    suite, key = locked
    caplog.set_level(logging.DEBUG)
    assert await make(suite.url, key=key).queue("q").put(b"x")
    with pytest.raises(AccessDenied) as forbidden:
        await make(suite.url, key=key).queue("q").claim()
    with pytest.raises(AccessDenied) as unknown:
        await make(suite.url, key="nonsense").queue("q").put(b"x")
    with pytest.raises(AccessDenied):
        await make(suite.url).queue("q").put(b"x")
    monkeypatch.setenv("FSMQ_KEY", key)
    client = make(suite.url)
    assert await client.queue("q").put_many([b"x", b"y"])
    real = getattr(client, "wrapped", client)
    texts = [repr(real), repr(real.options), repr(real.queue("q")), caplog.text]
    texts += [str(forbidden.value), str(unknown.value)]
    assert not [text for text in texts if key in text or "nonsense" in text]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"url": "localhost:8080"}, "url"),
        ({"url": "ftp://host"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://host:99999"}, "url"),
        ({"url": "http://me:secret@host"}, "url"),
        ({"url": "http://host/?x=1"}, "url"),
        ({"url": "http://host", "key": "a b"}, "key"),
        ({"url": "http://host", "key": "secret\n"}, "key"),
        ({"url": "http://host", "timeout": 0}, "timeout"),
        ({"url": "http://host", "timeout": float("nan")}, "timeout"),
        ({"url": "http://host", "retry_for": -1}, "retry_for"),
        ({"url": "http://host", "connections": 0}, "connections"),
    ],
)
async def test_invalid_options_are_refused(make: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make(**options)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


async def test_a_url_can_have_a_path(make: Any, scripted: Scripted) -> None:
    assert await make(f"{scripted.url}/behind/a/proxy/").queue("q").put(b"x") == "it"
    [(_, path)] = scripted.asked
    assert path.startswith("/behind/a/proxy/q/messages?id=")


async def test_a_restart_of_mq_loses_no_put(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", reaper=False) as own, Client(own.url) as client:
        ready = own.root / "queues" / "q"
        ready.mkdir()
        async with AsyncClient(own.url) as loop_client:
            queue = loop_client.queue("q")
            bodies = [b"%d" % n for n in range(700)]
            putting = asyncio.gather(
                queue.put_many(bodies), asyncio.to_thread(client.queue("q").put_many, bodies)
            )
            await asyncio.to_thread(eventually, lambda: list(ready.iterdir()))
            await asyncio.to_thread(own.restart, "mq")
            ids = sorted(itertools.chain(*await putting))
            assert len(set(ids)) == 2 * len(bodies)
            found: list[str] = []
            while len(found) < len(ids) and (claimed := await queue.claim(1000, wait=ARRIVAL_S)):
                found += [m.id for m in claimed]
            assert sorted(found) == ids
            assert await queue.claim(wait=0.1) == []
