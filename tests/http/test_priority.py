"""PATCH ?priority= renames a ready message and answers the new id."""

from __future__ import annotations

from aiohttp import ClientSession

from fsmq.spool.layout.uuids import uuid7
from tests.http.helpers import ask, leads_to


async def put(client: ClientSession, queue: str, query: str) -> str:
    answer = await ask(client, "POST", f"/{queue}/messages?{query}", data=b"x")
    assert answer.status == 201
    return str(answer.json["id"])


async def test_the_answer_has_the_new_id(client: ClientSession, queue: str) -> None:
    old = await put(client, queue, "priority=5")
    answer = await ask(client, "PATCH", f"/{queue}/messages/{old}?priority=7")
    assert answer.status == 200
    new = old.replace("p05.", "p07.")
    assert answer.json == {"id": new}
    assert answer.headers["X-Message-Id"] == new
    assert leads_to(f"/{queue}/messages/{old}", answer) == f"/{queue}/messages/{new}"
    shown = await ask(client, "GET", f"/{queue}/messages/{new}")
    assert (shown.status, shown.body, shown.headers["X-Message-Priority"]) == (200, b"x", "7")
    for method, path in (("GET", ""), ("PATCH", "?priority=7"), ("DELETE", "")):
        gone = await ask(client, method, f"/{queue}/messages/{old}{path}")
        assert gone.status == 404
    claimed = await ask(client, "GET", f"/{queue}/messages")
    assert claimed.headers["X-Message-Id"] == new
    late = await ask(client, "PATCH", f"/{queue}/messages/{new}?priority=1")
    assert late.status == 404


async def test_refused_changes(client: ClientSession, queue: str) -> None:
    own = uuid7()
    await put(client, queue, f"id={own}")
    await put(client, queue, f"id={own}&priority=3")
    taken = await ask(client, "PATCH", f"/{queue}/messages/{own}?priority=3")
    assert taken.status == 409
    assert taken.json["message_id"] == f"p03.{own}"
    for path, said in {
        f"{own}?priority=100": "priority: must be a whole number from 0 to 99",
        f"{own}?priority=3&visibility=3": "give it alone",
        f"{own}?priority=3&release=0": "give it alone",
    }.items():
        refused = await ask(client, "PATCH", f"/{queue}/messages/{path}")
        assert refused.status == 400, path
        assert said in refused.json["detail"]
