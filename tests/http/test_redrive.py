"""Redrives and moves over HTTP: rights, rates, lists, stops and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from fsmq import Client, InvalidValue
from fsmq.client.errors import AccessDenied
from fsmq.http.service.move_thread import MOST_OF_A_KEY
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, ask, leads_to
from tests.http.keyfile import add_key, bearer


def bury(client: Client, queue: str, count: int, dead: str = "dead") -> list[str]:
    """Put messages and bury them; the ids."""
    jobs = client.queue(queue, create=True)
    jobs.configure(max_deliveries=9, dead_letter_queue=dead)
    ids = jobs.put_many([b"%d" % number for number in range(count)])
    left = count
    while left:
        for message in jobs.claim(left, wait=20):
            message.bury("no")
            left -= 1
    return ids


@pytest.fixture
def client(suite: Suite) -> Any:
    with Client(suite.url) as opened:
        yield opened


async def test_a_redrive_in_the_background(client: Client, suite: Suite, queue: str) -> None:
    dead = f"{queue}.dead"
    bury(client, queue, 3, dead)
    async with ClientSession(suite.url) as session:
        answer = await ask(session, "POST", f"/{dead}/redrive")
        assert answer.status == 202
        where = leads_to(f"/{dead}/redrive", answer)
        assert where == f"/_moves/{answer.json['move']}"
        found = client.find_move(answer.json["move"])
        assert found is not None
        eventually(lambda: client.moves()[0].status == "complete")
        shown = (await ask(session, "GET", where)).json
    assert shown == {
        "move": answer.json["move"],
        "from": dead,
        "to": None,
        "redrive": True,
        "in_flight": False,
        "rate": None,
        "status": "complete",
        "total": 3,
        "moved": 3,
        "conflicts": 0,
        "no_origin": 0,
        "error": None,
    }
    assert [m.deliveries for m in client.queue(queue).peek()] == [0, 0, 0]


async def test_a_redrive_of_some_ids(client: Client, suite: Suite, queue: str) -> None:
    dead = f"{queue}.dead"
    ids = bury(client, queue, 3, dead)
    async with ClientSession(suite.url) as session:
        body = b'{"ids": ["%s", "none"]}' % ids[1].encode()
        answer = await ask(session, "POST", f"/{dead}/redrive", data=body)
        assert (answer.status, answer.json) == (200, {"moved": 1, "conflicts": 0, "no_origin": 0})
        for query, said in {
            "rate=much": "rate: must be from 0.01 to 1000000",
            "to=none": "there is no queue named 'none'",
            f"to={dead}": "to: is the same queue",
            "to=_": "to: '_' is not a queue name",
        }.items():
            answer = await ask(session, "POST", f"/{dead}/redrive?{query}", data=body)
            assert answer.status in (400, 404)
            assert said in answer.json["detail"]
    assert [m.id for m in client.queue(queue).peek()] == [ids[1]]
    assert client.queue(dead).redrive(only=[ids[0]]) == (1, 0, 0)
    order = client.begin_redrive(dead, only=[ids[2], "none"])
    eventually(lambda: client.queue(dead).peek() == [])
    eventually(lambda: getattr(client.find_move(order.ref), "status", "") == "complete")
    with pytest.raises(InvalidValue, match="1 to 1000"):
        client.begin_redrive(dead, only=[str(number) for number in range(1001)])


async def test_a_slow_redrive_is_listed_and_stopped(
    client: Client, suite: Suite, queue: str
) -> None:
    dead = f"{queue}.dead"
    bury(client, queue, 3, dead)
    order = client.begin_redrive(dead, rate=0.01)
    eventually(lambda: client.queue(queue).peek() != [])
    assert client.moves()[0].ref == order.ref
    assert (client.moves()[0].rate, client.moves()[0].status) == (0.01, "in_progress")
    stopped = client.stop_move(order.ref)
    assert stopped is not None
    assert (stopped.status, stopped.moved, stopped.total) == ("stopped", 1, 3)
    assert client.stop_move(order.ref) == stopped
    assert client.stop_move("none") is None
    assert client.find_move("none") is None
    slow = client.queue(dead).move_to(queue, rate=50)
    assert slow.moved == 2


@pytest.mark.parametrize("chosen", [None, 20])
def test_a_redrive_continues_after_a_kill(tmp_path: Path, chosen: int | None) -> None:
    with Suite(tmp_path / "mq", reaper=False) as suite, Client(suite.url, retry_for=60) as client:
        ids = bury(client, "jobs", 30)
        only = None if chosen is None else ids[-chosen:]
        order = client.begin_redrive("dead", rate=20, only=only)
        jobs, dead = (suite.root / "queues" / name for name in ("jobs", "dead"))
        eventually(lambda: len(list(jobs.iterdir())) >= 5)
        suite.kill("mq")
        assert len(list(jobs.iterdir())) + len(list(dead.iterdir())) == 30
        assert list(dead.iterdir())
        suite.restart("mq")

        def is_done() -> bool:
            found = client.find_move(order.ref)
            return found is not None and found.status == "complete"

        eventually(is_done)
        assert {path.name for path in jobs.iterdir()} == set(only or ids)
        assert {path.name for path in dead.iterdir()} == set(ids) - set(only or ids)


async def test_a_redrive_needs_the_right_to_send_to_the_target(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    every = add_key(file, "every", "--send", "*", "--receive", "*", "--admin", "*")
    some = add_key(file, "some", "--send", "jobs", "--receive", "dead")
    none = add_key(file, "none", "--send", "x", "--receive", "x")
    taker = add_key(file, "taker", "--receive", "dead")
    with (
        Suite(tmp_path / "mq", mq_options=["--keys", str(file)]) as suite,
        Client(suite.url, key=every) as admin,
        Client(suite.url, key=some) as user,
        Client(suite.url, key=none) as other,
        Client(suite.url, key=taker) as idle,
    ):
        ids, hidden = bury(admin, "jobs", 5), bury(admin, "secret", 2)
        with pytest.raises(AccessDenied, match="send on 'secret'"):
            user.queue("dead").redrive(to="secret")
        for only in (None, ids[:1]):
            with pytest.raises(AccessDenied, match="send on the queues from which"):
                idle.queue("dead").redrive(only=only)
        # Each returns to its source, except for sources that are not the key's.
        assert user.queue("dead").redrive(to="jobs", only=ids[:1]) == (1, 0, 0)
        assert user.queue("dead").redrive(only=[ids[1], hidden[0]]) == (1, 0, 1)
        assert user.queue("dead").redrive(only=[ids[2], hidden[0]], rate=1000) == (1, 0, 1)
        assert user.queue("dead").redrive() == (2, 0, 2)
        assert {one.id for one in admin.queue("dead").peek()} == set(hidden)
        bury(admin, "jobs", 2)
        order = user.begin_redrive("dead", to="jobs", rate=0.01)
        assert user.moves()[0].ref == order.ref
        assert other.moves() == []
        assert other.find_move(order.ref) is None
        assert other.stop_move(order.ref) is None
        stopped = user.stop_move(order.ref)
        assert stopped is not None
        assert stopped.status == "stopped"
        # A move has the rights of the key that ordered it.
        assert {one.id for one in admin.queue("dead").peek()} >= set(hidden)
        assert admin.queue("dead").redrive()[1:] == (0, 0)
        eventually(lambda: {one.id for one in admin.queue("secret").peek()} == set(hidden))


async def test_a_key_may_have_only_some_moves_in_progress(tmp_path: Path) -> None:
    """Otherwise it could use up descriptors, memory, and the time for moves of others."""
    file = tmp_path / "keys"
    keys = {
        "a": add_key(file, "a", "--send", "a-*", "--receive", "a-*"),
        "b": add_key(file, "b", "--send", "b-*", "--receive", "b-*"),
    }
    options = ["--keys", str(file)]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        for queue in ("a-from", "a-to", "b-from", "b-to"):
            (suite.root / "queues" / queue).mkdir()
            for number in range(3 * MOST_OF_A_KEY):  # each slow move takes one at once
                (suite.root / "queues" / queue / f"{queue}.{number}").write_bytes(b"x")
        async with ClientSession(suite.url) as session:

            async def asked(method: str, path: str, key: str) -> Answer:
                sent = {**bearer(keys[key]), "X-BV-API-Key": keys[key]}
                return await ask(session, method, path, headers=sent)

            async def begin(path: str, key: str = "a") -> Answer:
                return await asked("POST", path, key)

            slow = "/a-from/move?to=a-to&rate=0.01"
            begun = [await begin(slow) for _ in range(MOST_OF_A_KEY)]
            assert {one.status for one in begun} == {202}
            for path in (slow, "/a-from/redrive?to=a-to", "/queue/1/_move?from=a-from&to=a-to"):
                refused = await begin(path)
                assert refused.status == 429, path
                assert refused.headers["Retry-After"]
            done = await begin("/b-from/move?to=b-to", "b")
            assert done.status == 202
            target = suite.root / "queues" / "b-to"
            eventually(lambda: len(list(target.iterdir())) == 6 * MOST_OF_A_KEY)
            where = f"/_moves/{begun[0].json['move']}"
            await asked("DELETE", where, "a")
            eventually(lambda: not (suite.root / f"{where[2:]}.json").exists())
            assert (await begin(slow)).status == 202
            assert (await begin(slow)).status == 429
