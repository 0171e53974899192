"""Conventions of HTTP that programs rely on: Trace Context, CloudEvents, Location, OPTIONS …"""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest

from tests.http.helpers import ask, fetch

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UUID = "01977420-dc00-7abc-8def-0123456789ab"
EVENT = {
    "ce-specversion": "1.0",
    "ce-id": "C234-1234-1234",
    "ce-source": "/mycontext/subcontext",
    "ce-type": "com.example.someevent",
    "ce-subject": "Z%C3%BCrich",
    "ce-myext": "7",
}


async def test_what_was_sent_comes_back_under_its_name(
    client: aiohttp.ClientSession, queue: str
) -> None:
    headers = {"traceparent": PARENT, "Tracestate": "a=1", "Content-Type": "text/x", **EVENT}
    assert (
        await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
    ).status == 201
    given = {"traceparent": PARENT, "tracestate": "a=1", **EVENT}
    fetched = await fetch(client, queue)
    for name, value in given.items():
        assert fetched.headers[name] == value
        assert fetched.headers[f"X-Message-Attribute-{name}"] == value
    assert (fetched.headers["Content-Type"], fetched.body) == ("text/x", b"x")
    shown = await ask(client, "GET", f"/{queue}/messages/{fetched.id}?json=true")
    assert shown.json["attributes"] == given
    raw = await ask(client, "GET", f"/{queue}/messages/{fetched.id}")
    assert raw.headers["ce-id"] == EVENT["ce-id"]


async def test_an_attribute_of_such_a_name_is_such_a_header(
    client: aiohttp.ClientSession, queue: str
) -> None:
    attributes = {"ce-type": "t", "traceparent": PARENT, "ce-no_event": "x", "other": "y"}
    await ask(client, "POST", f"/{queue}/batch", json=[{"body": "", "attributes": attributes}])
    fetched = await fetch(client, queue)
    assert (fetched.headers["ce-type"], fetched.headers["traceparent"]) == ("t", PARENT)
    assert not {"ce-no_event", "other"} & {name.lower() for name in fetched.headers}


async def test_a_list_on_several_lines_is_one(client: aiohttp.ClientSession, queue: str) -> None:
    headers = [("tracestate", "a=1"), ("tracestate", "b=2")]
    await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
    assert (await fetch(client, queue)).headers["tracestate"] == "a=1,b=2"


@pytest.mark.parametrize(
    "headers",
    [
        [("ce-", "x")],
        [("ce-my_ext", "x")],
        [("ce-" + "x" * 65, "x")],
        [("ce-id", "1"), ("ce-id", "2")],
        [("ce-id", "1"), ("X-Message-Attribute-ce-id", "2")],
        [("traceparent", PARENT), ("traceparent", PARENT)],
    ],
)
async def test_what_cannot_be_kept_is_refused(
    client: aiohttp.ClientSession, queue: str, headers: list[tuple[str, str]]
) -> None:
    refused = await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
    assert (refused.status, refused.json["field"]) == (400, "attributes")


async def test_own_ids_that_can_carry_nothing(client: aiohttp.ClientSession, queue: str) -> None:
    """A trace is left out, as programs send it without being asked; an event is refused."""
    path = f"/{queue}/messages?id=order-1"
    refused = await ask(client, "POST", path, data=b"x", headers=EVENT)
    assert (refused.status, refused.json["field"]) == (400, "id")
    headers = {"traceparent": PARENT, "tracestate": "a=1"}
    assert (await ask(client, "POST", path, data=b"x", headers=headers)).status == 201
    assert "traceparent" not in (await fetch(client, queue)).headers
    path = f"/{queue}/messages?id={UUID}"
    assert (await ask(client, "POST", path, data=b"x", headers=headers)).status == 201
    assert (await fetch(client, queue)).headers["traceparent"] == PARENT


async def test_a_topic_and_a_log_keep_them_too(client: aiohttp.ClientSession, queue: str) -> None:
    await ask(client, "PUT", f"/_topics/{queue}")
    filtered = b'{"ce-type": ["com.example.someevent"]}'
    await ask(client, "PUT", f"/_topics/{queue}/queues/{queue}", data=filtered)
    await ask(client, "POST", f"/_topics/{queue}/messages", data=b"x", headers=EVENT)
    assert (await fetch(client, queue)).headers["ce-id"] == EVENT["ce-id"]
    await ask(client, "PUT", f"/_logs/{queue}")
    await ask(client, "POST", f"/_logs/{queue}/messages", data=b"x", headers=EVENT)
    read = await ask(client, "GET", f"/_logs/{queue}/messages?from=0&count=1")
    assert read.status == 200
    assert EVENT.items() <= read.json["messages"][0]["attributes"].items()


async def test_a_replay_is_answered_as_the_first_time(
    client: aiohttp.ClientSession, queue: str
) -> None:
    path = f"/{queue}/messages"

    async def post(body: bytes, key: str, **more: str) -> Any:
        return await ask(client, "POST", path, data=body, headers={"Idempotency-Key": key, **more})

    first = await post(b"x", "order-1")
    assert (first.status, first.json) == (201, {"id": "order-1"})
    for again in (await post(b"x", "order-1"), await post(b"x", '"order-1"')):
        assert (again.status, again.json, again.id) == (201, first.json, "order-1")
        assert again.headers["Location"] == first.headers["Location"]
    other = await post(b"y", "order-1")
    assert (other.status, other.json["message_id"]) == (422, "order-1")
    assert other.json["type"] == "urn:fsmq:problem:idempotency-key-reused"
    rich = {"Content-Type": "text/x", "traceparent": PARENT}
    told = await post(b"x", UUID, **rich)
    again = await post(b"x", UUID, **{**rich, "traceparent": PARENT.replace("4b", "4c")})
    assert (told.status, again.status, again.id) == (201, 201, told.id)
    assert (await post(b"x", UUID, **{"Content-Type": "text/y"})).status == 422
    assert (await fetch(client, queue)).body == b"x"
    assert (await post(b"x", UUID, **rich)).id == told.id  # in flight, it stands
    for message_id in ("order-1", told.id):
        assert (await ask(client, "DELETE", f"{path}/{message_id}")).status == 202
    assert (await post(b"y", "order-1")).status == 201


@pytest.mark.parametrize(
    ("key", "query", "field"),
    [
        ("", "", "Idempotency-Key"),
        ('""', "", "Idempotency-Key"),
        ("a", "?id=b", "Idempotency-Key"),
        ("a b", "", "id"),
        ("x" * 65, "", "id"),
        ("not-a-uuid7", "?priority=1", "id"),
    ],
)
async def test_keys_that_are_none(
    client: aiohttp.ClientSession, queue: str, key: str, query: str, field: str
) -> None:
    headers = {"Idempotency-Key": key}
    refused = await ask(client, "POST", f"/{queue}/messages{query}", data=b"x", headers=headers)
    assert (refused.status, refused.json["field"]) == (400, field)


async def test_whatever_is_made_has_its_path(client: aiohttp.ClientSession, queue: str) -> None:
    schedule = {"cron": "@daily", "queue": queue}
    for path, body in (
        (f"/{queue}.new", None),
        (f"/_topics/{queue}.new", None),
        (f"/_topics/{queue}.new/queues/{queue}", None),
        (f"/_logs/{queue}.new", None),
        (f"/_logs/{queue}.new/channels/c", None),
        (f"/_schedules/{queue}.new", schedule),
    ):
        more = {"json": body} if body else {}
        made = await ask(client, "PUT", path, **more)
        assert (made.status, made.headers["Location"]) == (201, path)
        again = (
            await ask(client, "PUT", path, json=body) if body else await ask(client, "PUT", path)
        )
        assert again.status == 200
        assert "Location" not in again.headers


async def test_every_path_tells_its_methods(client: aiohttp.ClientSession, queue: str) -> None:
    document: dict[str, Any] = (await ask(client, "GET", "/_openapi.json")).json
    for path, methods in document["paths"].items():
        if any(one["tags"][0].startswith(("EmoDB", "Dynamiq")) for one in methods.values()):
            continue  # they answer as their clients expect
        asked = await ask(client, "OPTIONS", re.sub(r"\{\w+\}", "x", path))
        assert (asked.status, asked.body) == (204, b""), path
        allowed = set(asked.headers["Allow"].split(", "))
        assert {method.upper() for method in methods} | {"OPTIONS"} <= allowed
        assert not any(name.lower().startswith("access-control") for name in asked.headers)
    assert (await ask(client, "OPTIONS", "/a/b/c/d/e")).status == 404
