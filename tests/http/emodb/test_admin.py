"""The admin port, which EmoDB's clients ask after a failure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.ports import held
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Crowd, Wire
from tests.http.test_errors import is_problem


@pytest.fixture
def port() -> Iterator[int]:
    """A free port whose next port is free, too."""
    with ExitStack() as stack:
        while True:
            holder, number = held()
            stack.enter_context(holder)
            try:
                stack.enter_context(held(number + 1)[0])
            except OSError:
                continue
            yield number
            return


def test_the_admin_port_answers_health_checks(root: Path, port: int) -> None:
    options = [f"--port={port}", f"--admin-port={port + 1}"]
    suite = Suite(root, mq_options=options, mover=False, reaper=False)
    with suite, Wire(f"http://127.0.0.1:{port + 1}") as wire:
        assert wire.ask("HEAD", "/healthcheck").status == 200
        healthy = wire.ask("GET", "/healthcheck")
        assert (healthy.status, healthy.json) == (200, {"spool": {"healthy": True}})
        assert wire.ask("GET", "/ping").body == b"pong"
        assert wire.ask("GET", "/else").status == 404
        assert wire.ask("POST", "/healthcheck").status == 405
        (root / "new").rename(root / "elsewhere")
        ill = wire.ask("GET", "/healthcheck")
        assert (ill.status, ill.json["spool"]["healthy"]) == (500, False)


def ping(port: int) -> bool:
    with Wire(f"http://127.0.0.1:{port}") as wire:
        return wire.ask("GET", "/ping").body == b"pong"


def test_the_admin_port_has_the_limits_of_the_main_port(root: Path, port: int) -> None:
    most = 12
    options = [f"--port={port}", f"--admin-port={port + 1}", f"--max-connections={most}"]
    options += ["--header-timeout=0.5", "--idle-timeout=1"]
    with Suite(root, mq_options=options, mover=False, reaper=False):
        with Crowd(port + 1, 10 * most) as silent:
            eventually(lambda: silent.left() <= most, patience=5)
            assert ping(port + 1)  # which closes one of them
            eventually(lambda: not silent.left(), patience=10)  # they were silent for too long
        with Crowd(port + 1, most, b"GET /ping HT") as slow:
            eventually(lambda: not slow.left(), patience=10)
        with Wire(f"http://127.0.0.1:{port + 1}") as wire:
            wire.send("GET /ping HT")
            assert is_problem(wire.answer(), 408, "slow-head")


def test_a_busy_admin_port_is_an_error(root: Path, port: int) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        asked = [f"--port={port}", f"--admin-port={port + 1}"]
        suite = Suite(root, mq_options=asked, mover=False, reaper=False)
        suite["mq"].start(until_ready=False)
        try:
            assert suite["mq"].wait() != 0
        finally:
            suite.close()


@pytest.mark.parametrize(
    "more", [(), ("--admin-port={next}", "--dialects=none")], ids=["not asked for", "no emodb"]
)
def test_other_ports_stay_free(root: Path, port: int, more: tuple[str, ...]) -> None:
    options = [f"--port={port}", *(one.format(next=port + 1) for one in more)]
    with Suite(root, mq_options=options, mover=False, reaper=False), socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port + 1))
