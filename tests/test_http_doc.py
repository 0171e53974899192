"""docs/http.md tells every request, error and setting as the OpenAPI document does.

(tests/test_pages.py runs its examples.)
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from fsmq.http.problems import STATUS
from fsmq.spool.settings import DEFAULTS
from tests.suite import HOME
from website.reference import served_document

DOCUMENT = HOME / "docs" / "http.md"


def test_every_type_of_error_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE))
    assert documented == {(kind, str(status)) for status, kind, _ in STATUS.values()}


def test_every_setting_of_a_queue_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^\| `{name}` \|", text, re.MULTILINE), name


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """What the OpenAPI document says of each request, such as ``GET /{queue}``."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in served_document()["paths"].items()
        for method, operation in methods.items()
        if method != "head"
    }


def test_every_request_of_the_native_dialect_is_told_by_a_page(operations: dict[str, Any]) -> None:
    told = "".join(page.read_text() for page in (HOME / "docs").glob("*.md"))
    native = {"Queues", "Messages", "Topics", "System"}
    for request, operation in operations.items():
        if native & set(operation["tags"]):
            assert f"`{request}" in told, request


def test_the_document_tells_the_ranges_of_parameters(operations: dict[str, Any]) -> None:
    checked = []
    for section in DOCUMENT.read_text().split("\n### ")[1:]:
        request = re.match(r"`([A-Z]+ \S+)`", section)
        assert request, section[:40]
        parameters = {p["name"]: p["schema"] for p in operations[request[1]].get("parameters", [])}
        for table in re.findall(r"\| parameter \|.*?\n\n", section, re.DOTALL):
            for name, low, high in re.findall(r"\n\| `(\w+)` \|.*?(\d+) to (\d+) \|", table):
                assert parameters[name]["minimum"] == int(low), (request[1], name)
                assert parameters[name]["maximum"] == int(high), (request[1], name)
                checked.append(name)
    assert {"delay", "priority", "ttl", "visibility", "wait", "count"} <= set(checked)
