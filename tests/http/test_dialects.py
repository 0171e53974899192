"""Dialects: which are spoken, and that each tells its own errors."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from fsmq.daemons.settings.settings import DIALECTS as NAMES
from fsmq.http.dialects import DIALECTS
from tests.harness.suite import Suite
from tests.http.helpers import PROBLEM, Wire, ask


def test_every_dialect_can_be_chosen() -> None:
    assert tuple(DIALECTS) == NAMES


def test_dialects_share_no_prefix() -> None:
    prefixes = [prefix for dialect in DIALECTS.values() for prefix in dialect.prefixes]
    assert len(prefixes) == len(set(prefixes))


async def test_an_error_is_told_by_the_dialect_that_the_path_belongs_to(
    client: aiohttp.ClientSession,
) -> None:
    emodb = await ask(client, "GET", "/queue/messages")
    assert (emodb.status, emodb.headers["Content-Type"]) == (404, "text/plain")
    native = await ask(client, "GET", "/queuex/messages")
    assert (native.status, native.headers["Content-Type"]) == (404, PROBLEM)
    assert (await ask(client, "GET", "/")).status == 200


def test_without_a_dialect_its_prefixes_name_native_queues(root: Path) -> None:
    suite = Suite(root, mq_options=["--dialects=none"], mover=False, reaper=False)
    with suite, Wire(suite.url) as wire:
        assert wire.ask("PUT", "/queue").status == 201
        assert wire.ask("POST", "/queue/messages", body=b"x").status == 201
        assert wire.ask("POST", "/queue/1/x/send", body=b"1").status == 404
