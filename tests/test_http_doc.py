"""docs/http.md agrees with the OpenAPI document; tests/test_pages.py runs its examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from fsmq.http.describe import Operation
from fsmq.http.problems import PROBLEM_TYPES
from fsmq.spool.layout.settings import SETTINGS
from tests.harness import doc_tables
from tests.harness.described import json_body, native_routes, ranges_of
from tests.harness.suite import HOME
from website.reference import served_document

DOCUMENT = HOME / "docs" / "http.md"
FORMAT = (HOME / "docs" / "format.md").read_text()


def test_every_type_of_error_is_documented() -> None:
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE))
    assert documented == {(kind, str(status)) for status, kind, _ in PROBLEM_TYPES.values()}


def test_every_setting_of_queues_is_documented() -> None:
    assert "`config/<queue>.json`" in FORMAT
    assert "(http.md#patch-queue)" in FORMAT
    section = DOCUMENT.read_text().partition("\n### `PATCH /{queue}`\n")[2].partition("\n### ")[0]
    table = section.partition("| setting | unit | range | default | meaning |\n")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert rows == list(SETTINGS)


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """The operations of the OpenAPI document by their requests, such as ``GET /{queue}``."""
    return {
        f"{method.upper()} {path}": operation
        for path, methods in served_document()["paths"].items()
        for method, operation in methods.items()
        if method != "head"
    }


def test_every_native_request_is_documented(operations: dict[str, Any]) -> None:
    pages = "".join(page.read_text() for page in (HOME / "docs").glob("*.md"))
    native = {"Queues", "Messages", "Messages by id", "Topics", "Logs", "Schedules", "System"}
    for request, operation in operations.items():
        if native & set(operation["tags"]):
            assert f"`{request}" in pages, request


def test_generated_tables_are_up_to_date() -> None:
    assert doc_tables.unlike() == {}


def test_a_table_that_was_changed_by_hand_is_found() -> None:
    text = DOCUMENT.read_text()
    assert doc_tables.made(text.replace("0 to 20 seconds", "0 to 30 seconds")) == text
    assert "0 to 30 seconds" not in text


# Errors of bodies, rights and missing names, which are not documented for each request.
ANY_STATUS = {400, 401, 403, 404, 408, 413, 415, 417, 429, 500, 503}


def told(page: str) -> dict[str, str]:
    """The text of each request: below its heading, or in its row of a table."""
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


def documented_routes() -> Iterator[tuple[str, Operation, str]]:
    """Each native request, its operation, and the text that the docs have of it."""
    pages = [(HOME / "docs" / f"{name}.md").read_text() for name in ("http", "topics", "logs")]
    requests = {request: words for page in pages for request, words in told(page).items()}
    for method, pattern, operation, _ in native_routes():
        if method != "HEAD":
            yield f"{method} {pattern}", operation, requests[f"{method} {pattern}"]


def test_the_answers_and_parameters_of_each_request_are_documented() -> None:
    statuses = {200, 201, 202, 204, 507} | {of.status for of in PROBLEM_TYPES.values()}
    for request, operation, words in documented_routes():
        named = {int(one) for one in re.findall(r"\b([2-5]\d\d)\b(?!-| s(?:econds)?\b)", words)}
        answers = operation.answers.keys()
        assert named & statuses <= answers, request
        assert answers - ANY_STATUS - {200} <= named, request
        for parameter in operation.parameters:
            name = parameter.name.partition(".")[0]
            assert parameter.place == "path" or name in words, (request, name)
            schema = parameter.schema if isinstance(parameter.schema, dict) else {}
            for low, high in re.findall(rf"`{name}` \((?:(\d+) )?to (\d+)(?: s)?\)", words):
                assert (int(low or 0), int(high)) == (schema["minimum"], schema["maximum"]), request
            for default in re.findall(rf"`{name}` \([^()]*, `(\w+)`\)", words):
                assert default == schema["default"], request


# Ranges of texts, which schemas describe by a pattern.
BY_PATTERN = {"1 to 128 characters", "1 to 1024 bytes", "1 to 40 of"}
_UNITS = {"KiB": 2**10, "MiB": 2**20}


def test_documented_ranges_and_sizes_of_bodies_are_right() -> None:
    for request, operation, text in documented_routes():
        words = re.sub(r"^\| `.*", "", text, flags=re.M)  # without generated tables
        known = {*ranges_of(json_body(operation))}
        known |= {one for p in operation.parameters for one in ranges_of(p.schema)}
        for low, high, unit in re.findall(r"\b(\d+) to (\d+)( \w+)?", words):
            is_known = (int(low), int(high)) in known or f"{low} to {high}{unit}" in BY_PATTERN
            assert is_known, (request, low, high)
        body = operation.body.description if operation.body else ""
        sizes = {int(size) for size in re.findall(r"at most (\d+) bytes", body)}
        for size, unit in re.findall(r"at most (\d+) (KiB|MiB)", words):
            assert int(size) * _UNITS[unit] in sizes, (request, size, unit)
