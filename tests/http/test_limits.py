"""Limits: what one client may ask for, so that the others are served and memory has an end."""

from __future__ import annotations

import gzip
import resource
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.keyfile import add_key, bearer
from tests.http.test_errors import is_problem

MIB = 1024 * 1024
# Short, so that tests need not wait; long enough for a loaded machine to send a few bytes.
HEADER_S, IDLE_S = 1.0, 8.0
SOON_S = 9.0  # less than mq waits for a head without its option
WRITE_S = 3.0  # on a loaded machine, too, others have to ask meanwhile
CONNECTIONS = 12


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite whose clients may not do much."""
    options = [
        f"--header-timeout={HEADER_S}",
        f"--idle-timeout={IDLE_S}",
        f"--write-timeout={WRITE_S}",
        f"--max-connections={CONNECTIONS}",
        f"--max-body-memory={4 * MIB}",
        "--max-header-bytes=16384",
        "--max-headers=20",
        "--read-timeout=5",
    ]
    with Suite(tmp_path_factory.mktemp("strict") / "mq", mq_options=options) as running:
        for queue in ("q", "big", "busy"):
            (running.root / "queues" / queue).mkdir()
        yield running


def memory(suite: Suite, what: str = "VmRSS") -> int:
    """What mq has of memory, or (``VmHWM``) has ever had, in bytes."""
    status = Path(f"/proc/{suite['mq'].pid}/status").read_text()
    [line] = [line for line in status.split("\n") if line.startswith(what)]
    return int(line.split()[1]) * 1024


# -- slow clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["silent", "dripping"])
def test_a_head_that_does_not_end_gets_its_answer_in_time(strict: Suite, pause: float) -> None:
    with Wire(strict.url) as slow:
        slow.send("GET /q/messages HTTP/1.1\r\nX-Slow: ")
        started = time.monotonic()
        with Wire(strict.url) as other:
            assert other.ask("GET", "/q/messages").status == 204  # is not held up
        while pause and time.monotonic() - started < SOON_S:
            answered, _, _ = select.select([slow.socket], [], [], pause)
            if answered:
                break
            slow.send("a")
        assert is_problem(slow.answer(), 408, "slow-head")
        assert slow.is_closed()
        assert time.monotonic() - started < SOON_S


def test_a_head_that_does_not_end_behind_an_answer(strict: Suite) -> None:
    with Wire(strict.url) as slow:
        assert slow.ask("GET", "/q").status == 200
        slow.send("GET /q HTTP/1.1\r\n")
        assert is_problem(slow.answer(), 408, "slow-head")


def test_a_head_that_does_not_end_behind_one_that_waits(strict: Suite) -> None:
    with Wire(strict.url) as slow:
        first = f"GET /q/messages?wait={HEADER_S * 3} HTTP/1.1\r\nHost: {slow.host}\r\n\r\n"
        slow.send(f"{first}GET /q HTTP/1.1\r\n")
        assert slow.answer().status == 204  # its answer comes first, and is the last
        assert slow.is_closed()


def test_a_silent_connection_is_closed(strict: Suite) -> None:
    with Wire(strict.url) as fresh, Wire(strict.url) as used:
        assert used.ask("GET", "/q").status == 200
        assert fresh.is_closed()
        assert used.is_closed()


def test_a_long_poll_is_not_taken_for_silence(strict: Suite) -> None:
    with Wire(strict.url) as waiting:
        waiting.request("GET", f"/q/messages?wait={IDLE_S * 1.25}")
        assert waiting.answer().status == 204
        assert waiting.ask("GET", "/q").status == 200


def test_who_takes_no_answer_is_cut_off_and_frees_its_memory(strict: Suite) -> None:
    size = 12 * MIB  # more than the kernel takes for itself
    with Wire(strict.url) as greedy:
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert ask(strict, "POST", "/big/messages", b"x" * size).status == 201
        greedy.request("GET", "/big/messages?wait=20&visibility=600")
        eventually(lambda: list((strict.root / "delay").glob("big:*")))
        refused = eventually(lambda: overloaded(ask(strict, "GET", "/big/messages")))
        assert int(refused.headers["Retry-After"]) >= 1
        assert is_problem(ask(strict, "POST", "/big/messages", b"x"), 503, "overloaded")
        # What frees room goes on.
        assert ask(strict, "DELETE", "/big/messages/none").status == 404
        eventually(lambda: ask(strict, "GET", "/big/messages").status == 204)


def ask(suite: Suite, method: str, target: str, body: bytes = b"") -> Answer:
    """Ask on a connection of its own, which is not silent for long enough to be closed."""
    with Wire(suite.url) as wire:
        return wire.ask(method, target, {}, body)


def overloaded(answer: Answer) -> Answer | None:
    return answer if answer.status == 503 and is_problem(answer, 503, "overloaded") else None


# -- memory ----------------------------------------------------------------------------------------


def test_a_body_is_refused_before_it_is_read_when_there_is_no_room(strict: Suite) -> None:
    with Wire(strict.url) as first, Wire(strict.url) as second, Wire(strict.url) as third:
        first.request("POST", "/q/messages?delay=900", {"Content-Length": str(3 * MIB)})
        first.send(b"x" * MIB)
        eventually(lambda: overloaded(announce(strict, 2 * MIB)))
        second.request("POST", "/q/messages?delay=900", {"Transfer-Encoding": "chunked"})
        second.send(b"180000\r\n" + b"x" * 0x180000 + b"\r\n")
        refused = second.answer()
        assert is_problem(refused, 503, "overloaded")
        assert refused.headers["Retry-After"] == str(refused.json["retry_after"])
        assert third.ask("POST", "/q/messages?delay=900", {}, b"x" * 1000).status == 201
        first.send(b"x" * 2 * MIB)
        assert first.answer().status == 201
        assert third.ask("POST", "/q/messages?delay=900", {}, b"x" * 3 * MIB).status == 201


def announce(suite: Suite, size: int) -> Answer:
    """Ask for room for a body of which nothing is sent."""
    with Wire(suite.url) as wire:
        headers = {"Content-Length": str(size), "Expect": "100-continue"}
        return wire.ask("POST", "/q/messages?delay=900", headers)


def test_one_body_larger_than_the_memory_for_all_is_taken(strict: Suite) -> None:
    with Wire(strict.url) as wire:
        assert wire.ask("POST", "/q/messages?delay=900", {}, b"x" * 6 * MIB).status == 201


def test_many_large_bodies_at_once_do_not_exhaust_memory(root: Path) -> None:
    options = [f"--max-body-memory={32 * MIB}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        (root / "queues" / "q").mkdir()

        def send(_: int) -> int:
            with Wire(suite.url) as wire:
                try:
                    wire.request("POST", "/q/messages", {}, b"x" * 8 * MIB)
                except OSError:
                    pass  # refused, and closed before all was sent
                try:
                    return wire.answer().status
                except (OSError, AssertionError):
                    return 503

        before = memory(suite, "VmHWM")
        with ThreadPoolExecutor(40) as pool:
            statuses = list(pool.map(send, range(40)))
        assert set(statuses) <= {201, 503}
        assert 201 in statuses
        grown = memory(suite, "VmHWM") - before
        assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB for 40 bodies of 8"

        def is_stored() -> bool:
            with Wire(suite.url) as wire:
                return wire.ask("POST", "/q/messages", {}, b"x" * 16 * MIB).status == 201

        eventually(is_stored)  # all of the memory is given back when the last of them is told
        stored = len(list((root / "queues" / "q").iterdir()))
        assert stored == statuses.count(201) + 1


def test_a_bomb_takes_no_more_memory_than_its_limit(strict: Suite) -> None:
    packed = gzip.compress(b"\0" * (15 * MIB), 9)
    with Wire(strict.url) as holder, Wire(strict.url) as wire:
        holder.request("POST", "/q/messages?delay=900", {"Content-Length": str(2 * MIB)})
        eventually(lambda: overloaded(announce(strict, 3 * MIB)))
        refused = wire.ask("POST", "/q/messages", {"Content-Encoding": "gzip"}, packed)
        assert is_problem(refused, 503, "overloaded")


@pytest.mark.parametrize("path", ["/q/batch", "/q/ack", "/queue/1/q/send"])
def test_json_that_unfolds_is_refused(suite: Suite, path: str) -> None:
    (suite.root / "queues" / "q").mkdir(exist_ok=True)
    before = memory(suite, "VmHWM")
    for part in (b"{},", b"[],"):
        with Wire(suite.url) as wire:
            headers = {"Content-Type": "application/json"}
            answer = wire.ask("POST", path, headers, b"[" + part * (25 * MIB // 3) + b"0]")
            assert answer.status == 400
            assert b"more values than there is memory for" in answer.body
    grown = memory(suite, "VmHWM") - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB for 25"


# -- connections -----------------------------------------------------------------------------------


def test_the_oldest_idle_connection_makes_room_for_a_new_one(strict: Suite) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(Wire(strict.url)) for _ in range(CONNECTIONS)]
        for wire in idle:
            assert wire.ask("GET", "/q").status == 200
        with Wire(strict.url) as new:
            assert new.ask("GET", "/q").status == 200
            assert idle[0].is_closed()
            assert idle[-1].ask("GET", "/q").status == 200


def test_where_all_connections_are_busy_a_new_one_is_told_to_come_back(strict: Suite) -> None:
    with ExitStack() as stack:
        busy = [stack.enter_context(Wire(strict.url)) for _ in range(CONNECTIONS)]
        for wire in busy:
            wire.request("GET", "/busy/messages?wait=20&visibility=600")
        eventually(lambda: all(wire.is_read() for wire in busy))
        with Wire(strict.url) as one_more:
            answer = one_more.answer()
        assert is_problem(answer, 503, "overloaded")
        assert answer.headers["Retry-After"]
        assert answer.headers["Connection"] == "close"
        for number in range(CONNECTIONS):
            (strict.root / "queues" / "busy" / f"m{number}").touch()
        assert [wire.answer().status for wire in busy] == [200] * CONNECTIONS


def test_thousands_of_idle_connections_are_no_burden(root: Path) -> None:
    wanted = 5000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted + 1000:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle: list[socket.socket] = []
    try:
        with Suite(root, mover=False, reaper=False) as suite, Wire(suite.url) as wire:
            before = memory(suite)
            for _ in range(wanted):
                idle.append(socket.create_connection(("127.0.0.1", suite.port)))
            assert wire.ask("PUT", "/q").status == 201
            started = time.monotonic()
            for n in range(100):
                assert wire.ask("POST", f"/q/messages?id=m{n}").status == 201
            took = time.monotonic() - started
            grown = memory(suite) - before
            assert took < 15, f"100 posts took {took:.1f} s beside {wanted} idle connections"
            assert grown < 150 * MIB, f"{grown / wanted / 1024:.0f} KiB for an idle connection"
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- heads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"".join(b"X-%d: %s\r\n" % (n, b"a" * 4000) for n in range(10)),
        b"".join(b"X-%d: %s\r\n" % (n, b"a" * 4000) for n in range(5)) + b"\r\n",
        b"".join(b"X-%d: a\r\n" % n for n in range(30)) + b"\r\n",
        b"".join(b"X-%d: a\r\n" % n for n in range(100_000)),
        b"X: " + b"a" * 10_000_000,
    ],
    ids=["no end yet", "too long in all", "too many", "a hundred thousand", "one without an end"],
)
def test_a_head_has_its_limits(strict: Suite, raw: bytes) -> None:
    """It is refused as soon as it is too long, and with its end, too."""
    before = memory(strict)
    with Wire(strict.url) as wire:
        try:
            wire.send(b"GET /q HTTP/1.1\r\nHost: localhost\r\n" + raw)
        except OSError:
            pass  # refused before the end
        try:
            assert is_problem(wire.answer(), 400, "malformed-request")
        except ConnectionResetError:
            pass  # and what was left of it has reset the connection
        assert wire.is_closed()
    assert memory(strict) - before < 20 * MIB


async def test_a_pipeline_without_an_end_is_read_no_further_than_needed(strict: Suite) -> None:
    before = memory(strict)
    with Wire(strict.url) as wire:
        wire.request("GET", "/q/messages?wait=1.5")
        wire.socket.setblocking(False)
        request = f"GET /q HTTP/1.1\r\nHost: {wire.host}\r\n\r\n".encode() * 500
        sent, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            try:
                sent += wire.socket.send(request)
            except BlockingIOError:
                select.select([], [wire.socket], [], max(0.0, end - time.monotonic()))
        assert sent < 16 * MIB  # what the kernel holds
        assert memory(strict) - before < 16 * MIB
        wire.socket.setblocking(True)


# -- keys ------------------------------------------------------------------------------------------


def test_what_one_key_may_have_going_on(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    one = bearer(add_key(file, "one", "--receive=*", "--send=*"))
    other = bearer(add_key(file, "other", "--receive=*", "--send=*"))
    options = [
        f"--keys={file}",
        "--max-requests-per-key=4",
        "--max-waiters-per-key=2",
        f"--max-body-memory-per-key={MIB}",
    ]
    with Suite(tmp_path / "mq", mq_options=options, reaper=False) as suite, ExitStack() as stack:
        (suite.root / "queues" / "q").mkdir()
        wires = [stack.enter_context(Wire(suite.url)) for _ in range(6)]
        # The first look at a queue takes as long as its listing, in a thread. Were these two still
        # in it, the third would wait in the place of one of them.
        assert wires[5].ask("GET", "/q/messages", other).status == 204
        for wire in wires[:2]:
            wire.request("GET", "/q/messages?wait=20", one)
        with Wire(suite.url) as wire:
            for _ in range(2):  # what was sent before this was answered has been read
                assert wire.ask("GET", "/q", other).status == 200

            def refused() -> Answer | None:
                answer = wire.ask("GET", "/q/messages?wait=0.5", one)
                return answer if answer.status == 429 else None

            answer = eventually(refused)
            assert is_problem(answer, 429, "too-many-requests")
            assert "'one'" in answer.json["detail"]
            assert answer.headers["Retry-After"] == "5"
            assert wire.ask("GET", "/q/messages?wait=0.5", other).status == 204
            assert wire.ask("GET", "/q", one).status == 200
            size = MIB // 4  # who has waited has room for the first while the second is sent
            for held in wires[2:4]:
                held.request("POST", "/q/messages", one | {"Content-Length": str(size)})
            answer = eventually(lambda: too_many(wire.ask("GET", "/q", one)))
            assert "the key 'one' has its maximum of 4 open requests" in answer.json["detail"]
            assert wire.ask("GET", "/q", other).status == 200
            for held in wires[2:4]:
                held.send(b"x" * size)
                assert held.answer().status == 201
            # Those that waited have got them.
            assert [held.answer().status for held in wires[:2]] == [200, 200]
            assert wire.ask("GET", "/q", one).status == 200


def too_many(answer: Answer) -> Answer | None:
    return answer if answer.status == 429 else None


def test_who_is_refused_leaves_the_message_to_the_next_in_line(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    one = bearer(add_key(file, "one", "--receive=*", "--send=*"))
    other = bearer(add_key(file, "other", "--receive=*", "--send=*"))
    options = [f"--keys={file}", f"--max-body-memory-per-key={MIB}"]
    with Suite(tmp_path / "mq", mq_options=options, reaper=False) as suite, ExitStack() as stack:
        (suite.root / "queues" / "q").mkdir()
        first, second, hog, wire = (stack.enter_context(Wire(suite.url)) for _ in range(4))
        assert wire.ask("GET", "/q/messages", other).status == 204  # the queue is listed
        for waiting, key in ((first, one), (second, other)):
            waiting.request("GET", "/q/messages?wait=20", key)
            for _ in range(2):  # what was sent before this was answered has been read
                assert wire.ask("GET", "/q", other).status == 200
        hog.request("POST", "/q/messages", one | {"Content-Length": str(MIB)})
        eventually(lambda: too_many(wire.ask("GET", "/q/messages", one)))
        started = time.monotonic()
        assert wire.ask("POST", "/q/messages", other, b"hello").status == 201
        assert too_many(first.answer())
        assert second.answer().body == b"hello"
        assert time.monotonic() - started < 18, "it has slept on to the end of its wait"


def test_who_waits_keeps_the_place_however_often_it_is_woken(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    one = bearer(add_key(file, "one", "--receive=*", "--send=*"))
    options = [f"--keys={file}", "--max-waiters-per-key=1"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        ready = suite.root / "queues" / "q"
        ready.mkdir()
        with Wire(suite.url) as waiting, Wire(suite.url) as other:
            # The first look at a queue takes as long as its listing, in a thread.
            assert other.ask("GET", "/q/messages", one).status == 204
            waiting.request("GET", "/q/messages?wait=20", one)
            for _ in range(2):  # what was sent before this was answered has been read
                assert other.ask("GET", "/q", one).status == 200
            for _ in range(100):
                (ready / "folder").mkdir()  # wakes the one that waits, and is no message
                assert other.ask("GET", "/q/messages?wait=0.2", one).status == 429
                (ready / "folder").rmdir()
            (ready / "last").touch()
            assert waiting.answer().status == 200
