"""Logs and their channels over real HTTP; docs/http.md has the usual ways."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from fsmq import Spool
from tests.harness.suite import Suite, eventually_on_loop
from tests.http.helpers import PROBLEM, Answer, Wire, ask
from tests.http.inside import Inside
from tests.http.keyfile import add_key, bearer
from tests.http.test_limits import open_sockets

WAIT_S = 20


class Log:
    """A client of the test's log."""

    def __init__(self, client: ClientSession, name: str) -> None:
        self.client = client
        self.name = name
        self.path = f"/_logs/{name}"

    async def ask(self, method: str, path: str = "", **options: Any) -> Answer:
        return await ask(self.client, method, self.path + path, **options)

    async def publish(self, body: bytes = b"x", query: str = "", **options: Any) -> int:
        answer = await self.ask("POST", f"/messages{query}", data=body, **options)
        assert answer.status == 201, answer
        assert answer.json == {"offset": int(answer.headers["X-Message-Offset"])}
        return int(answer.json["offset"])

    async def publish_many(self, *messages: Any) -> int:
        answer = await self.ask("POST", "/batch", json=list(messages))
        assert answer.status == 201, answer
        assert answer.json["count"] == len(messages)
        return int(answer.json["first"])

    async def channel(self, name: str = "c", start: str = "first", **settings: Any) -> str:
        path = f"/channels/{name}"
        made = await self.ask("PUT", f"{path}?from={start}", json=settings)
        assert made.status == 201, made
        return path

    async def claim(self, channel: str, count: int = 10, query: str = "") -> list[int]:
        answer = await self.ask("GET", f"{channel}/messages?count={count}{query}")
        if answer.status == 204:
            return []
        assert answer.status == 200, answer
        return [message["offset"] for message in answer.json["messages"]]


@pytest.fixture
async def log(client: ClientSession, queue: str) -> Log:
    made = Log(client, queue)
    assert (await made.ask("PUT")).status == 201
    return made


def kind(answer: Answer) -> str:
    assert answer.headers["Content-Type"] == PROBLEM
    assert answer.json["status"] == answer.status
    return str(answer.json["type"]).removeprefix("urn:fsmq:problem:")


async def test_a_log_is_created_shown_changed_and_deleted(log: Log) -> None:
    assert (await log.ask("PUT", json={"retain_for": 5})).json["created"] is False
    shown = (await log.ask("GET")).json
    assert shown["settings"]["retain_for"] == 7 * 86_400
    assert (shown["first"], shown["next"], shown["channels"], shown["oldest_at"]) == (
        0,
        0,
        [],
        None,
    )
    changed = await log.ask("PATCH", json={"retain_for": 60, "max_bytes": 10_000})
    assert (changed.json["settings"]["retain_for"], changed.status) == (60, 200)
    await log.publish()
    await log.channel()
    shown = (await log.ask("GET")).json
    assert (shown["next"], shown["channels"], shown["segments"]) == (1, ["c"], 1)
    assert shown["oldest_at"] == shown["newest_at"] != None  # noqa: E711
    assert log.name in (await ask(log.client, "GET", "/_logs")).json["logs"]
    assert (await log.ask("DELETE")).json == {"log": log.name, "deleted": True}
    assert kind(await log.ask("DELETE")) == "no-such-log"
    assert (await log.ask("PUT", json={"retain_for": 5})).status == 201
    assert (await log.ask("GET")).json["settings"]["retain_for"] == 5


async def test_a_message_is_read_as_it_was_published(log: Log) -> None:
    headers = {
        "Content-Type": "text/x",
        "X-Message-Key": "user-\u00fc",
        "X-Message-Attribute-Trace": "8f2",
    }
    assert await log.publish(b"\0\xff", "?id=own", headers=headers) == 0
    raw = await log.ask("GET", "/messages")
    assert (raw.status, raw.body) == (200, b"\0\xff")
    told = {name: raw.headers[name] for name in headers}
    assert told == headers
    assert (raw.headers["X-Message-Offset"], raw.headers["X-Message-Id"]) == ("0", "own")
    [found] = (await log.ask("GET", "/messages?count=9")).json["messages"]
    at = found.pop("published_at")
    assert raw.headers["X-Message-Published-At"] == at
    assert abs(datetime.fromisoformat(at).timestamp() - time.time()) < 60
    assert found == {
        "offset": 0,
        "key": "user-\u00fc",
        "id": "own",
        "content_type": "text/x",
        "attributes": {"Trace": "8f2"},
        "body_base64": "AP8=",
    }
    channel = await log.channel()
    claimed = await log.ask("GET", f"{channel}/messages?visibility=60")
    assert claimed.body == raw.body
    assert {name: claimed.headers[name] for name in headers} == headers
    assert claimed.headers["X-Message-Deliveries"] == "1"
    state = (await log.ask("GET", channel)).json
    assert claimed.headers["X-Message-Generation"] == str(state["generation"])
    left = datetime.fromisoformat(claimed.headers["X-Message-Deadline"]).timestamp() - time.time()
    assert 30 < left < 61


async def test_a_batch_is_contiguous_and_all_or_none(log: Log) -> None:
    assert await log.publish_many({"body": "1"}, {"body_base64": "Mg==", "key": "k"}) == 0
    refused = await log.ask("POST", "/batch", json=[{"body": "3"}, {"body": "4", "key": ""}])
    assert (refused.status, kind(refused), refused.json["index"]) == (400, "invalid-value", 1)
    assert await log.publish() == 2
    found = (await log.ask("GET", "/messages?count=9")).json
    assert [m["body"] for m in found["messages"]] == ["1", "2", "x"]
    assert (found["next"], found["lost"]) == (3, 0)


async def test_an_id_stores_a_message_once(log: Log) -> None:
    assert await log.publish(b"1", "?id=a") == 0
    answers = [log.publish(b"1", "?id=a") for _ in range(5)]
    others = [log.publish(b"2", f"?id=b{n}") for n in range(5)]
    found = await asyncio.gather(*answers, *others)
    assert found[:5] == [0] * 5
    assert sorted(found[5:]) == [1, 2, 3, 4, 5]


async def test_a_log_is_read_from_any_position(log: Log) -> None:
    await log.publish_many(*({"body": str(n)} for n in range(5)))
    moment = (await log.ask("GET", "/messages?from=4")).headers["X-Message-Published-At"]
    for place, first in (("0", 0), ("first", 0), ("3", 3), (moment, 0), ("2020-01-01T00:00Z", 0)):
        found = (await log.ask("GET", f"/messages?from={place}&count=2")).json
        assert found["messages"][0]["offset"] == first
        assert found["next"] == min(first + 2, 5)
    later = datetime.fromtimestamp(time.time() + 60, UTC).isoformat().replace("+", "%2B")
    for place in ("last", "5", later, "99"):
        assert (await log.ask("GET", f"/messages?from={place}")).status == 204
    for place in ("-1", "x", "2020-01-01T00:00", ""):
        assert kind(await log.ask("GET", f"/messages?from={place}")) == "invalid-value"


async def test_a_reader_waits_for_new_messages(suite: Suite, log: Log) -> None:
    waiting = asyncio.ensure_future(log.ask("GET", f"/messages?from=last&wait={WAIT_S}&count=5"))
    quick = await log.ask("GET", "/messages?wait=0.2")
    assert quick.status == 204
    await log.publish(b"here")
    found = await waiting
    assert [m["body"] for m in found.json["messages"]] == ["here"]
    waiting = asyncio.ensure_future(log.ask("GET", f"/messages?from=1&wait={WAIT_S}"))
    with Spool(suite.root, create=False) as other:  # like another process
        other.log(log.name).publish(b"from elsewhere")
    assert (await waiting).body == b"from elsewhere"


async def test_a_channel_claims_each_message_once(log: Log) -> None:
    await log.publish_many(*({"body": str(n)} for n in range(4)))
    channel = await log.channel(order="none")
    assert await log.claim(channel, 2) == [0, 1]
    assert await log.claim(channel, 9) == [2, 3]
    assert await log.claim(channel) == []
    for again in range(2):
        assert (await log.ask("DELETE", f"{channel}/messages/0")).status == 202, again
    generation = (await log.ask("GET", channel)).json["generation"]
    these = {"offsets": [0, 1], "generation": generation}
    done = await log.ask("POST", f"{channel}/done", json=these)
    assert done.json == {"done": 1}
    assert (await log.ask("POST", f"{channel}/done", json={"ranges": [[1, 3]]})).json == {"done": 1}
    state = (await log.ask("GET", channel)).json
    assert (state["position"], state["lag"], state["in_flight"]) == (3, 1, 1)
    assert (await log.ask("POST", f"{channel}/done", json={"through": 9})).json == {"done": 1}
    refused = await log.ask("DELETE", f"{channel}/messages/7")
    assert (refused.status, kind(refused), refused.json["offset"]) == (404, "not-in-flight", 7)


async def test_a_claim_is_renewed_and_released(log: Log) -> None:
    await log.publish_many({"body": "a"}, {"body": "b"})
    channel = await log.channel(order="none")
    assert await log.claim(channel, 2, "&visibility=0.3") == [0, 1]
    renewed = await log.ask("PATCH", f"{channel}/messages/0?visibility=600")
    assert renewed.status == 204
    assert "X-Message-Deadline" in renewed.headers
    # The deadline of the other claim ends during a wait, without any other event.
    assert await log.claim(channel, 2, f"&wait={WAIT_S}") == [1]
    waiting = asyncio.ensure_future(log.claim(channel, 2, f"&wait={WAIT_S}"))
    assert (await log.ask("PATCH", f"{channel}/messages/0?release=0.2")).status == 204
    assert await waiting == [0]
    waiting = asyncio.ensure_future(log.claim(channel, 2, f"&wait={WAIT_S}"))
    assert (await log.ask("PATCH", f"{channel}/messages/1?visibility=0")).status == 204
    assert await waiting == [1]
    both = await log.ask("PATCH", f"{channel}/messages/1?visibility=1&release=1")
    assert kind(both) == "invalid-value"


async def test_order_by_key_and_strict_order(log: Log) -> None:
    await log.publish_many(*({"body": "x", "key": key} for key in "aab"))
    by_key = await log.channel("by-key")
    strict = await log.channel("strict", order="strict")
    assert await log.claim(by_key, 1) == [0]
    assert await log.claim(by_key, 3) == [2]
    waiting = asyncio.ensure_future(log.claim(by_key, 3, f"&wait={WAIT_S}"))
    await log.ask("DELETE", f"{by_key}/messages/0")
    assert await waiting == [1]
    assert await log.claim(strict, 2) == [0, 1]
    assert await log.claim(strict, 2) == []
    waiting = asyncio.ensure_future(log.claim(strict, 3, f"&wait={WAIT_S}"))
    await log.ask("POST", f"{strict}/done", json={"through": 1})
    assert await waiting == [2]


async def test_buried_messages_move_to_the_dead_letter_queue(log: Log) -> None:
    dead = f"{log.name}.dead"
    await log.publish_many({"body": "one", "key": "k"}, {"body": "two"})
    channel = await log.channel(order="none", dead_letter_queue=dead, max_deliveries=1)
    assert await log.claim(channel) == [0, 1]
    assert (await log.ask("PATCH", f"{channel}/messages/0?bury=true&reason=late")).status == 204
    assert (await log.ask("PATCH", f"{channel}/messages/1?release=0&reason=bad")).status == 204
    assert await log.claim(channel) == []
    found = []
    refused = await log.ask("PATCH", f"{channel}/messages/0?visibility=9&reason=late")
    assert (refused.status, b"goes with bury" in refused.body) == (400, True)
    letters = (await ask(log.client, "GET", f"/{dead}/peek")).json["messages"]
    reasons = [letter["dead_letter"]["reason"] for letter in letters]
    assert sorted(reasons) == ["late", "max_deliveries: bad"]
    for _ in range(2):
        got = await ask(log.client, "GET", f"/{dead}/messages?wait={WAIT_S}")
        found.append((got.body, got.headers["X-Message-Attribute-offset"]))
    assert sorted(found) == [(b"one", "0"), (b"two", "1")]
    assert (await log.ask("GET", channel)).json["buried"] == 2


async def test_the_reason_for_an_empty_answer(log: Log) -> None:
    await log.publish_many({"body": "x"}, {"body": "y"})
    channel = await log.channel(max_deliveries=1, order="strict", max_window=1)

    async def reason() -> str | None:
        answer = await log.ask("GET", f"{channel}/messages?wait=0")
        assert answer.status == 204
        return answer.headers.get("X-Channel-State")

    assert await log.claim(channel) == [0]
    assert await reason() == "stalled"
    await log.ask("PATCH", f"{channel}/messages/0?release=0")
    assert await reason() == "blocked"
    assert (await log.ask("GET", channel)).json["blocked_at"] == 0
    waiting = asyncio.ensure_future(log.claim(channel, 3, f"&wait={WAIT_S}"))
    await log.ask("PATCH", channel, json={"paused": True})
    assert await reason() == "paused"
    await log.ask("PATCH", channel, json={"paused": False, "max_deliveries": None})
    assert await waiting == [0]


async def test_a_change_by_another_process_wakes_a_waiter(log: Log, suite: Suite) -> None:
    await log.publish()
    channel = await log.channel(paused=True)
    started = time.monotonic()
    waiting = asyncio.ensure_future(log.claim(channel, 1, f"&wait={WAIT_S}"))
    assert await log.claim(channel, 1) == []  # the other one waits by now
    with Spool(suite.root, sync="none", delivers=False) as other:
        other.log(log.name).channel("c").resume()
    assert await waiting == [0]
    assert time.monotonic() - started < WAIT_S  # at its end it would look once more


async def test_claims_before_a_seek_are_void(log: Log) -> None:
    await log.publish_many({"body": "x"}, {"body": "y"}, {"body": "z"})
    channel = await log.channel(order="none")
    assert await log.claim(channel) == [0, 1, 2]
    before = (await log.ask("GET", channel)).json["generation"]
    waiting = asyncio.ensure_future(log.claim(channel, 1, f"&wait={WAIT_S}"))
    await asyncio.sleep(0.1)
    sought = await log.ask("POST", f"{channel}/seek?to=1")
    assert (sought.status, sought.json["position"]) == (200, 1)
    assert await waiting == [1]
    mine = f"{channel}/messages/1?generation={before}"
    for method, query in (("DELETE", ""), ("PATCH", "&visibility=5")):
        late = await log.ask(method, mine + query)
        assert (late.status, kind(late)) == (409, "claim-void")
    late = await log.ask("DELETE", f"{channel}/messages/2")
    assert (late.status, kind(late)) == (404, "not-in-flight")
    theirs = f"{channel}/messages/1?generation={before + 1}"
    assert (await log.ask("DELETE", theirs)).status == 202
    assert kind(await log.ask("POST", f"{channel}/seek")) == "invalid-value"


async def test_a_channel_with_a_waiter_does_not_expire(suite: Suite, log: Log) -> None:
    channel = await log.channel(expires=1)
    waiting = asyncio.ensure_future(log.claim(channel, 1, f"&wait={WAIT_S}"))
    with Spool(suite.root, create=False) as spool:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            await asyncio.sleep(0.1)
            spool.tend_logs()
    await log.publish()
    assert await waiting == [0]


async def test_a_full_log(suite: Suite, log: Log) -> None:
    (suite.root / "logs" / log.name / "full").touch()
    full = await log.ask("POST", "/messages", data=b"x")
    assert (full.status, kind(full)) == (503, "log-full")
    assert int(full.headers["Retry-After"]) > 0


def test_a_log_with_another_host_as_its_writer(tmp_path: Path) -> None:
    """On a network filesystem a log with one writing host refuses messages at others."""
    with Inside(tmp_path / "mq") as inside, Wire(inside.url) as wire:
        inside.spool.log("l").create(writers="host")
        inside.spool.create_topic("t")
        inside.spool.subscribe("t", "logs/l")
        document = tmp_path / "mq" / "logs" / "l" / "log.json"
        document.write_text(json.dumps({**json.loads(document.read_text()), "host": "elsewhere"}))
        inside.spool.tree.network = True
        for path, body in (
            ("_logs/l/messages", b"x"),
            ("_logs/l/batch", b'[{"body": "x"}]'),
            ("_topics/t/messages", b"x"),
        ):
            refused = wire.ask("POST", f"/{path}", {}, body)
            assert (refused.status, kind(refused)) == (409, "other-writer")
            assert refused.json["host"] == "elsewhere"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("PUT", "/_logs/_bad", b"", 400, "invalid-value"),
        ("PUT", "/_logs/{log}", b"[]", 400, "unreadable-body"),
        ("PUT", "/_logs/{log}x", b'{"retain": 1}', 400, "invalid-value"),
        ("PATCH", "/_logs/{log}", b'{"writers": "all"}', 400, "invalid-value"),
        ("POST", "/_logs/{log}/batch", b"{}", 400, "unreadable-body"),
        ("POST", "/_logs/{log}/batch", b'[{"body": "", "delay": 1}]', 400, "invalid-value"),
        ("POST", "/_logs/{log}/messages?delay=1", b"", 400, "invalid-value"),
        ("POST", "/_logs/{log}/messages?id=", b"", 400, "invalid-value"),
        ("PUT", "/_logs/{log}/channels/c", b'{"from_": 1}', 400, "invalid-value"),
        ("PUT", "/_logs/{log}/channels/c", b'{"order": "any"}', 400, "invalid-value"),
        ("PUT", "/_logs/{log}/channels/c?from=x", b"", 400, "invalid-value"),
        ("DELETE", "/_logs/{log}/channels/none/messages/x", b"", 400, "invalid-value"),
        ("DELETE", "/_logs/{log}/channels/none/messages/", b"", 404, "no-such-path"),
        ("POST", "/_logs/{log}/channels/none/done", b'{"offsets": []}', 400, "invalid-value"),
        ("POST", "/_logs/{log}/channels/none/done", b'{"ranges": [[2, 1]]}', 400, "invalid-value"),
        ("POST", "/_logs/{log}/channels/none/done", b'{"x": 1}', 400, "invalid-value"),
        ("POST", "/_logs/{log}/channels/none/done", b"[", 400, "unreadable-body"),
        ("GET", "/_logs/", b"", 404, "no-such-path"),
        ("DELETE", "/_logs", b"", 405, "method-not-allowed"),
    ],
)
async def test_refused_requests(
    log: Log, method: str, path: str, body: bytes, status: int, told: str
) -> None:
    answer = await ask(log.client, method, path.replace("{log}", log.name), data=body)
    assert (answer.status, kind(answer)) == (status, told)


async def test_waiters_need_no_threads(suite: Suite, log: Log) -> None:
    """Hundreds of long polls at a log and its channels need no threads, and all are woken."""
    tasks = Path(f"/proc/{suite['mq'].pid}/task")
    channels = [await log.channel(f"c{n}", "last") for n in range(20)]
    connector = aiohttp.TCPConnector(limit=0)
    async with ClientSession(log.client._base_url, connector=connector) as many:
        crowd = Log(many, log.name)
        paths = [*(["/messages?from=0"] * 200), *(f"{one}/messages?" for one in channels * 10)]
        polls = [asyncio.ensure_future(crowd.ask("GET", f"{path}&wait={WAIT_S}")) for path in paths]

        async def all_wait() -> bool:
            page = (await ask(log.client, "GET", "/_health/live")).status
            return page == 200 and open_sockets(suite) >= len(paths)

        await eventually_on_loop(all_wait)
        assert len(list(tasks.iterdir())) < 60
        await log.publish_many(*({"body": "x"} for _ in range(10)))
        answers = await asyncio.gather(*polls)
    assert [answer for answer in answers if answer.status != 200] == []
    claimed = [answer.headers["X-Message-Offset"] for answer in answers[200:]]
    for number in range(10):
        assert claimed.count(str(number)) == len(channels)


async def test_a_waiter_that_hangs_up_claims_nothing(log: Log) -> None:
    channel = await log.channel(order="strict")
    gone = asyncio.ensure_future(log.ask("GET", f"{channel}/messages?wait={WAIT_S}"))
    await asyncio.sleep(0.2)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await log.publish()
    assert await log.claim(channel, 1, f"&wait={WAIT_S}") == [0]


async def test_the_size_of_an_answer_has_a_limit(log: Log) -> None:
    body = b"x" * (8 << 20)
    for _ in range(10):
        await log.publish(body)
    for order in ("none", "key", "strict"):
        channel = await log.channel(f"by-{order}", order=order)
        got = await log.claim(channel)
        assert 7 <= len(got) < 10
    page = (await log.ask("GET", "/messages?count=10")).json
    assert 7 <= len(page["messages"]) < 10
    assert page["next"] == len(page["messages"])


async def test_metrics_of_logs(log: Log) -> None:
    await log.publish_many(*({"body": "x"} for _ in range(3)))
    channel = await log.channel()
    assert await log.claim(channel, 2) == [0, 1]
    await log.ask("DELETE", f"{channel}/messages/0")

    async def told() -> bool:
        page = (await ask(log.client, "GET", "/_metrics")).body.decode()
        of = f'log="{log.name}"'
        return all(
            line in page
            for line in (
                f"fsmq_log_messages_published_total{{{of},",
                f"fsmq_log_messages_claimed_total{{{of},",
                f"fsmq_log_messages{{{of}}} 3.0",
                f'fsmq_channel_lag_messages{{channel="c",{of}}} 2.0',
                f'fsmq_channel_in_flight_messages{{channel="c",{of}}} 1.0',
                f'fsmq_channel_lag_seconds{{channel="c",{of}}}',
            )
        )

    await eventually_on_loop(told)


async def test_rights_on_logs_and_channels(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = {
        "admin": add_key(file, "admin", "--admin=logs/*", "--admin=logs/*/*", "--send=logs/*"),
        "writer": add_key(file, "writer", "--send=logs/users"),
        "reader": add_key(file, "reader", "--receive=logs/users"),
        "mailer": add_key(file, "mailer", "--receive=logs/users/mailer"),
        "queues": add_key(file, "queues", "--send=*", "--receive=*", "--admin=*"),
    }
    may = {
        ("PUT", "/_logs/users"): {"admin"},
        ("PUT", "/_logs/users/channels/mailer"): {"admin"},
        ("PATCH", "/_logs/users"): {"admin"},
        ("PATCH", "/_logs/users/channels/mailer"): {"admin"},
        ("GET", "/_logs/users"): {"admin", "writer", "reader"},
        ("GET", "/_logs/users/channels/mailer"): {"admin", "mailer"},
        ("POST", "/_logs/users/messages"): {"admin", "writer"},
        ("POST", "/_logs/users/batch"): {"admin", "writer"},
        ("GET", "/_logs/users/messages"): {"reader"},
        ("GET", "/_logs/users/channels/mailer/messages"): {"mailer"},
        ("DELETE", "/_logs/users/channels/mailer/messages/0"): {"mailer"},
        ("PATCH", "/_logs/users/channels/mailer/messages/0"): {"mailer"},
        ("POST", "/_logs/users/channels/mailer/done"): {"mailer"},
        ("POST", "/_logs/users/channels/mailer/seek"): {"admin"},
        ("DELETE", "/_logs/users/channels/mailer"): {"admin"},
        ("DELETE", "/_logs/users"): {"admin"},
    }
    with Suite(tmp_path / "mq", mq_options=[f"--keys={file}"]) as suite:
        async with ClientSession(suite.url) as client:
            for (method, path), allowed in may.items():
                assert (await ask(client, method, path)).status == 401
                for name in (*(keys.keys() - allowed), *sorted(allowed)):
                    answer = await ask(client, method, path, headers=bearer(keys[name]))
                    assert (answer.status == 403) is (name not in allowed), (method, path, name)
            await ask(client, "PUT", "/_logs/users", headers=bearer(keys["admin"]))
            dead = json.dumps({"dead_letter_queue": "jobs"})
            refused = await ask(
                client, "PUT", "/_logs/users/channels/c", headers=bearer(keys["admin"]), data=dead
            )
            assert refused.status == 403
            for name, sees in (("admin", ["users"]), ("queues", [])):
                listed = await ask(client, "GET", "/_logs", headers=bearer(keys[name]))
                assert listed.json == {"logs": sees}
