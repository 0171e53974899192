"""docs/http.md tells every request, error and setting as the OpenAPI document does.

(tests/test_pages.py runs its examples.)
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from fsmq.http.problems import PROBLEM_TYPES
from fsmq.spool.layout.settings import DEFAULTS, SETTINGS
from fsmq.spool.layout.settings_base import Setting
from tests.harness import doc_tables
from tests.harness.described import native_routes
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
    native = {"Queues", "Messages", "Messages by id", "Topics", "Logs", "Schedules", "System"}
    for request, operation in operations.items():
        if native & set(operation["tags"]):
            assert f"`{request}" in told, request


def test_tables_are_made_from_the_routes() -> None:
    assert doc_tables.unlike() == {}


def test_a_table_that_was_changed_by_hand_is_found() -> None:
    text = DOCUMENT.read_text()
    assert doc_tables.made(text.replace("0 to 20 seconds", "0 to 30 seconds")) == text
    assert "0 to 30 seconds" not in text


# What any request may be answered that reads a body, asks for a right, or names what is missing.
ANY_STATUS = {400, 401, 403, 404, 408, 413, 415, 417, 429, 500, 503}


def told(page: str) -> dict[str, str]:
    """What a page tells of each request: below its heading, or in its row of a table."""
    found: dict[str, str] = {}
    for part in page.split("\n### ")[1:]:
        text = part.partition("\n## ")[0]
        if heading := re.match(r"`([A-Z]+ \S+)`", text):
            found[heading[1]] = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for cells in re.findall(r"^\| (`[A-Z]+ /.*)$", page, re.MULTILINE):
        for request in re.findall(r"`([A-Z]+ /[^`?]*)", cells.partition(" | ")[0]):
            found.setdefault(request, "")
            found[request] = cells if " | " in cells else found[request]
    return found


def test_the_pages_tell_the_answers_of_each_request_and_its_parameters() -> None:
    statuses = {200, 201, 202, 204, 507} | {of.status for of in PROBLEM_TYPES.values()}
    pages = [(HOME / "docs" / f"{name}.md").read_text() for name in ("http", "topics", "logs")]
    requests = {request: words for page in pages for request, words in told(page).items()}
    for route in native_routes():
        if route.method == "HEAD":
            continue
        request = f"{route.method} {route.pattern}"
        words = requests[request]
        named = {int(one) for one in re.findall(r"\b([2-5]\d\d)\b(?!-| s(?:econds)?\b)", words)}
        answers = route.operation.answers.keys()
        assert named & statuses <= answers, request
        assert answers - ANY_STATUS - {200} <= named, request
        for parameter in route.operation.parameters:
            name = parameter.name.partition(".")[0]
            assert parameter.place == "path" or name in words, (request, name)
            schema = parameter.schema if isinstance(parameter.schema, dict) else {}
            for low, high in re.findall(rf"`{name}` \((?:(\d+) )?to (\d+)(?: s)?\)", words):
                assert (int(low or 0), int(high)) == (schema["minimum"], schema["maximum"]), request
            for default in re.findall(rf"`{name}` \([^()]*, `(\w+)`\)", words):
                assert default == schema["default"], request
