"""Keys (1.2 of EmoDB's contract): rights and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.emodb.helpers import EXCEPTION, JSON, SERVICES, SUCCESS, UNAUTHORIZED
from tests.http.helpers import Answer, Wire, ask
from tests.http.keyfile import add_key


class Guarded(NamedTuple):
    """A suite with keys, by the names of their rights."""

    suite: Suite
    keys: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.toml"
    keys = {
        "sender": add_key(file, "sender", "--send=q*"),
        "receiver": add_key(file, "receiver", "--receive=q*"),
        "both": add_key(file, "both", "--send=q*", "--receive=q*"),
        "all": add_key(file, "all", "--send=*", "--receive=*", "--admin=*"),
    }
    with Suite(folder / "mq", mq_options=[f"--keys={file}"]) as suite:
        yield Guarded(suite, keys)


def refused(answer: Answer) -> bool:
    """Whether this is the refusal for missing rights."""
    assert "WWW-Authenticate" not in answer.headers
    return (
        answer.status == 403
        and answer.headers[EXCEPTION] == UNAUTHORIZED
        and answer.headers["Content-Type"] == "application/json"
        and answer.body == b'{"reason":"not authorized"}'
    )


SEND, RECEIVE, SEE = {"sender", "both", "all"}, {"receiver", "both", "all"}, {"sender", "receiver"}
NEEDS: list[tuple[str, str, Any, set[str]]] = [
    ("POST", "/q/send", 1, SEND),
    ("POST", "/q/sendbatch", [], SEND),
    ("GET", "/q/poll", None, RECEIVE),
    ("GET", "/q/peek", None, RECEIVE),
    ("POST", "/q/renew", [], RECEIVE),
    ("POST", "/q/ack", [], RECEIVE),
    ("POST", "/q/unclaimall", None, RECEIVE),
    ("DELETE", "/q", None, RECEIVE),
    ("GET", "/q/size", None, SEE | {"both", "all"}),
    ("GET", "/q/claimcount", None, SEE | {"both", "all"}),
    ("POST", "/_move?from=q&to=q2", None, {"both", "all"}),
    ("POST", "/_move?from=q&to=other", None, {"all"}),
    ("GET", "/other/size", None, {"all"}),
    ("POST", "/other/send", 1, {"all"}),
]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(("method", "path", "body", "may"), NEEDS)
async def test_each_verb_needs_its_right(
    guarded: Guarded, service: str, method: str, path: str, body: Any, may: set[str]
) -> None:
    async with ClientSession(guarded.suite.url) as client:
        for name, key in {**guarded.keys, "nobody": "x" * 40, "missing": ""}.items():
            headers = {"X-BV-API-Key": key, **(JSON if body is not None else {})}
            data = None if body is None else json.dumps(body)
            answer = await ask(client, method, f"/{service}/1{path}", headers=headers, data=data)
            assert (answer.status == 200) == (name in may), (name, answer)
            assert answer.status == 200 or refused(answer)


@pytest.mark.parametrize("service", SERVICES)
def test_a_queue_name_with_a_slash_is_refused_for_every_key(guarded: Guarded, service: str) -> None:
    paths = [("GET", f"/{service}/1/a%2Fb/{verb}") for verb in ("size", "poll")]
    paths += [("POST", f"/{service}/1/a%2Fb/send"), ("POST", f"/{service}/1/_move?from=q&to=a/b")]
    with Wire(guarded.suite.url) as wire:
        for method, path in paths:
            answer = wire.ask(method, path, {"X-BV-API-Key": guarded.keys["all"], **JSON}, b"1")
            assert (answer.status, b"is illegal" in answer.body) == (400, True), (path, answer)
            assert refused(wire.ask(method, path, JSON, b"1"))


def test_the_key_is_in_the_header_or_in_the_query(guarded: Guarded) -> None:
    good, bad = guarded.keys["all"], "wrong" * 8
    path = "/queue/1/q/size"
    with Wire(guarded.suite.url) as wire:
        assert wire.ask("GET", path, {"x-bv-api-key": good}).status == 200
        assert wire.ask("GET", f"{path}?APIKey={good}").status == 200
        assert wire.ask("GET", f"{path}?APIKey={good}", {"X-BV-API-Key": ""}).status == 200
        assert refused(wire.ask("GET", f"{path}?APIKey={good}", {"X-BV-API-Key": bad}))
        assert refused(wire.ask("GET", f"{path}?apikey={good}"))
        assert refused(wire.ask("GET", path, {"X-BV-API-Key": "anonymous"}))
        assert refused(wire.ask("GET", path))


async def test_a_batch_names_the_first_queue_that_its_key_may_not_use(guarded: Guarded) -> None:
    async with ClientSession(guarded.suite.url) as client:
        path, key = "/queue/1/_sendbatch", {"X-BV-API-Key": guarded.keys["sender"], **JSON}
        answer = await ask(client, "POST", path, headers=key, data='{"q":[1],"no":[2],"never":[3]}')
        assert (answer.status, answer.json) == (403, {"queue": "no"})
        assert EXCEPTION not in answer.headers
        assert (await ask(client, "POST", path, headers=key, data="{")).status == 400
        assert (await ask(client, "POST", path, headers=key, data='{"q":[]}')).body == SUCCESS
        assert refused(await ask(client, "POST", path, headers=JSON, data="{"))


async def test_without_a_key_only_the_path_is_checked(guarded: Guarded) -> None:
    async with ClientSession(guarded.suite.url) as client:
        for method, path, status in (
            ("POST", "/queue/1/_x/send", 403),
            ("GET", "/queue/1/q/poll?ttl=x", 403),
            ("GET", "/queue/1/q/nothing", 404),
            ("PUT", "/queue/1/q/send", 405),
        ):
            headers = JSON if method == "POST" else {}
            answer = await ask(client, method, path, headers=headers, data=b"{")
            assert answer.status == status
        answer = await ask(client, "POST", "/queue/1/q/send", data=b"{")
        assert answer.status == 415
        assert refused(await ask(client, "GET", "/queue/1/_move/nothing"))
