"""The OpenAPI document agrees with the server."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession
from hypothesis import example, given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from fsmq.http import describe
from fsmq.http.describe import Operation
from fsmq.http.native.forms import ID, OWN_ID
from fsmq.http.routing import needs
from fsmq.http.routing.openapi import document
from fsmq.http.routing.router import Route, Router
from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.names import check_id, is_queue, new_id
from fsmq.spool.layout.settings import DEFAULTS
from tests.harness.suite import Suite
from tests.http.helpers import Answer, ask, post
from tests.http.test_errors import is_problem

# Other dialects accept unknown parameters and have other forms of errors and own tests.
OTHERS = ("EmoDB", "Dynamiq")


class Described(NamedTuple):
    """One operation of the document."""

    method: str
    path: str
    operation: dict[str, Any]

    def parameters(self, place: str) -> list[dict[str, Any]]:
        return [p for p in self.operation.get("parameters", []) if p["in"] == place]

    def url(self, queue: str, query: str = "") -> str:
        """The path with its names filled in."""
        path = self.path.replace("{queue}", queue).replace("{offset}", "0")
        return re.sub(r"\{\w+\}", "some", path) + query


@pytest.fixture(scope="module")
def served(suite: Suite) -> dict[str, Any]:
    """The document, as the server answers it."""
    with urllib.request.urlopen(f"{suite.url}/_openapi.json") as answer:
        assert answer.headers["Content-Type"] == "application/json"
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.fixture(scope="module")
def operations(served: dict[str, Any]) -> list[Described]:
    found = [
        Described(method.upper(), path, operation)
        for path, methods in served["paths"].items()
        for method, operation in methods.items()
        if not operation["tags"][0].startswith(OTHERS)
    ]
    assert len(found) >= 15
    return found


def test_the_document_is_valid(served: dict[str, Any]) -> None:
    assert served["openapi"].startswith("3.1")
    validate(served, cls=OpenAPIV31SpecValidator)


async def test_every_path_has_the_documented_methods_and_no_others(
    client: ClientSession, operations: list[Described], queue: str
) -> None:
    told: dict[str, set[str]] = {}
    for one in operations:
        told.setdefault(one.url(queue), set()).add(one.method)
    for path, methods in told.items():
        refused = await ask(client, "TRACE", path)
        assert is_problem(refused, 405, "method-not-allowed"), path
        assert refused.headers["Allow"] == ", ".join(sorted(methods)), path
        assert refused.json["allowed"] == sorted(methods), path


async def test_every_path_takes_the_documented_parameters_and_no_others(
    client: ClientSession, operations: list[Described], queue: str
) -> None:
    for one in operations:
        if one.method == "HEAD":
            continue  # it has no body, and the handler is that of GET
        refused = await ask(client, one.method, one.url(queue, "?no-such-parameter=1"))
        assert is_problem(refused, 400, "invalid-value"), one
        assert refused.json["field"] == "no-such-parameter", one
        known = re.search(r"expected one of: ([\w., -]+)", refused.body.decode())
        taken = set(known[1].split(", ")) if known else set()
        assert taken == {p["name"] for p in one.parameters("query")}, one
        assert known or b"expected none" in refused.body


async def test_numbers_have_the_documented_ranges(
    client: ClientSession, operations: list[Described], queue: str
) -> None:
    checked = []
    for one in operations:
        for parameter in one.parameters("query"):
            name, schema = parameter["name"], parameter["schema"]
            if schema["type"] not in ("integer", "number") or one.method == "HEAD":
                continue
            if any(other.get("required") for other in one.parameters("query")):
                continue  # without it the request is refused

            async def tried(value: float, one: Described = one, name: str = name) -> Answer:
                return await ask(client, one.method, one.url(queue, f"?{name}={value}"))

            for value in (schema["minimum"] - 1, schema["maximum"] + 1):
                refused = await tried(value)
                assert refused.status == 400, (one, name, value)
                assert name in refused.json["detail"]
            for value in (schema["minimum"], schema["maximum"]):
                await post(client, queue)  # so that a fetch need not wait
                assert (await tried(value)).status != 400, (one, name, value)
            checked.append(name)
    assert {"delay", "priority", "ttl", "visibility", "wait", "count"} <= set(checked)


async def test_a_repeated_parameter_is_refused(
    client: ClientSession, operations: list[Described], queue: str
) -> None:
    for one in operations:
        for parameter in one.parameters("query"):
            name = parameter["name"]
            if one.method != "HEAD":
                twice = await ask(client, one.method, one.url(queue, f"?{name}=1&{name}=1"))
                assert is_problem(twice, 400, "invalid-value"), (one, name)
                assert twice.json["field"] == name, one


def fits(schema: dict[str, Any], value: str) -> bool:
    """Whether a text fits a schema, with patterns of ECMAScript."""
    pattern = schema["pattern"].replace("$", r"\Z")
    return (
        re.search(pattern, value) is not None
        and schema["minLength"] <= len(value) <= schema["maxLength"]
    )


@given(st.text("aZ09._:@-/ \n\u00e9", max_size=5) | st.text("a_", min_size=178, max_size=182))
@example("__a")
@example("_")
@example("_.")
def test_the_pattern_of_queue_names_matches_the_code(name: str) -> None:
    assert fits(describe.QUEUE_NAME, name) is is_queue(name)


@given(st.text("aZ09._:@+=~-/ \n\u00e9", max_size=4) | st.text("a.", min_size=62, max_size=66))
def test_the_pattern_of_own_ids_matches_the_code(own: str) -> None:
    assert isinstance(OWN_ID.schema, dict)
    try:
        new_id(own=own)
        legal = True
    except InvalidValue:
        legal = False
    assert fits(OWN_ID.schema, own) is legal


@given(st.text("aZ0._:-/ \n\0", max_size=4) | st.text("a", min_size=250, max_size=256))
def test_the_pattern_of_ids_in_paths_matches_the_code(message_id: str) -> None:
    assert isinstance(ID.schema, dict)
    try:
        check_id("q", message_id)
        legal = True
    except InvalidValue:
        legal = False
    assert fits(ID.schema, message_id) is legal


def test_every_setting_of_a_queue_is_in_the_document(served: dict[str, Any]) -> None:
    settings = served["components"]["schemas"]["QueueSettings"]["properties"]
    assert list(settings) == list(DEFAULTS.as_dict())


def test_contradicting_routes_are_refused() -> None:
    async def nothing(call: object) -> Any: ...

    look = Operation("look", "Tag", "Look", {}, parameters=(describe.QUEUE,))
    router = Router()
    router.add("GET", "/{queue}", nothing, look, needs.queue())
    with pytest.raises(ValueError, match="served already"):
        router.add("GET", "/{queue}", nothing, look, needs.queue())
    with pytest.raises(ValueError, match="two operations are named look"):
        document([*router.routes(), Route("GET", "/{queue}/more", look)])
    with pytest.raises(ValueError, match="has the names"):
        document([Route("GET", "/{other}", look)])
