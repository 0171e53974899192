"""Inspection over HTTP: searches, places of ids, and histories."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession

from fsmq._version import __version__
from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.service.monitoring import inspector
from fsmq.spool.inspection import Place, places
from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http.helpers import ARRIVAL_S, Answer, Wire, ask, fetch, post, until_ready
from tests.http.inside import Inside
from tests.http.keyfile import add_key, bearer
from tests.http.test_limits import memory
from tests.http.test_memory import peak


def test_finding_an_id_takes_little_memory(root: Path) -> None:
    """In a folder of claims and in a folder of a queue, which can have millions of files."""
    options = ["--sync=none", "--history=off"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        (root / "queues" / "q").mkdir()
        for number in range(150_000):
            os.mknod(f"{root}/delay/q:@own-{number:07}-{'x' * 60}@.h")
            os.mknod(f"{root}/queues/q/@own-{number:07}-{'x' * 60}@.h")
        with Wire(suite.url, 60) as wire:
            assert wire.ask("GET", "/_messages/first").json["places"] == []
            peak(suite)
            before = memory(suite)
            assert wire.ask("GET", "/_messages/none").json["places"] == []
            assert peak(suite) - before < 4 * 1024 * 1024


def test_searches_of_one_key_do_not_delay_those_of_another(root: Path, tmp_path: Path) -> None:
    """Keys take turns."""
    busy, other = (add_key(tmp_path / "keys", name, "--look=*") for name in ("busy", "other"))
    options = ["--sync=none", "--history=off", f"--keys={tmp_path / 'keys'}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite, ExitStack() as stack:
        for number in range(50_000):
            os.mknod(f"{root}/delay/q:{number}")
        wires = [stack.enter_context(Wire(suite.url, 60)) for _ in range(40)]
        for wire in wires:
            wire.request("GET", "/_messages/none", bearer(busy))
        eventually(lambda: any(wire.is_readable() for wire in wires))
        with Wire(suite.url, 60) as wire:
            assert wire.ask("GET", "/_messages/none", bearer(other)).status == 200
        assert sum(wire.is_readable() for wire in wires) < len(wires) / 2


def test_long_searches_of_one_key_leave_a_turn_to_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them also to what else its key looks at, such as the charts of a page."""
    busy, other = (add_key(tmp_path / "keys", name, "--look=*") for name in ("busy", "other"))
    begun, looked = threading.Event(), threading.Event()

    def look(*args: Any) -> list[Place]:
        if args[1] == "long":
            begun.set()
            assert looked.wait(ARRIVAL_S)
        return places(*args)

    monkeypatch.setattr(inspector, "places", look)
    monkeypatch.setattr(inspector, "_TURN_S", 0.5)
    with Inside(root, access=Access(load(tmp_path / "keys"))) as inside, ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(4)]
        wires[0].request("GET", "/_messages/long", bearer(busy))
        assert begun.wait(ARRIVAL_S)
        with Wire(inside.url) as wire:
            for path in ("/_messages/short", "/_cluster", "/_history"):
                assert wire.ask("GET", path, bearer(busy)).status == 200, path
            for more in wires[1:]:
                more.request("GET", "/_messages/long", bearer(busy))
            eventually(lambda: wire.ask("GET", "/_cluster", bearer(busy)).status == 503)
            assert wire.ask("GET", "/_messages/short", bearer(other)).status == 200
        looked.set()
        assert {wire.answer().status for wire in wires} <= {200, 503}


def test_searches_of_one_key_do_not_hold_up_what_is_found_for_all(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the last actions: all visitors of a page would wait behind one of that key."""
    busy, other = (add_key(tmp_path / "keys", name, "--look=*") for name in ("busy", "other"))
    begun, looked = threading.Semaphore(0), threading.Event()

    def look(*args: Any) -> list[Place]:
        begun.release()
        assert looked.wait(2 * ARRIVAL_S)
        return places(*args)

    monkeypatch.setattr(inspector, "places", look)
    with (
        Inside(root, access=Access(load(tmp_path / "keys")), ui=True) as inside,
        ExitStack() as stack,
    ):
        searches = [stack.enter_context(Wire(inside.url)) for _ in range(2)]
        for search in searches:
            search.request("GET", "/_messages/long", bearer(busy))
            assert begun.acquire(timeout=ARRIVAL_S)
        with Wire(inside.url) as wire:
            for key in (busy, other):
                assert wire.ask("GET", "/_ui/work", bearer(key)).status == 200
        looked.set()
        assert {search.answer().status for search in searches} == {200}


def test_a_search_waits_a_limited_time_for_its_turn(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def look(*args: Any) -> list[Place]:
        assert looked.wait(ARRIVAL_S)
        return places(*args)

    monkeypatch.setattr(inspector, "places", look)
    monkeypatch.setattr(inspector, "_TURN_S", 0.1)
    with Inside(root) as inside, ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(4)]
        for wire in wires:
            wire.request("GET", "/_messages/none")
        eventually(lambda: sum(wire.is_readable() for wire in wires) == 2)
        looked.set()
        answers = [wire.answer() for wire in wires]
        assert sorted(answer.status for answer in answers) == [200, 200, 503, 503]
        assert {answer.headers["Retry-After"] for answer in answers} == {None, "5"}


async def test_a_peek_filters_and_links_to_the_next_page(client: ClientSession, queue: str) -> None:
    for number in range(6):
        headers = {"X-Message-Attribute-Color": ["red", "blue"][number % 2]}
        path = f"/{queue}/messages?id=01900000-0000-7000-8000-00000000000{number}"
        await ask(client, "POST", path, data=f"<{number}>", headers=headers)
    await until_ready(client, queue, 6)
    page = f"/{queue}/peek?attribute.color=red&count=2&contains=%3E"
    seen = []
    while page:
        answer = await ask(client, "GET", page)
        seen += [message["body"] for message in answer.json["messages"]]
        following = answer.json["next"]
        link = answer.headers.get("Link")
        assert (following is None) == (link is None)
        page = link.removesuffix('>; rel="next"').removeprefix("<") if link else ""
        assert not page or f"after={quote(following)}" in page
    assert seen == ["<0>", "<2>", "<4>"]
    old = await ask(client, "GET", f"/{queue}/peek?older_than=3600")
    assert len(old.json["messages"]) == 6  # their ids are of 2024
    assert (await ask(client, "GET", f"/{queue}/peek?older_than=3e9")).json["messages"] == []
    for wrong in ("contains=", "attribute.=x", "attribute.a%20b=x", "attribute.a=1&attribute.a=1"):
        refused = await ask(client, "GET", f"/{queue}/peek?{wrong}")
        assert refused.status == 400, wrong


async def test_an_own_id_is_found_by_its_short_form(client: ClientSession, queue: str) -> None:
    own = f"order-{queue}"[:64]
    path = f"/{queue}/messages?id={own}"
    posted = await ask(client, "POST", path, data=b"{}", headers={"Content-Type": "a/json"})
    assert posted.id == f"@{own}@.h"
    answer = await ask(client, "GET", f"/_messages/{own}")
    assert [(one["queue"], one["id"]) for one in answer.json["places"]] == [(queue, posted.id)]
    looked = await ask(client, "GET", f"/{queue}/messages/{own}")
    assert (looked.status, looked.body, looked.id) == (200, b"{}", posted.id)


async def test_an_id_is_found_where_it_is(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"x")
    await fetch(client, queue, visibility=60)
    answer = await ask(client, "GET", f"/_messages/{message_id}")
    [place] = answer.json["places"]
    assert (place["queue"], place["state"], place["deliveries"]) == (queue, "in_flight", 1)
    assert place["deadline"].endswith("Z")
    await ask(client, "DELETE", f"/{queue}/messages/{message_id}")
    gone = await ask(client, "GET", f"/_messages/{message_id}")
    assert gone.json == {"id": message_id, "places": []}
    assert (await ask(client, "GET", "/_messages/a:b")).status == 400


async def life(client: ClientSession, path: str, **more: Any) -> list[dict[str, Any]]:
    answer = await ask(client, "GET", path, **more)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


async def test_the_life_of_a_message(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"hello")
    await fetch(client, queue)
    await ask(client, "DELETE", f"/{queue}/messages/{message_id}")
    path = f"/{queue}/messages/{message_id}/life"

    async def has_ended() -> list[dict[str, Any]]:
        found = await life(client, path)
        return found if len(found) == 5 else []

    steps = await eventually_on_loop(has_ended)
    assert {step["event"]: step["via"] for step in steps} == {
        "accepted": "native",
        "delivered": "native",
        "claimed": "native",
        "removed": "native",
        "reaped": "reaper",
    }
    assert await life(client, f"/{queue}/messages/nobody/life") == []
    refused = await ask(client, "GET", f"{path}?after=nonsense")
    assert refused.status == 400
    stopped = await life(client, f"{path}?budget=0")
    seen = stopped
    while "next" in seen[-1]:
        following = seen.pop()["next"]
        seen += await life(client, f"{path}?budget=0&after={quote(following)}")
        if not seen[-1:]:
            break
    assert sorted(map(str, seen)) == sorted(map(str, steps))


async def test_searches_of_clients_that_hung_up_are_skipped(
    suite: Suite, client: ClientSession, queue: str
) -> None:
    """Searches of a large journal take some time, and few run at once."""
    now = int(time.time() * 1000)
    line = f'{{"at":{now},"step":"accepted","queue":"{queue}","id":"other"}}\n'
    for number in range(1, 11):
        path = suite.root / "journal" / f".{now}-other-1-{number}.jsonl"
        path.write_text(line * 40_000)
    path = f"/{queue}/messages/nowhere/life"
    started = time.monotonic()
    assert (await ask(client, "GET", path)).status == 200
    alone = time.monotonic() - started
    for _ in range(100):
        _, writer = await asyncio.open_connection("127.0.0.1", suite.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        writer.close()
    started = time.monotonic()
    assert (await ask(client, "GET", path)).status == 200
    assert time.monotonic() - started < 20 * alone  # behind all it would take 50 times that


async def test_a_key_sees_only_places_in_its_queues(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    everything = add_key(file, "all", "--send=*", "--receive=*", "--admin=*")
    viewer = add_key(file, "viewer", "--look=mine*")
    sender = add_key(file, "sender", "--send=mine*")
    with Suite(tmp_path / "mq", mq_options=[f"--keys={file}"]) as suite:
        for queue in ("mine", "secret"):
            (suite.root / "queues" / queue).mkdir()
        async with ClientSession(suite.url) as session:

            async def as_key(key: str, method: str, path: str, **more: Any) -> Answer:
                return await ask(session, method, path, headers=bearer(key), **more)

            async def found(key: str) -> list[str]:
                places = (await as_key(key, "GET", "/_messages/same")).json["places"]
                return [one["queue"] for one in places]

            for queue in ("mine", "secret"):
                await as_key(everything, "POST", f"/{queue}/messages?id=same", data=b"x")
            taken = await as_key(everything, "GET", f"/secret/messages?wait={ARRIVAL_S}")
            assert taken.body == b"x"
            move, ids = "/secret/move?to=mine.too&in_flight=true", {"ids": ["same"]}
            assert (await as_key(everything, "POST", move, json=ids)).status == 404
            (suite.root / "queues" / "mine.too").mkdir()
            moved = await as_key(everything, "POST", move, json=ids)
            assert moved.json == {"moved": 1, "conflicts": 0}
            assert await found(everything) == await found(viewer) == ["mine", "mine.too"]
            assert await found(sender) == []
            assert (await ask(session, "GET", "/_messages/same")).status == 401

            async def is_told() -> list[dict[str, Any]]:
                return await life(session, "/mine.too/messages/same/life", headers=bearer(viewer))

            [step] = await eventually_on_loop(is_told)
            assert (step["event"], step["queue"], step.get("from")) == ("moved", "mine.too", None)
            whole = await life(session, "/mine.too/messages/same/life", headers=bearer(everything))
            assert {one["queue"] for one in whole} == {"secret", "mine.too"}
            for key in (viewer, sender):
                assert (await as_key(key, "GET", "/secret/messages/same/life")).status == 403
            assert (await as_key(sender, "GET", "/mine/peek")).status == 403


async def test_the_history_of_queues(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    viewer = add_key(file, "viewer", "--look=mine*")
    with Suite(tmp_path / "mq", mq_options=[f"--keys={file}"], mover=False) as suite:
        for queue in ("mine", "secret"):
            (suite.root / "queues" / queue).mkdir()
        history = suite.root / "history"
        eventually(lambda: list(history.glob("*.jsonl")))  # the first line comes at once
        [written] = history.glob("*.jsonl")
        now = time.time()  # later than that line: the last line of a minute counts
        line = {"v": 1, "at": round(now * 1000), "queues": {}}
        line["queues"] = {queue: [1, 2, 3, 4, 5.5, 6, 7, 8, 9, 10] for queue in ("mine", "secret")}
        with written.open("a") as opened:
            opened.write(json.dumps(line) + "\n")
        async with ClientSession(suite.url) as session:
            answer = await ask(session, "GET", "/_history", headers=bearer(viewer))
            assert (answer.json["step"], list(answer.json["queues"])) == (60, ["mine"])
            rows = {row[0]: row for row in answer.json["queues"]["mine"]}
            minute = round(now // 60 * 60_000)
            assert answer.json["figures"][:3] == ["at", "new", "ready"]
            assert rows[minute] == [minute, 1, 2, 3, 4, 5.5, 6, 7, 8, 9, 10]
            path = f"/_history?queue=mine&from={quote('2000-01-01T00:00:00Z')}&step=3600"
            answer = await ask(session, "GET", path, headers=bearer(viewer))
            assert len(answer.json["queues"]["mine"]) in (1, 2)
            assert answer.json["step"] >= 3600
            for query, status in (
                ("", 401),
                ("?queue=secret", 403),
                ("?from=yesterday", 400),
                ("?from=2000-01-01T00:00:00", 400),
            ):
                headers = bearer(viewer) if query else {}
                refused = await ask(session, "GET", f"/_history{query}", headers=headers)
                assert refused.status == status, query
    assert not list((tmp_path / "mq" / "history").glob("*.tmp"))


def test_history_can_be_switched_off(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", mq_options=["--history=off"], mover=False) as suite:
        with Wire(suite.url) as wire:
            assert wire.ask("GET", "/_history").json["queues"] == {}
        assert not (suite.root / "history").exists()


async def test_the_state_of_the_cluster(suite: Suite, client: ClientSession, queue: str) -> None:
    await post(client, queue)

    async def has_all() -> Any:
        found = (await ask(client, "GET", "/_cluster")).json
        names = {program["process"] for program in found["programs"]}
        return found if names == {"mq", "mover", "reaper"} else None

    found = await eventually_on_loop(has_all)
    [host] = found["hosts"]
    assert (host["node"], host["alive"], host["version"]) == (found["node"], True, __version__)
    assert abs(host["clock"]) < 60
    assert found["connections"]["open"] >= found["connections"]["in_use"] >= 1
    assert found["share"] == {"rank": 0, "of": 1}
    assert host["address"].endswith(str(suite.port))
    by_name = {program["process"]: program for program in found["programs"]}
    assert by_name["mq"]["syncs"] >= 1
    assert by_name["mq"]["sync_p99"] > 0
    assert set(by_name["mover"]["lag"]) == {"new", "timers"}
    assert by_name["mover"]["pid"] == suite["mover"].pid
    assert by_name["mover"]["memory"] > 2**20
    assert by_name["mover"]["since"].endswith("Z")
    spool = found["spool"]
    assert spool["bytes"] > spool["free_bytes"] > 0
    assert set(spool["folders"]) == {"remove", "journal", "history"}
    assert spool["folders"]["history"]["files"] >= 1
    assert "health" not in found
    examined = (await ask(client, "GET", "/_cluster?health=true")).json["health"]
    names = {finding["name"] for finding in examined["findings"]}
    assert {"mq", "mover", "reaper", "inodes", "queues"} <= names
    again = (await ask(client, "GET", "/_cluster?health=true")).json["health"]
    assert again == examined  # not more than once a minute


async def test_rights_on_the_state_of_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    viewer, everything = add_key(file, "viewer", "--look=mine*"), add_key(file, "all", "--look=*")
    options = [f"--keys={file}"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        for queue in ("mine", "secret"):
            (suite.root / "queues" / queue).mkdir()
        with Wire(suite.url) as wire:
            assert wire.ask("GET", "/_cluster").status == 401
            assert wire.ask("GET", "/_cluster", bearer(viewer)).status == 200
            assert wire.ask("GET", "/_cluster?health=true", bearer(viewer)).status == 403
            answer = wire.ask("GET", "/_cluster?health=true", bearer(everything))
        found = {one["name"]: one["health"] for one in answer.json["health"]["findings"]}
        assert (found["mover"], found["mq"]) == ("error", "ok")
