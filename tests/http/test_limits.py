"""Limits on clients: time, memory, connections, heads, and waits of one key."""

from __future__ import annotations

import gzip
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.keyfile import add_key, bearer
from tests.http.test_daemons import ask
from tests.http.test_errors import is_problem

MIB = 1024 * 1024
# Short, so that tests need not wait; long enough for a loaded machine to send a few bytes.
HEADER_S, IDLE_S = 1.0, 8.0
SOON_S = 9.0  # less than mq waits for a head without its option
WRITE_S = 3.0  # other requests have to be sent meanwhile, also on a loaded machine
CONNECTIONS = 12


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite with low limits."""
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
    """The memory of mq, or with ``VmHWM`` its peak, in bytes."""
    status = Path(f"/proc/{suite['mq'].pid}/status").read_text()
    [line] = [line for line in status.split("\n") if line.startswith(what)]
    return int(line.split()[1]) * 1024


def open_sockets(suite: Suite) -> int:
    """How many sockets mq has open."""
    found = 0
    for fd in Path(f"/proc/{suite['mq'].pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(fd).startswith("socket:")
    return found


# -- slow clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.0, 0.05], ids=["silent", "dripping"])
def test_an_incomplete_head_is_refused_in_time(strict: Suite, pause: float) -> None:
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


def test_an_incomplete_head_after_an_answer(strict: Suite) -> None:
    with Wire(strict.url) as slow:
        assert slow.ask("GET", "/q").status == 200
        slow.send("GET /q HTTP/1.1\r\n")
        assert is_problem(slow.answer(), 408, "slow-head")


def test_an_incomplete_head_behind_a_waiting_request(strict: Suite) -> None:
    with Wire(strict.url) as slow:
        first = f"GET /q/messages?wait={HEADER_S * 3} HTTP/1.1\r\nHost: {slow.host}\r\n\r\n"
        slow.send(f"{first}GET /q HTTP/1.1\r\n")
        assert slow.answer().status == 204  # its answer is the first and the last
        assert slow.is_closed()


def test_an_idle_connection_is_closed(strict: Suite) -> None:
    with Wire(strict.url) as fresh, Wire(strict.url) as used:
        assert used.ask("GET", "/q").status == 200
        assert fresh.is_closed()
        assert used.is_closed()


def test_a_long_poll_is_not_idle(strict: Suite) -> None:
    with Wire(strict.url) as waiting:
        waiting.request("GET", f"/q/messages?wait={IDLE_S * 1.25}")
        assert waiting.answer().status == 204
        assert waiting.ask("GET", "/q").status == 200


def test_a_client_that_reads_nothing_is_cut_off_and_its_memory_freed(strict: Suite) -> None:
    size = 12 * MIB  # more than the kernel takes for itself
    with Wire(strict.url) as greedy:
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert ask(strict, "POST", "/big/messages", b"x" * size).status == 201
        greedy.request("GET", "/big/messages?wait=20&visibility=600")
        eventually(lambda: list((strict.root / "delay").glob("big:*")))
        refused = eventually(lambda: overloaded(ask(strict, "GET", "/big/messages")))
        assert int(refused.headers["Retry-After"]) >= 1
        assert is_problem(ask(strict, "POST", "/big/messages", b"x"), 503, "overloaded")
        # Requests that free memory are still served.
        assert ask(strict, "DELETE", "/big/messages/none").status == 404
        eventually(lambda: ask(strict, "GET", "/big/messages").status == 204)


def overloaded(answer: Answer) -> Answer | None:
    return answer if answer.status == 503 and is_problem(answer, 503, "overloaded") else None


# -- memory ----------------------------------------------------------------------------------------


def test_a_body_beyond_the_memory_limit_is_refused_before_it_is_read(strict: Suite) -> None:
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
    """Announce a body and send nothing of it."""
    with Wire(suite.url) as wire:
        headers = {"Content-Length": str(size), "Expect": "100-continue"}
        return wire.ask("POST", "/q/messages?delay=900", headers)


def test_a_single_body_can_exceed_the_memory_limit(strict: Suite) -> None:
    with Wire(strict.url) as wire:
        assert wire.ask("POST", "/q/messages?delay=900", {}, b"x" * 6 * MIB).status == 201


def test_a_gzip_bomb_counts_its_decoded_size(strict: Suite) -> None:
    packed = gzip.compress(b"\0" * (15 * MIB), 9)
    with Wire(strict.url) as holder, Wire(strict.url) as wire:
        holder.request("POST", "/q/messages?delay=900", {"Content-Length": str(2 * MIB)})
        eventually(lambda: overloaded(announce(strict, 3 * MIB)))
        refused = wire.ask("POST", "/q/messages", {"Content-Encoding": "gzip"}, packed)
        assert is_problem(refused, 503, "overloaded")


@pytest.mark.parametrize("path", ["/q/batch", "/q/ack", "/queue/1/q/send"])
def test_json_with_too_many_values_is_refused(suite: Suite, path: str) -> None:
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


def test_a_connection_beyond_the_limit_is_refused_if_all_are_busy(strict: Suite) -> None:
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


def test_thousands_of_idle_connections_cost_little(root: Path) -> None:
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
def test_heads_have_limits(strict: Suite, raw: bytes) -> None:
    """A head is refused when it is too long, complete or not."""
    before = memory(strict)
    with Wire(strict.url) as wire:
        try:
            wire.send(b"GET /q HTTP/1.1\r\nHost: localhost\r\n" + raw)
        except OSError:
            pass  # refused before the end
        try:
            assert is_problem(wire.answer(), 400, "malformed-request")
        except ConnectionResetError:
            pass  # and the unread rest has reset the connection
        assert wire.is_closed()
    assert memory(strict) - before < 20 * MIB


# -- keys ------------------------------------------------------------------------------------------


def test_limits_of_a_key(tmp_path: Path) -> None:
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
        # The first fetch from a queue lists it in a thread. If these two were still
        # there, the third would wait instead of one of them.
        assert wires[5].ask("GET", "/q/messages", other).status == 204
        for wire in wires[:2]:
            wire.request("GET", "/q/messages?wait=20", one)
        with Wire(suite.url) as wire:
            for _ in range(2):  # everything sent before this was answered has been read
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
            size = MIB // 4  # there is memory for the first while the second is sent
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


def test_a_refused_waiter_leaves_the_message_to_the_next(tmp_path: Path) -> None:
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
            for _ in range(2):  # everything sent before this was answered has been read
                assert wire.ask("GET", "/q", other).status == 200
        hog.request("POST", "/q/messages", one | {"Content-Length": str(MIB)})
        eventually(lambda: too_many(wire.ask("GET", "/q/messages", one)))
        started = time.monotonic()
        assert wire.ask("POST", "/q/messages", other, b"hello").status == 201
        assert too_many(first.answer())
        assert second.answer().body == b"hello"
        assert time.monotonic() - started < 18, "it has slept on to the end of its wait"


def test_a_waiter_keeps_its_place_when_it_is_woken_in_vain(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    one = bearer(add_key(file, "one", "--receive=*", "--send=*"))
    options = [f"--keys={file}", "--max-waiters-per-key=1"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        ready = suite.root / "queues" / "q"
        ready.mkdir()
        with Wire(suite.url) as waiting, Wire(suite.url) as other:
            # The first fetch from a queue lists it in a thread.
            assert other.ask("GET", "/q/messages", one).status == 204
            waiting.request("GET", "/q/messages?wait=20", one)
            for _ in range(2):  # everything sent before this was answered has been read
                assert other.ask("GET", "/q", one).status == 200
            for _ in range(100):
                (ready / "folder").mkdir()  # wakes the waiting request without a message
                assert other.ask("GET", "/q/messages?wait=0.2", one).status == 429
                (ready / "folder").rmdir()
            (ready / "last").touch()
            assert waiting.answer().status == 200
