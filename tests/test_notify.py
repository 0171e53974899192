"""The readiness protocol on real sockets."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.daemons.process.notify import Listener, Notifier, listen_fds
from tests.harness.suite import HOME


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager, bound to a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


@pytest.fixture
def notifier(manager: socket.socket) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": manager.getsockname()})


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def test_ready(notifier: Notifier, manager: socket.socket) -> None:
    assert notifier.ready("listening on http://127.0.0.1:8080")
    assert manager.recv(4096) == b"READY=1\nSTATUS=listening on http://127.0.0.1:8080"
    assert notifier.ready()
    assert manager.recv(4096) == b"READY=1"


def test_stopping_and_status(notifier: Notifier, manager: socket.socket) -> None:
    notifier.stopping("answering 3 requests")
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=answering 3 requests"
    notifier.status("full")
    assert manager.recv(4096) == b"STATUS=full"
    notifier.ping()
    assert manager.recv(4096) == b"WATCHDOG=1"


def test_reloading_has_the_time(notifier: Notifier, manager: socket.socket) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    first, second = manager.recv(4096).decode().split("\n")
    name, _, micros = second.partition("=")
    assert (first, name) == ("RELOADING=1", "MONOTONIC_USEC")
    assert before <= int(micros) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_a_status_cannot_add_a_field(notifier: Notifier, manager: socket.socket) -> None:
    notifier.status("a\nREADY=1\x00b\udcff")
    assert manager.recv(4096) == b"STATUS=a READY=1 b?"


def test_the_socket_may_be_abstract() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")
        name = receiver.getsockname()
        assert Notifier({"NOTIFY_SOCKET": "@" + name[1:].decode()}).ready()
        assert receiver.recv(4096) == b"READY=1"


@pytest.mark.parametrize("name", ["", "relative", "/none/such", "@none-such", "/" + "x" * 200])
def test_a_missing_listener_is_no_error(name: str) -> None:
    assert not Notifier({"NOTIFY_SOCKET": name} if name else {}).ready("fine")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
    ],
)
def test_the_watchdog_is_pinged_each_half_period(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert Notifier(environ).watchdog_interval == seconds


def test_a_listener_receives_from_a_notifier(listener: Listener) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": listener.address})
    before = listener.heard_at
    notifier.status("starting")
    listener.receive()
    assert (listener.is_ready, listener.status) == (False, "starting")
    assert listener.heard_at == before
    notifier.ready("listening")
    notifier.ping()
    listener.receive()
    assert (listener.is_ready, listener.status) == (True, "listening")
    assert listener.heard_at > before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_listener_ignores_other_users(listener: Listener) -> None:
    code = f"""
import os
from fsmq.daemons.process.notify import Notifier
os.setuid(65534)
assert Notifier({{"NOTIFY_SOCKET": {listener.address!r}}}).ready()
"""
    env = {**os.environ, "PYTHONPATH": str(HOME)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    own = os.geteuid()
    os.seteuid(65533)  # now the user of the listener
    try:
        listener.receive()
    finally:
        os.seteuid(own)
    assert not listener.is_ready


def test_inherited_sockets_are_taken_over() -> None:
    """A process with a listening socket at descriptor 3 gets it once."""
    code = """
import os, sys
from fsmq.daemons.process.notify import listen_fds
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
[taken] = listen_fds()
assert taken.fileno() == 3 and not taken.get_inheritable()
assert not listen_fds() and "LISTEN_FDS" not in os.environ
print(taken.getsockname()[1])
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.run(
            [sys.executable, "-c", code, str(server.fileno())],
            pass_fds=[server.fileno()],
            env={**os.environ, "PYTHONPATH": str(HOME), "LISTEN_FDS": "1"},
            stdout=subprocess.PIPE,
            check=True,
        )
        assert int(done.stdout) == server.getsockname()[1]


def test_sockets_for_another_process_are_ignored() -> None:
    assert listen_fds({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == []
    assert listen_fds({}) == []
