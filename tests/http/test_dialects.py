"""Which dialects are served, and the form of their errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aiohttp import ClientSession

from fsmq.http.dialects import DIALECTS
from tests.harness.suite import Suite
from tests.http.helpers import PROBLEM, Wire, ask


def test_each_dialect_matches_its_entry() -> None:
    fields = {setting.field for one in DIALECTS.values() for setting in one.settings()}
    for name, one in DIALECTS.items():
        dialect = one.load()
        assert dialect.name == name
        assert {one.switch, dialect.admin_port} - {""} <= fields


def test_only_enabled_dialects_are_imported() -> None:
    script = """
import sys
from fsmq.http.dialects import DIALECTS, switched_on
[one] = switched_on(("dynamiq",), {"ui": "off"})
print(one.name, *(name for name in DIALECTS if f"fsmq.http.{name}.dialect" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["dynamiq", "dynamiq"], done.stderr


def test_dialects_share_no_prefix() -> None:
    prefixes = [prefix for one in DIALECTS.values() for prefix in one.load().prefixes]
    assert len(prefixes) == len(set(prefixes))


async def test_an_error_has_the_form_of_the_dialect_of_its_path(client: ClientSession) -> None:
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
        mistaken = wire.ask("GET", "/queues")  # with Dynamiq's, its list of queues
        assert mistaken.status == 404
        assert mistaken.json["detail"].endswith("; did you mean /?")
