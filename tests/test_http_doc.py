"""docs/http.md tells every request, error and setting as the OpenAPI document does.

(tests/test_pages.py runs its examples.)
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from fsmq.http.problems import PROBLEM_TYPES
from fsmq.spool.layout.settings import DEFAULTS, SETTINGS, Setting
from tests.harness.suite import HOME
from website.reference import served_document

DOCUMENT = HOME / "docs" / "http.md"


def test_every_type_of_error_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE))
    assert documented == {(kind, str(status)) for status, kind, _ in PROBLEM_TYPES.values()}


def row(name: str, setting: Setting) -> str:
    """The row of a setting in the documentation's table."""
    kind = setting.kind
    values = (kind.limits or kind.expected).replace(str(2**40), "2^40")
    default = getattr(DEFAULTS, name)
    cells = (
        f"`{name}`",
        kind.unit,
        values + (", null" if setting.null else ""),
        setting.null if default is None else _written(default),
        setting.means,
    )
    return f"| {' | '.join(cells)} |"


def _written(default: float | str) -> str:
    return (
        default
        if isinstance(default, str)
        else str(default).lower()
        if isinstance(default, bool)
        else f"{default:g}"
        if default < 1
        else f"{default:.0f}"
    )


def test_the_settings_of_a_queue_are_told_as_they_are() -> None:
    lines = DOCUMENT.read_text().splitlines()
    begin = lines.index("| setting | unit | range | default | meaning |") + 2
    rows = [row(name, setting) for name, setting in SETTINGS.items()]
    assert lines[begin : begin + len(rows) + 1] == [*rows, ""]


def test_the_format_has_the_same_settings() -> None:
    text = (HOME / "docs" / "format.md").read_text()
    table = text.partition("| setting | meaning |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(SETTINGS)


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
    native = {"Queues", "Messages", "Topics", "Logs", "System"}
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
            for name, low, high in re.findall(r"\n\| `(\w+)` \|.*?([\d.]+) to (\d+) \|", table):
                assert parameters[name]["minimum"] == float(low), (request[1], name)
                assert parameters[name]["maximum"] == int(high), (request[1], name)
                checked.append(name)
    assert {"delay", "priority", "ttl", "visibility", "wait", "count"} <= set(checked)
