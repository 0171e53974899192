"""Conventions of HTTP that programs rely on: Trace Context, CloudEvents, Location, OPTIONS …"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.http.helpers import ask, fetch, leads_to, until_ready

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


async def test_trace_context_and_cloudevents_headers_come_back(
    client: ClientSession, queue: str
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


async def test_attributes_with_these_names_are_sent_as_these_headers(
    client: ClientSession, queue: str
) -> None:
    attributes = {"ce-type": "t", "traceparent": PARENT, "ce-no_event": "x", "other": "y"}
    await ask(client, "POST", f"/{queue}/batch", json=[{"body": "", "attributes": attributes}])
    fetched = await fetch(client, queue)
    assert (fetched.headers["ce-type"], fetched.headers["traceparent"]) == ("t", PARENT)
    assert not {"ce-no_event", "other"} & {name.lower() for name in fetched.headers}


async def test_repeated_tracestate_headers_are_joined(client: ClientSession, queue: str) -> None:
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
        [("ce-id", "%C3%28")],
        [("ce-subject", "x%FF")],
        [("ce-subject", '"%C0%A0"')],  # an overlong space
        [("X-Message-Attribute-CE-id", "%ED%A0%80")],  # half of a pair
        [("ce-id", "1"), ("X-Message-Attribute-ce-id", "2")],
        [("traceparent", PARENT), ("traceparent", PARENT)],
    ],
)
async def test_refused_headers(
    client: ClientSession, queue: str, headers: list[tuple[str, str]]
) -> None:
    refused = await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
    assert (refused.status, refused.json["field"]) == (400, "attributes")


@pytest.mark.parametrize("own", ["order-1", UUID])
async def test_a_message_with_an_own_id_keeps_these_headers(
    client: ClientSession, queue: str, own: str
) -> None:
    path = f"/{queue}/messages?id={own}"
    headers = {**EVENT, "traceparent": PARENT, "tracestate": "a=1"}
    first = await ask(client, "POST", path, data=b"x", headers=headers)
    assert first.status == 201
    again = await ask(client, "POST", path, data=b"x", headers={"traceparent": PARENT})
    assert (again.status, again.json["message_id"]) == (409, first.id)
    read = await fetch(client, queue)
    assert (read.headers["traceparent"], read.id) == (PARENT, first.id)
    assert (await ask(client, "DELETE", f"/{queue}/messages/{first.id}")).status == 202


async def test_an_idempotency_key_with_json(client: ClientSession, queue: str) -> None:
    key = "8e03978e-40d5-43e8-bc93-6894a57f9324"  # a random UUID, as most clients make them
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    path = f"/{queue}/messages?priority=3&ttl=3600"
    answers = [await ask(client, "POST", path, data=b"{}", headers=headers) for _ in range(2)]
    assert [(one.status, one.id) for one in answers] == [(201, answers[0].id)] * 2
    assert len((await fetch(client, queue, count=2)).json["messages"]) == 1


async def test_topics_and_logs_keep_these_headers(client: ClientSession, queue: str) -> None:
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


async def test_a_repeated_idempotency_key_gets_the_first_answer(
    client: ClientSession, queue: str
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
    assert (await post(b"x", UUID, **rich)).id == told.id  # in flight, it exists
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
    ],
)
async def test_refused_idempotency_keys(
    client: ClientSession, queue: str, key: str, query: str, field: str
) -> None:
    headers = {"Idempotency-Key": key}
    refused = await ask(client, "POST", f"/{queue}/messages{query}", data=b"x", headers=headers)
    assert (refused.status, refused.json["field"]) == (400, field)


async def test_a_creation_is_answered_with_a_location(client: ClientSession, queue: str) -> None:
    schedule = {"cron": "@daily", "queue": queue}
    for path, body in (
        (f"/{queue}.new", None),
        (f"/{queue}:with@signs", None),
        (f"/_topics/{queue}.new", None),
        (f"/_topics/{queue}.new/queues/{queue}", None),
        (f"/_logs/{queue}.new", None),
        (f"/_logs/{queue}.new/channels/c", None),
        (f"/_schedules/{queue}.new", schedule),
    ):
        more = {"json": body} if body else {}
        made = await ask(client, "PUT", path, **more)
        assert (made.status, leads_to(path, made)) == (201, path)
        again = (
            await ask(client, "PUT", path, json=body) if body else await ask(client, "PUT", path)
        )
        assert again.status == 200
        assert "Location" not in again.headers


async def test_an_answer_with_an_id_has_a_location(client: ClientSession, queue: str) -> None:
    """With both parsers and with all host names."""
    for headers in ({}, {"X-Other": "1"}):
        for path in (f"/{queue}/messages", f"/%{ord(queue[0]):x}{queue[1:]}/messages"):
            posted = await ask(client, "POST", path, data=b"x", headers=headers)
            assert leads_to(path, posted) == f"{path}/{posted.id}"
    path = f"/{queue}/messages/{posted.id}"
    await until_ready(client, queue, 4)
    changed = await ask(client, "PATCH", f"{path}?priority=7")
    assert leads_to(path, changed) == f"/{queue}/messages/{changed.id}" != path
    run = f"/_schedules/{queue}.run"
    await ask(client, "PUT", run, json={"cron": "@daily", "queue": queue})
    ran = await ask(client, "POST", f"{run}/run")
    assert leads_to(f"{run}/run", ran) == f"/{queue}/messages/{ran.json['id']}"
    await ask(client, "PUT", f"/{queue}.to")
    begun = await ask(client, "POST", f"/{queue}/move?to={queue}.to")
    assert leads_to(f"/{queue}/move", begun) == f"/_moves/{begun.json['move']}"


async def test_options_lists_the_methods_of_every_path(client: ClientSession, queue: str) -> None:
    document: dict[str, Any] = (await ask(client, "GET", "/_openapi.json")).json
    for path, methods in document["paths"].items():
        if any(one["tags"][0].startswith(("EmoDB", "Dynamiq")) for one in methods.values()):
            continue  # other dialects answer as their clients expect
        asked = await ask(client, "OPTIONS", re.sub(r"\{\w+\}", "x", path))
        assert (asked.status, asked.body) == (204, b""), path
        allowed = set(asked.headers["Allow"].split(", "))
        assert {method.upper() for method in methods} | {"OPTIONS"} <= allowed
        assert not any(name.lower().startswith("access-control") for name in asked.headers)
    assert (await ask(client, "OPTIONS", "/a/b/c/d/e")).status == 404


BATCH = "application/cloudevents-batch+json"
NEEDED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


async def post_events(client: ClientSession, queue: str, content: Any) -> Any:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {"Content-Type": f"{BATCH}; charset=utf-8"}
    return await ask(client, "POST", f"/{queue}/batch", data=data, headers=headers)


async def claim_events(client: ClientSession, queue: str, count: int = 100) -> Any:
    path = f"/{queue}/messages?wait=5&count={count}"
    answer = await ask(client, "GET", path, headers={"Accept": BATCH})
    assert answer.headers["Content-Type"] == BATCH
    return answer.json


@pytest.mark.parametrize(
    ("event", "back"),
    [
        ({"data": {"a": [1, None]}}, {"datacontenttype": "application/json"}),
        ({"data": "text", "datacontenttype": "text/plain"}, {}),
        ({"data": "text", "datacontenttype": "application/x+json"}, {}),
        ({"data": 7, "datacontenttype": "application/json"}, {}),
        ({"data_base64": "/w=="}, {}),
        ({"data_base64": "/w==", "datacontenttype": "image/png"}, {}),
        ({}, {}),
        ({"data": None, "subject": 'Zürich 50% "x"\n'}, {"data": ...}),
        ({"time": "2026-11-23T12:00:00Z", "dataschema": "urn:x", "traceparent": PARENT}, {}),
        ({"flag": True, "number": -7, "text": "7"}, {"flag": "true", "number": "-7"}),
    ],
)
async def test_an_event_in_a_batch_comes_back(
    client: ClientSession, queue: str, event: dict[str, Any], back: dict[str, Any]
) -> None:
    stored = await post_events(client, queue, [{**NEEDED, **event}])
    assert stored.status == 201
    [found] = await claim_events(client, queue)
    ours = {name: found.pop(name) for name in list(found) if name.startswith("fsmq")}
    assert ours.keys() == {"fsmqid", "fsmqclaim", "fsmqdeliveries", "fsmqdeadline"}
    expected = {**NEEDED, **event, **back}
    assert found == {name: value for name, value in expected.items() if value is not ...}
    assert (ours["fsmqid"], ours["fsmqdeliveries"]) == (stored.json["ids"][0], 1)
    headers = {"X-Message-Claim": ours["fsmqclaim"]}
    path = f"/{queue}/messages/{ours['fsmqid']}"
    removed = await ask(client, "DELETE", path, headers=headers)
    assert removed.status == 202


async def test_binary_and_batched_events_convert_into_each_other(
    client: ClientSession, queue: str
) -> None:
    headers = {**EVENT, "Content-Type": "text/plain", "traceparent": PARENT}
    await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
    [found] = await claim_events(client, queue)
    assert (found["subject"], found["data"], found["traceparent"]) == ("Zürich", "x", PARENT)
    assert found["id"] == EVENT["ce-id"]
    await post_events(client, queue, [{**NEEDED, "subject": "Zürich", "data": 1}])
    fetched = await fetch(client, queue)
    assert (fetched.headers["ce-subject"], fetched.body) == ("Z%C3%BCrich", b"1")
    assert fetched.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ('"Euro sign"', "Euro sign"),
        (r'"a \"b\" \\ %22c%22"', 'a "b" \\ "c"'),
        ("Euro%20%E2%82%AC%20%f0%9f%98%80", "Euro \u20ac \U0001f600"),
        ("%2541", "%41"),  # one round
        ("%41", "A"),
        ("a %zz 100%", "a %zz 100%"),
        ('"', '"'),
        ('"a" b', '"a" b'),
        ('""', ""),
    ],
)
async def test_a_header_value_is_unquoted_and_decoded_once(
    client: ClientSession, queue: str, sent: str, told: str
) -> None:
    """The HTTP binding, section 3.1.3.2. In the binary mode it comes back unchanged."""
    headers = {**EVENT, "ce-subject": sent, "tracestate": "a=%41", "X-Other": "1"}
    for _ in range(2):
        posted = await ask(client, "POST", f"/{queue}/messages", data=b"x", headers=headers)
        assert posted.status == 201
    assert (await fetch(client, queue)).headers["ce-subject"] == sent
    [event] = await claim_events(client, queue)
    assert (event["subject"], event["tracestate"]) == (told, "a=%41")


async def test_attributes_that_were_not_headers_are_not_decoded(
    client: ClientSession, queue: str
) -> None:
    attributes = {"ce-subject": "x%FF"}
    await ask(client, "POST", f"/{queue}/batch", json=[{"body": "", "attributes": attributes}])
    [event] = await claim_events(client, queue)
    assert event["subject"] == "x%FF"


async def test_other_messages_are_wrapped_as_events(client: ClientSession, queue: str) -> None:
    structured = {**NEEDED, "data": {"x": 1}}
    await ask(client, "POST", f"/{queue}/messages?priority=1", data=b"plain")
    for body in (json.dumps(structured).encode(), b"no JSON"):
        headers = {"Content-Type": "application/cloudevents+json"}
        await ask(client, "POST", f"/{queue}/messages?priority=2", data=body, headers=headers)
    large = json.dumps({"x": "y" * 200_000}).encode()
    headers = {"Content-Type": "application/json"}
    await ask(client, "POST", f"/{queue}/messages?priority=3", data=large, headers=headers)
    found: list[Any] = []
    while len(found) < 4:
        found += await claim_events(client, queue)
    plain, same, broken, big = sorted(found, key=lambda event: event["fsmqid"])
    assert plain["type"] == "fsmq.message"
    assert (plain["source"], plain["id"]) == (f"/{queue}", plain["fsmqid"])
    assert (plain["data_base64"], plain["time"][:2]) == ("cGxhaW4=", "20")
    assert structured.items() <= same.items()
    assert base64.b64decode(broken["data_base64"]) == b"no JSON"
    assert base64.b64decode(big["data_base64"]) == large
    assert all(NEEDED.keys() <= event.keys() for event in found)
    empty = await ask(client, "GET", f"/{queue}/messages", headers={"Accept": BATCH})
    assert empty.status == 204


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"[", None),
        (b"{}", None),
        ([], "events"),
        ([7], "event"),
        *(([{**NEEDED, name: None}], name) for name in NEEDED),
        *(([{**NEEDED, name: 7}], name) for name in NEEDED),
        ([{**NEEDED, "specversion": "0.3"}], "specversion"),
        ([{**NEEDED, "my_ext": "x"}], "my_ext"),
        ([{**NEEDED, "Upper": "x"}], "Upper"),
        ([{**NEEDED, "deep": {}}], "deep"),
        ([{**NEEDED, "number": 1.5}], "number"),
        ([{**NEEDED, "data": 1, "data_base64": "YQ=="}], "data"),
        ([{**NEEDED, "data_base64": "?"}], "data_base64"),
        ([{**NEEDED, "datacontenttype": 1}], "datacontenttype"),
        ([{**NEEDED, "ext": "x" * 70_000}], "attributes"),
        (json.dumps([{**NEEDED, "data": {"a": float("nan")}}]).encode(), None),
        (json.dumps([{**NEEDED, "data": 0}]).replace(": 0", ": [-1e400]").encode(), None),
    ],
)
async def test_refused_events(
    client: ClientSession, queue: str, content: Any, field: str | None
) -> None:
    good = [NEEDED] if isinstance(content, list) and content else []
    refused = await post_events(client, queue, good + content if good else content)
    assert (refused.status, refused.json.get("field")) == (400, field)
    assert refused.json.get("index") == (1 if good else None)
    assert (await ask(client, "GET", f"/{queue}/peek?state=new")).json["messages"] == []


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e400", b"[-1e400, 1]"])
@pytest.mark.parametrize("kind", ["application/json", "application/cloudevents+json"])
async def test_a_number_that_json_cannot_have_makes_no_other_event_unreadable(
    client: ClientSession, queue: str, number: bytes, kind: str
) -> None:
    """Its consumer gets an answer that any parser of JSON reads."""
    body = number
    if kind.startswith("application/cloudevents"):
        body = json.dumps({**NEEDED, "data": 0}).encode().replace(b": 0", b": " + number)
    await ask(client, "POST", f"/{queue}/messages", data=b"1", headers={"Content-Type": "text/x"})
    await ask(client, "POST", f"/{queue}/messages", data=body, headers={"Content-Type": kind})
    await until_ready(client, queue, 2)
    path = f"/{queue}/messages?count=10"
    answer = await ask(client, "GET", path, headers={"Accept": BATCH})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    good, bad = json.loads(answer.body, parse_constant=refuse)
    assert good["data"] == "1"
    assert base64.b64decode(bad["data_base64"]) == body


async def test_a_large_event_keeps_its_data(client: ClientSession, queue: str) -> None:
    data = {"x": 'é"' * 400_000, "y": ["z" * 400_000, 1], "n" * 1_000_000: [{"m": 1.5}] * 40}
    for event in ({"data": data}, {"data": data["x"], "datacontenttype": "text/plain"}):
        assert (await post_events(client, queue, [{**NEEDED, **event}])).status == 201
        fetched = await fetch(client, queue)
        is_json = fetched.headers["Content-Type"] == "application/json"
        assert (json.loads(fetched.body) if is_json else fetched.body.decode()) == event["data"]


async def test_if_match_guards_a_change_of_settings(client: ClientSession, queue: str) -> None:
    path = f"/{queue}"
    first = (await ask(client, "GET", path)).headers["ETag"]
    assert re.fullmatch(r'"[0-9a-f]{20}"', first)
    assert (await ask(client, "HEAD", path)).headers["ETag"] == first

    async def change(match: str | None, **changes: Any) -> Any:
        headers = {} if match is None else {"If-Match": match}
        return await ask(client, "PATCH", path, json=changes, headers=headers)

    done = await change(first, max_depth=7)
    assert (done.status, done.json["settings"]["max_depth"]) == (200, 7)
    second = done.headers["ETag"]
    assert second != first
    refused = await change(first, max_depth=8)
    assert (refused.status, refused.json["type"]) == (412, "urn:fsmq:problem:precondition-failed")
    assert second in refused.json["detail"]
    assert (await ask(client, "GET", path)).headers["ETag"] == second
    for match in ("*", f'"none", {second}', None):
        assert (await change(match)).status == 200
    assert (await change(second, max_depth=None)).headers["ETag"] == first
    assert (await change(first, max_depth=-1)).status == 400
    missing = await ask(client, "PATCH", "/none", json={}, headers={"If-Match": first})
    assert missing.status == 404


@pytest.mark.parametrize("what", ["queue", "log", "channel", "schedule"])
async def test_if_match_lets_one_of_several_changes_pass(
    client: ClientSession, queue: str, what: str
) -> None:
    log = f"/_logs/{queue}"
    path, body, change = {
        "queue": (f"/{queue}", {}, {"max_depth": 7}),
        "log": (log, {}, {"dedupe_window": 77}),
        "channel": (f"{log}/channels/c", {}, {"paused": True}),
        "schedule": (
            f"/_schedules/{queue[:90]}",
            {"cron": "@yearly", "queue": queue},
            {"paused": True},
        ),
    }[what]
    await ask(client, "PUT", log, json={})
    assert (await ask(client, "PUT", path, json=body)).status in (200, 201)
    first = (await ask(client, "GET", path)).headers["ETag"]
    headers = {"If-Match": first}
    answers = await asyncio.gather(
        *(ask(client, "PATCH", path, json=change, headers=headers) for _ in range(4))
    )
    assert sorted(answer.status for answer in answers) == [200] + [412] * 3
    [done] = [answer for answer in answers if answer.status == 200]
    second = (await ask(client, "GET", path)).headers["ETag"]
    assert first != second == done.headers["ETag"]
    assert (await ask(client, "PATCH", path, json=change, headers={"If-Match": "*"})).status == 200
    assert (await ask(client, "PATCH", path, json=change)).headers["ETag"] == second
    missing = await ask(client, "PATCH", f"{path}-none", json=change, headers=headers)
    assert missing.status == 404
    for one in dict.fromkeys((path, log)):
        await ask(client, "DELETE", one)
