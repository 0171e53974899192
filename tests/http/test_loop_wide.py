"""Requests of the largest documented size do not block the loop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.http.sqs.protocol import shapes
from fsmq.http.sqs.sns import wire as sns
from fsmq.spool import Spool
from tests.harness.suite import Suite
from tests.http import wide_shapes
from tests.http.helpers import Wire
from tests.http.keyfile import add_key
from tests.http.routes import document
from tests.http.served import SNS, SQS, Served
from tests.http.small_shapes import AS_FORM, BATCHES, SHAPES
from tests.http.test_loop import BODIES, HELD_S, longest, watch_over
from tests.http.test_loop_forms import FORMS
from tests.http.watched import Watch

ACTIONS = [
    *(("", action) for action in shapes.ACTIONS),
    *((SQS, action) for action in shapes.ACTIONS),
    *((SNS, action) for action in sns.ACTIONS),
]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Watch]]:
    yield from watch_over(tmp_path_factory.mktemp("watched"))


def ask(suite: Suite, method: str, target: str, headers: Mapping[str, str], body: bytes) -> int:
    for folder in ("queues", "topics"):
        (suite.root / folder / "wide").mkdir(exist_ok=True)
    with Wire(suite.url, timeout=60) as wire:
        wire.request(method, target, {**headers, "Content-Length": str(len(body))})
        with suppress(OSError):  # some are refused before the end of the body
            wire.send(body)
        return wire.answer().status


@pytest.mark.parametrize(("version", "action"), ACTIONS)
def test_actions_with_many_members_do_not_block_the_loop(
    watched: tuple[Suite, Watch], version: str, action: str
) -> None:
    suite, watch = watched
    headers: Mapping[str, str]
    if version:
        headers, body = AS_FORM, wide_shapes.in_form(action, version)
    else:
        headers, body = {"X-Amz-Target": f"AmazonSQS.{action}"}, wide_shapes.in_json(action)
    statuses = set()
    held = longest(watch, lambda: statuses.add(ask(suite, "POST", "/", headers, body)))
    assert held <= HELD_S
    assert max(statuses) < 500


def test_long_parameters_do_not_block_the_loop(watched: tuple[Suite, Watch]) -> None:
    suite, watch = watched
    slow, asked = {}, 0
    for method, target, headers in wide_shapes.of_parameters(document(suite.url)):
        statuses: set[int] = set()

        def once(
            statuses: set[int] = statuses,
            method: str = method,
            target: str = target,
            headers: dict[str, str] = headers,
        ) -> None:
            statuses.add(ask(suite, method, target, headers, b""))

        if (held := longest(watch, once)) > HELD_S:
            slow[method, target[:100], *headers] = held
        assert max(statuses) < 500, (method, target[:100])
        asked += 1
    assert not slow
    assert asked > 500


async def test_each_route_with_a_body_has_a_shape(root: Path, tmp_path: Path) -> None:
    """Amazon's routes have shapes by their actions."""
    given = [(method, target) for _, method, target, *_ in SHAPES]
    given += [(method, target) for _, method, target, *_ in FORMS]
    given += [("POST", target) for _, target, _ in (*BODIES, *BATCHES)]
    asked = {(method, target.partition("?")[0]) for method, target in given}
    add_key(tmp_path / "keys.toml", "any", "--send=*")
    with Spool(root, sync="none") as spool:
        async with Served(spool, tmp_path / "keys.toml") as served:
            dialects = (served.server._native, *served.server._others)
            routes = {
                (method, pattern.removeprefix("/v1"))
                for dialect in dialects
                for method, pattern, operation, _ in dialect.router.routes()
                if operation.body is not None or (dialect.name, method) == ("ui", "POST")
            }
            actions = set(served.actions())
    without = []
    for method, pattern in sorted(routes):
        form = re.compile(re.sub(r"\{\w+\}", "[^/]+", pattern).rstrip("/"))
        if not any(one == method and form.fullmatch(path.rstrip("/")) for one, path in asked):
            without.append(f"{method} {pattern}")
    assert without == []
    assert len(routes) > 40
    assert actions - {(SQS, "GetCallerIdentity")} == {
        (version, action) for version, action in ACTIONS if version
    }
