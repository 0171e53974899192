"""Schedules over real HTTP, and what real movers put."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from aiohttp import ClientSession

from fsmq.spool import Spool
from tests.faults.test_clock import HOUR_S, Host, running  # noqa: F401  # a fixture
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.http.helpers import PROBLEM, Wire, ask, fetch, leads_to
from tests.http.keyfile import add_key
from tests.http.served import Served

LINE = "30 3 * * *"
BODY = b'{"cron": "@daily", "queue": "%s"}'


@pytest.fixture
def path(queue: str) -> str:
    return f"/_schedules/{queue}"


async def test_the_life_of_a_schedule(client: ClientSession, path: str, queue: str) -> None:
    given = {"cron": LINE, "queue": queue, "body": "x", "timezone": "Europe/Berlin", "priority": 3}
    created = await ask(client, "PUT", path, json=given)
    assert (created.status, leads_to(path, created)) == (201, path)
    assert created.json["settings"] == {**given, "catch_up": "last"}
    assert (created.json["last"], created.json["problem"]) == (None, None)
    assert created.json["next"][13:] in (":30:00.000Z",)
    shown = await ask(client, "GET", path)
    assert shown.json == created.json
    assert created.json in (await ask(client, "GET", "/_schedules")).json["schedules"]
    again = await ask(client, "PUT", path, json=shown.json["settings"] | {"body": "y"})
    assert (again.status, again.json["settings"]["body"]) == (200, "y")
    paused = await ask(client, "PATCH", path, json={"paused": True, "priority": None})
    assert paused.json["settings"]["paused"] is True
    assert "priority" not in paused.json["settings"]
    assert paused.json["next"] is None
    upcoming = await ask(client, "GET", f"{path}/next?count=3")
    assert len(upcoming.json["next"]) == 3
    ran = await ask(client, "POST", f"{path}/run")
    assert ran.status == 201
    assert leads_to(f"{path}/run", ran) == f"/{queue}/messages/{ran.json['id']}"
    fetched = await fetch(client, queue)
    assert (fetched.id, fetched.body) == (ran.json["id"], b"y")
    assert (await ask(client, "DELETE", path)).json == {"schedule": queue, "deleted": True}
    assert (await ask(client, "GET", path)).status == 404


async def test_put_now_on_a_page_with_a_depth_limit(
    client: ClientSession, suite: Suite, path: str, queue: str
) -> None:
    assert (await ask(client, "PATCH", f"/{queue}", json={"max_depth": 10})).status == 200
    assert (await ask(client, "PUT", path, json={"cron": LINE, "queue": queue})).status == 201
    form = {"do": "put_now", "name": queue}
    headers = {"Origin": suite.url}
    async with client.post(
        f"{suite.url}/_ui/schedules", data=form, headers=headers, allow_redirects=False
    ) as answer:
        assert answer.status == 303, await answer.text()
    assert (await fetch(client, queue)).status == 200


async def test_concurrent_creations_of_one_name_by_two_keys(tmp_path: Path) -> None:
    keys = {name: add_key(tmp_path / "keys", name, f"--admin={name}") for name in "ab"}
    heads = {
        name: f"HTTP/1.1\r\nAuthorization: Bearer {key}\r\nContent-Length: 32\r\n"
        for name, key in keys.items()
    }
    with Spool(tmp_path / "root", sync="none") as spool:
        async with Served(spool, tmp_path / "keys") as served:
            for number in range(20):
                asked = (
                    served.ask(f"PUT /_schedules/s{number} {head}", BODY % name.encode())
                    for name, head in heads.items()
                )
                assert sorted(one.status for one in await asyncio.gather(*asked)) == [201, 403]


async def test_concurrent_creations_and_deletions_are_counted_right(
    client: ClientSession, path: str
) -> None:
    given, number = {"cron": LINE, "queue": "q"}, 0
    for _ in range(100):
        puts = [ask(client, "PUT", path, json=given) for _ in range(2)]
        deleted, *answers = await asyncio.gather(ask(client, "DELETE", path), *puts)
        assert {one.status for one in answers} <= {200, 201}
        number += sum(one.status == 201 for one in answers) - (deleted.status == 200)
    assert number == ((await ask(client, "GET", path)).status == 200)


@pytest.mark.parametrize(
    ("method", "more", "body", "field"),
    [
        ("PUT", "", b"[]", None),
        ("PUT", "", b"{", None),
        ("PUT", "", b'{"queue": "q"}', "cron"),
        ("PUT", "", b'{"cron": "1 2 3", "queue": "q"}', "cron"),
        ("PUT", "", b'{"cron": "@daily", "queue": "q", "timezone": "X"}', "timezone"),
        ("PUT", "", b'{"cron": "@daily", "queue": "q", "other": 1}', "other"),
        ("PUT", "", b'{"cron": "@daily", "queue": "q", "catch_up": "some"}', "catch_up"),
        ("PUT", "", b'{"cron": "@daily", "queue": "q", "priority": 100}', "priority"),
        ("PATCH", "", b'{"cron": null}', "cron"),
        ("PATCH", "", b'{"pausd": null}', "pausd"),
        ("PATCH", "", b'{"paused": 1}', "paused"),
        ("GET", "/next?count=0", b"", "count"),
        ("GET", "/next?count=101", b"", "count"),
    ],
)
async def test_refused_requests(
    client: ClientSession, path: str, queue: str, method: str, more: str,
    body: bytes, field: str | None
) -> None:  # fmt: skip
    await ask(client, "PUT", path, json={"cron": LINE, "queue": queue})
    refused = await ask(client, method, path + more, data=body)
    assert (refused.status, refused.headers["Content-Type"]) == (400, PROBLEM)
    assert refused.json.get("field") == field
    assert (await ask(client, "DELETE", path)).status == 200
    for method, more in (("GET", ""), ("DELETE", ""), ("GET", "/next"), ("POST", "/run")):
        missing = await ask(client, method, path + more)
        assert missing.json["type"] == "urn:fsmq:problem:no-such-schedule"
        assert missing.json["schedule"] == queue


@pytest.fixture
def movers(tmp_path: Path) -> Iterator[Suite]:
    """A suite of three movers on one tree."""
    suite = Suite(tmp_path / "mq", reaper=False)
    for name in ("mover two", "mover three"):
        suite.add(name, "mover", [f"--root={suite.root}", f"--node={name.replace(' ', '-')}"])
    with suite:
        yield suite


def test_killed_movers_put_one_message_for_each_time(movers: Suite) -> None:
    chance, found = Random(20), Counter[float]()
    names = ("mover", "mover two", "mover three")
    with Spool(movers.root, delivers=False) as spool:
        queue = spool.queue("jobs", create=True)
        schedule = spool.schedule("ticks")
        schedule.define("* * * * * *", "jobs", "tick", catch_up="all")
        begin = schedule.next(1)[0]

        def consume() -> bool:
            messages = queue.claim(100)
            found.update(message.created_at or 0.0 for message in messages)
            queue.ack(*messages)
            return time.time() > begin + 1

        eventually(consume)
        for name in (*names, *names):
            movers.kill(name)
            arbitrary_moment(chance, 0.0, 0.4)
            consume()
            movers.start(name)
            arbitrary_moment(chance, 0.0, 0.8)
        schedule.configure(paused=True)
        end = int(time.time())
        eventually(lambda: consume() and len(found) >= end - begin)
        assert set(found.values()) == {1}
        assert sorted(found)[0] == begin
        assert max(found) - begin == len(found) - 1  # without a gap
    for name in names:
        logged = [e for e in movers.logs(name) if e.get("level") in ("error", "warning")]
        assert [e for e in logged if e["event"] != "probe"] == []


@pytest.fixture
def host(running: tuple[Suite, Path]) -> Iterator[Host]:  # noqa: F811
    suite, offset = running
    with Wire(suite.url) as wire:
        assert wire.ask("PUT", "/q").status == 201
        host = Host(suite, wire, offset, "q")
        host.set_clock(0)
        yield host


def test_a_clock_that_is_set_forward_and_back_puts_no_message_twice(host: Host) -> None:
    wire, root = host.wire, host.suite.root
    schedule = b'{"cron": "*/10 * * * *", "queue": "q", "body": "x", "catch_up": "all"}'
    assert wire.ask("PUT", "/_schedules/s", {}, schedule).status == 201
    host.set_clock(HOUR_S)
    with Spool(root, delivers=False) as spool:
        queue = spool.queue("q")
        moments: list[float] = []

        def consume() -> int:
            # The clock is right here: a claim ends earlier for a mover whose clock is ahead.
            messages = queue.claim(100, visibility=4 * HOUR_S)
            moments.extend(message.created_at or 0.0 for message in messages)
            queue.ack(*messages)
            return len(moments)

        eventually(lambda: consume() >= 6)
        host.set_clock(0)
        host.set_clock(HOUR_S)  # the clock comes here again: these times are done
        host.post("after")
        eventually(lambda: queue.find("after") is None or consume() >= 7)
        consume()
        host.set_clock(2 * HOUR_S)
        eventually(lambda: consume() >= 13)
    real = sorted(m for m in moments if m)
    assert len(set(real)) == len(real)
    assert real == [real[0] + 600 * n for n in range(len(real))]
