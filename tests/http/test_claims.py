"""Names of claims over HTTP: an ended claim cannot change the next one."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from fsmq import Client
from fsmq.spool import ClaimEnded, NoSuchMessage
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, ask, configure, counts, fetch, post


async def settle(client: ClientSession, method: str, path: str, claim: str | None) -> Answer:
    return await ask(client, method, path, headers={"X-Message-Claim": claim} if claim else {})


@pytest.mark.parametrize("own", ["", "plain"])
async def test_an_ended_claim_cannot_change_the_claim_of_another_client(
    client: ClientSession, queue: str, own: str
) -> None:
    await configure(client, queue, max_deliveries=9, dead_letter_queue=f"{queue}-dead")
    await post(client, queue, b"x", **({"id": own} if own else {}))
    slow = await fetch(client, queue, visibility=0.2)
    other = await fetch(client, queue, visibility=600)
    assert slow.id == other.id
    path = f"/{queue}/messages/{slow.id}"
    mine, theirs = (one.headers["X-Message-Claim"] for one in (slow, other))
    for method, query in (
        ("DELETE", ""),
        *(("PATCH", query) for query in ("", "?visibility=9", "?release=0", "?bury=true")),
    ):
        refused = await settle(client, method, path + query, mine)
        assert refused.status == 409
        assert refused.json["type"] == "urn:fsmq:problem:claim-ended"
        assert (refused.json["queue"], refused.json["message_id"]) == (queue, slow.id)
    acked = await ask(
        client, "POST", f"/{queue}/ack", json={"ids": [{"id": slow.id, "claim": mine}]}
    )
    assert acked.json == {"removed": [], "missing": [], "ended": [slow.id]}
    assert (await counts(client, queue))["in_flight"] == 1
    renewed = await settle(client, "PATCH", f"{path}?visibility=60", theirs)
    assert renewed.headers["X-Message-Claim"] == theirs
    assert (await settle(client, "DELETE", path, theirs)).status == 202
    assert (await settle(client, "DELETE", path, theirs)).status == 404


async def test_a_renewal_keeps_the_name_of_a_claim(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"x")
    fetched = await fetch(client, queue, visibility=100)
    path = f"/{queue}/messages/{fetched.id}"
    claim = fetched.headers["X-Message-Claim"]
    for seconds in (33, 77.123, 30.7, 500):
        renewed = await settle(client, "PATCH", f"{path}?visibility={seconds}", None)
        assert renewed.headers["X-Message-Claim"] == claim
    await ask(client, "PATCH", f"{path}?release=0")
    # Without a name the renewal makes a new claim and answers its name.
    again = (await ask(client, "PATCH", f"{path}?visibility=9")).headers["X-Message-Claim"]
    assert again != claim
    assert (await settle(client, "DELETE", path, claim)).status == 409
    assert (await settle(client, "DELETE", path, again)).status == 202


async def test_claims_in_json(client: ClientSession, queue: str) -> None:
    for name in ("a", "b", "c"):
        await post(client, queue, b"x", id=name)
    claimed = []
    while len(claimed) < 3:
        claimed += (await fetch(client, queue, count=3)).json["messages"]
    given = [{"id": m["id"], "claim": m["claim"]} for m in claimed]
    [shown] = (await ask(client, "GET", f"/{queue}/peek?state=in_flight&count=1")).json["messages"]
    assert shown["claim"] is None
    assert "X-Message-Claim" not in (await ask(client, "GET", f"/{queue}/messages/a")).headers
    given[1]["claim"] = None
    given[2]["claim"] = "c9-99"
    acked = await ask(client, "POST", f"/{queue}/ack", json={"ids": [*given, "none"]})
    ids = [one["id"] for one in given]
    assert acked.json == {"removed": ids[:2], "missing": ["none"], "ended": ids[2:]}
    plain = await ask(client, "POST", f"/{queue}/ack", json={"ids": ids})
    assert plain.json == {"removed": ids[2:], "missing": ids[:2]}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"id": "a", "claim": "5-47"}, "claim"),
        ({"id": "a", "claim": 5}, "claim"),
        ({"id": "a", "clam": "c5-47"}, "clam"),
        ({"claim": "c5-47"}, "ids"),
        ([], "ids"),
        (None, "ids"),
    ],
)
async def test_an_invalid_batch_of_acks_removes_nothing(
    client: ClientSession, queue: str, given: object, field: str
) -> None:
    await post(client, queue, b"x", id="b")
    refused = await ask(client, "POST", f"/{queue}/ack", json={"ids": ["b", given]})
    assert refused.status == 400
    assert (refused.json["field"], refused.json["index"]) == (field, 1)
    assert (await fetch(client, queue)).status == 200


def test_a_client_names_its_claim(suite: Suite, queue: str) -> None:
    with Client(suite.url) as one, Client(suite.url) as two:
        jobs, theirs = one.queue(queue), two.queue(queue)
        jobs.put_many([b"1", b"2"])
        eventually(lambda: jobs.counts().ready == 2)
        slow = jobs.claim(2, visibility=0.2)
        assert len(slow) == 2
        held = [theirs.claim(1, visibility=600, wait=20)[0] for _ in slow]
        assert sorted(m.id for m in held) == sorted(m.id for m in slow)
        assert jobs.ack_each(slow) == ["ended", "ended"]
        assert jobs.ack_each(slow[:1]) == ["ended"]
        for act in (slow[0].ack, slow[0].renew, slow[0].release):
            with pytest.raises(ClaimEnded):
                act()
        assert theirs.ack_each(held) == ["removed", "removed"]
        assert slow[0].ack() is False
        with pytest.raises(NoSuchMessage):
            slow[0].release()
