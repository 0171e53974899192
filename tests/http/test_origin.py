"""Requests from pages of other sites, and host names."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.keyfile import add_key, bearer
from tests.http.test_errors import is_problem
from tests.http.test_held import traced

# Requests that need no preflight: a form, an image, fetch() in mode no-cors.
FOREIGN = [
    {"Origin": "https://evil.example", "Content-Type": "text/plain"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost"},
    {"Origin": "http://{host}.evil.example"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "none"},
]
OWN = [
    {},
    {"Origin": "http://{host}"},
    {"Origin": "HTTP://{host}", "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]


def filled(wire: Wire, headers: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("{host}", wire.host) for name, value in headers.items()}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_requests_from_pages_of_other_sites_are_refused(
    suite: Suite, queue: str, headers: dict[str, str]
) -> None:
    with Wire(suite.url) as wire:
        for method, path in (
            ("POST", f"/{queue}/messages"),
            ("GET", f"/{queue}/messages"),
            ("GET", "/"),
            ("DELETE", f"/{queue}"),
            ("GET", "/_openapi.json"),
        ):
            assert is_problem(wire.ask(method, path, filled(wire, headers)), 403, "cross-site")
        # A preflight gets no permission, either.
        asked = wire.ask("OPTIONS", f"/{queue}", filled(wire, headers))
        assert asked.status in (403, 405)
        assert not [name for name in asked.headers if name.lower().startswith("access-control")]
    assert (suite.root / "queues" / queue).is_dir()
    assert not list((suite.root / "queues" / queue).iterdir())


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_requests_from_the_same_origin_are_served(suite: Suite, headers: dict[str, str]) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "/", filled(wire, headers)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""],
)
def test_unknown_host_names_are_refused(suite: Suite, host: str) -> None:
    with Wire(suite.url) as wire:
        wire.host = host
        assert is_problem(wire.ask("GET", "/"), 421, "unknown-host")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8080",
        "localhost.:1",
        "app.localhost",
        "127.0.0.1",
        "127.0.0.2:99",
        "[::1]",
        "[::1]:8080",
        "192.168.1.7",
        socket.gethostname(),
    ],
)
def test_known_host_names_are_served(suite: Suite, host: str) -> None:
    with Wire(suite.url) as wire:
        wire.host = host
        assert wire.ask("GET", "/").status == 200


def test_http_1_0_without_a_host(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        wire.send("GET / HTTP/1.0\r\n\r\n")
        assert wire.answer().status == 200


def test_two_host_headers_are_refused(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert wire.answer().status == 400


def test_configured_host_names(root: Path) -> None:
    options = ["--host-names=mq.example,other"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        for host, status in (("MQ.example:80", 200), ("other", 200), ("evil.example", 421)):
            with Wire(suite.url) as wire:
                wire.host = host
                assert wire.ask("GET", "/").status == status


def test_with_keys_any_host_name_is_served(tmp_path: Path) -> None:
    key = bearer(add_key(tmp_path / "keys.toml", "all", "--receive=*"))
    options = [f"--keys={tmp_path}/keys.toml"]
    with (
        Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite,
        Wire(suite.url) as wire,
    ):
        wire.host = "mq.behind-a-proxy.example"
        assert wire.ask("GET", "/", key).status == 200
        foreign = key | {"Origin": "https://evil.example"}
        assert wire.ask("GET", "/", foreign).status == 403


def test_long_host_names_are_not_cached(root: Path) -> None:
    """Hosts in heads can be long, and there can be many."""
    with Inside(root, host_names=()) as server, traced() as more:
        for number in range(100):
            with Wire(server.url) as wire:
                host = f"{number}{'a' * 60_000}.localhost"
                wire.send(f"GET /_health/live HTTP/1.1\r\nHost: {host}\r\n\r\n")
                assert wire.answer().status == 200
        eventually(lambda: not server.server._connections.open)
        assert more() < 1_000_000
