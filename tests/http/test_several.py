"""Claims from several queues over HTTP: answers, waits, keys, processes and hang-ups."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from fsmq import AsyncClient, Client, NoSuchQueue
from fsmq.spool.layout.steps import FEW
from tests.harness.suite import Suite, eventually
from tests.http.helpers import ARRIVAL_S, Answer, Wire, ask, configure, counts, post, until_ready
from tests.http.keyfile import add_key, bearer

# The minimum time of a wait that times out.
SHORT_S = 0.3


@pytest.fixture
async def two(suite: Suite, queue: str) -> tuple[str, str]:
    """Two queues for the test."""
    names = (f"{queue}.a", f"{queue}.b")
    for name in names:
        (suite.root / "queues" / name).mkdir()
    return names


async def claim(
    client: ClientSession, *queues: str, headers: dict[str, str] | None = None, **more: Any
) -> Answer:
    query = "&".join(f"{name}={value}" for name, value in more.items())
    path = f"/_claim?queues={','.join(queues)}&{query}".rstrip("&")
    return await ask(client, "GET", path, headers=headers or {})


async def posted(client: ClientSession, queue: str, number: int) -> None:
    """Post messages, and wait until all can be claimed."""
    before = (await counts(client, queue))["ready"]
    for n in range(number):
        await post(client, queue, b"%d" % n)
    await until_ready(client, queue, before + number)


# -- forms -----------------------------------------------------------------------------------------


async def test_a_claimed_message_names_its_queue(
    client: ClientSession, two: tuple[str, str]
) -> None:
    await post(client, two[1], b"x")
    answer = await claim(client, *two, wait=ARRIVAL_S, visibility=100)
    assert (answer.status, answer.body) == (200, b"x")
    assert answer.headers["X-Message-Queue"] == two[1]
    path = f"/{two[1]}/messages/{answer.id}"
    claimed = {"X-Message-Claim": answer.headers["X-Message-Claim"]}
    assert (await ask(client, "PATCH", f"{path}?visibility=9", headers=claimed)).status == 204
    assert (await ask(client, "DELETE", path, headers=claimed)).status == 202
    assert (await claim(client, *two)).status == 204


async def test_json_names_the_queue_of_each_message(
    client: ClientSession, two: tuple[str, str]
) -> None:
    for name in two:
        await posted(client, name, 2)
    found = (await claim(client, *two, count=10)).json["messages"]
    assert [m["queue"] for m in found] == [two[0]] * 2 + [two[1]] * 2
    await post(client, two[1], b"x")
    accept = {"Accept": "application/json"}
    [one] = (await claim(client, *two, wait=ARRIVAL_S, headers=accept)).json["messages"]
    assert (one["queue"], one["body"]) == (two[1], "x")


async def test_events_name_the_queue_of_each_message(
    client: ClientSession, two: tuple[str, str]
) -> None:
    large = b"x" * 200_000
    await post(client, two[0], b"x")
    await post(client, two[1], large)
    accept = {"Accept": "application/cloudevents-batch+json"}
    found: list[Any] = []
    while len(found) < 2:
        answer = await claim(client, *two, count=9, wait=ARRIVAL_S, headers=accept)
        found += answer.json
    assert sorted(event["fsmqqueue"] for event in found) == sorted(two)
    plain = await ask(client, "GET", f"/{two[0]}/messages", headers=accept)
    assert plain.status == 204


async def test_large_bodies_come_whole(client: ClientSession, two: tuple[str, str]) -> None:
    large = b"y" * 3_000_000
    for name in two:
        await post(client, name, large)
    bodies = []
    while len(bodies) < 2:
        answer = await claim(client, *two, count=9, wait=ARRIVAL_S)
        bodies += [(m["queue"], m["body"]) for m in answer.json["messages"]]
    assert sorted(bodies) == sorted((name, large.decode()) for name in two)
    await post(client, two[1], large)
    answer = await claim(client, *two, wait=ARRIVAL_S)
    assert (answer.headers["X-Message-Queue"], answer.body) == (two[1], large)


@pytest.mark.parametrize(
    ("query", "because"),
    [
        ("", "queues"),
        ("queues=", "'' is not a queue name"),
        ("queues=a,a", "names 'a' twice"),
        ("queues=a:0", "a weight is a whole number from 1 to 1000"),
        ("queues=" + ",".join(f"q{n}" for n in range(101)), "101 parts; expected 1 to 100"),
        ("queues=topics/*", "is no pattern"),
        ("queues=a&count=0", "count"),
        ("queues=a&wait=21", "wait"),
        ("queues=a&visibility=-1", "visibility"),
        ("queues=a&queue=b", "unknown parameter"),
    ],
)
async def test_refused_queries(client: ClientSession, query: str, because: str) -> None:
    refused = await ask(client, "GET", f"/_claim?{query}")
    assert refused.status == 400
    assert because in refused.json["detail"]


async def test_too_many_queues_are_refused(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq") as suite:
        for n in range(1001):
            (suite.root / "queues" / f"t-{n}").mkdir()
        async with ClientSession(suite.url) as client:
            refused = await claim(client, "t-*")
            assert (refused.status, refused.json["field"]) == (400, "queues")
            assert "stands for 1001 queues; at most 1000 in one claim" in refused.json["detail"]
            assert (await ask(client, "DELETE", "/t-0")).status == 200
            await post(client, "t-999", b"x")
            answer = await claim(client, "t-*", wait=ARRIVAL_S)
            assert answer.headers["X-Message-Queue"] == "t-999"


# -- order and weights -----------------------------------------------------------------------------


async def test_order_weights_and_patterns(client: ClientSession, queue: str) -> None:
    names = [f"{queue}.{name}" for name in ("high", "low", "t1", "t2")]
    for name in names:
        await ask(client, "PUT", f"/{name}")
        await posted(client, name, 30)

    async def got(queues: str, number: int, count: int = 1) -> Counter[str]:
        found: Counter[str] = Counter()
        for _ in range(number):
            answer = await claim(client, queues, count=count)
            found.update(m["queue"].rpartition(".")[2] for m in answer.json["messages"])
        return found

    assert await got(f"{queue}.high,{queue}.low", 3) == {"high": 3}
    assert await got(f"{queue}.high:3,{queue}.low", 16) == {"high": 12, "low": 4}
    assert await got(f"{queue}.t?", 10) == {"t1": 5, "t2": 5}
    assert await got(f"{queue}.low:2,{queue}.t*:1", 3, 6) == {"low": 12, "t1": 3, "t2": 3}
    # high has less than its share left, and the others give the rest.
    assert await got(f"{queue}.high:99,{queue}.low:1", 1, 20) == {"high": 15, "low": 5}


async def test_a_claim_waits_for_a_message_that_was_just_posted(
    client: ClientSession, two: tuple[str, str]
) -> None:
    """A stored message is found after its answer, as in a claim from one queue.

    Unless the mover is very late on a busy machine.
    """
    await posted(client, two[1], 20)
    found = []
    for _ in range(20):
        await post(client, two[0], b"first")
        answer = await claim(client, *two)
        found.append(answer.headers["X-Message-Queue"] == two[0])
    assert sum(found) > 10


async def test_pauses_limits_and_groups(client: ClientSession, queue: str) -> None:
    names = [f"{queue}.{name}" for name in ("paused", "limited", "fifo", "open")]
    for name in names:
        await ask(client, "PUT", f"/{name}{'?fifo=true' if name.endswith('fifo') else ''}")
    for name in names:
        for n in range(4):
            group = {"group": "one"} if name.endswith("fifo") else {}
            await post(client, name, b"%d" % n, **group)
        await until_ready(client, name, 4)
    await configure(client, names[0], paused=True)
    await configure(client, names[1], max_in_flight=2)

    async def got(**more: Any) -> list[str]:
        answer = await claim(client, *names, count=20, **more)
        messages = answer.json["messages"] if answer.status == 200 else []
        return [m["queue"].rpartition(".")[2] for m in messages]

    assert await got() == ["limited"] * 2 + ["fifo"] + ["open"] * 4
    assert await got() == []
    waiting = asyncio.create_task(got(wait=ARRIVAL_S))
    await asyncio.sleep(0)
    await configure(client, names[0], paused=None)
    assert await waiting == ["paused"] * 4


async def test_a_queue_without_counts_behind_many_messages_is_claimed_from(
    client: ClientSession, queue: str
) -> None:
    """Behind so many others it is reached in a thread that cannot list folders."""
    plain, fifo = f"{queue}.plain", f"{queue}.fifo"
    await ask(client, "PUT", f"/{plain}")
    await ask(client, "PUT", f"/{fifo}?fifo=true")
    await posted(client, plain, FEW + 1)
    await post(client, fifo, b"behind", group="one")
    await until_ready(client, fifo, 1)
    answer = await claim(client, plain, fifo, count=2 * FEW)
    assert answer.status == 200, answer.json
    assert [m["queue"] for m in answer.json["messages"]] == [plain] * (FEW + 1) + [fifo]


# -- missing queues --------------------------------------------------------------------------------


async def test_a_named_queue_has_to_exist_and_a_pattern_can_match_none(
    client: ClientSession, queue: str
) -> None:
    missing = await claim(client, queue, f"{queue}.none")
    assert (missing.status, missing.json["queue"]) == (404, f"{queue}.none")
    assert (await claim(client, queue, f"{queue}.none*", wait=SHORT_S)).status == 204


# -- waiting ---------------------------------------------------------------------------------------


async def test_a_wait_ends_in_time(client: ClientSession, two: tuple[str, str]) -> None:
    began = time.monotonic()
    assert (await claim(client, *two, f"{two[0]}-*", wait=SHORT_S)).status == 204
    assert SHORT_S <= time.monotonic() - began < ARRIVAL_S / 2


def test_a_stop_ends_waits(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq") as suite, ExitStack() as stack:
        (suite.root / "queues/a").mkdir()
        wires = [stack.enter_context(Wire(suite.url)) for _ in range(3)]
        for wire, queues in zip(wires, ("a,none-*", "none-*", "a"), strict=True):
            wire.request("GET", f"/_claim?queues={queues}&wait=20")
        eventually(lambda: all(wire.is_read() for wire in wires))
        assert suite.terminate("mq") == 0
        assert [wire.answer().status for wire in wires] == [204] * 3


# -- processes and hosts ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Suite]]:
    """One spool: a host with two processes of mq, and one without file events."""
    root = tmp_path_factory.mktemp("hosts") / "mq"
    with ExitStack() as stack:
        one = stack.enter_context(Suite(root, mq_options=["--node=one", "--processes=2"]))
        options = ["--node=two", "--watch=poll", "--poll-interval=0.05"]
        logs = root.parent / "logs-two"
        two = Suite(root, mq_options=options, mover=False, reaper=False, logs=logs)
        yield one, stack.enter_context(two)


async def test_processes_claim_each_message_once(hosts: tuple[Suite, Suite]) -> None:
    number = 300
    async with AsyncClient(hosts[0].url) as one, AsyncClient(hosts[1].url) as two:
        for name in ("s.a", "s.b", "s.c"):
            queue = await one.queue(name, create=True)
            await queue.put_many([b"%d" % n for n in range(number)])
        got: list[tuple[str, str]] = []
        every = 3 * number

        async def consume(place: AsyncClient, queues: str, size: int) -> None:
            selection = place.select(queues)
            while len(got) < every:
                messages = await selection.claim(size, wait=0.5)
                got.extend((m.queue, m.id) for m in messages)
                await asyncio.gather(*(m.ack() for m in messages))

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(
                    consume(place, queues, size)
                    for place in (one, two)
                    for queues in ("s.a:2,s.b,s.c", "s.*")
                    for size in (1, 7)
                )
            )
        assert len(set(got)) == every
        for name in ("s.a", "s.b", "s.c"):
            assert (await one.queue(name).counts()).total == 0


@pytest.mark.parametrize("queues", ["w.a,w.b", "w.*"])
async def test_a_waiter_on_any_host_is_woken(hosts: tuple[Suite, Suite], queues: str) -> None:
    async with AsyncClient(hosts[0].url) as one, AsyncClient(hosts[1].url) as two:
        for name in ("w.a", "w.b"):
            await one.create_queue(name)
        for place in (one, two, one, two):
            waiting = asyncio.create_task(place.select(queues).claim(wait=ARRIVAL_S))
            await one.queue("w.b").put(b"x")
            [message] = await waiting
            assert message.queue == "w.b"
            await message.ack()


async def test_a_new_queue_is_found_without_events(hosts: tuple[Suite, Suite]) -> None:
    async with AsyncClient(hosts[0].url) as one, AsyncClient(hosts[1].url) as two:
        for number, place in enumerate((two, one, two)):
            waiting = asyncio.create_task(place.select(f"new{number}.*").claim(wait=ARRIVAL_S))
            queue = await one.queue(f"new{number}.a", create=True)
            await queue.put(b"x")
            async with asyncio.timeout(ARRIVAL_S / 2):
                [message] = await waiting
            assert message.queue == f"new{number}.a"


async def test_limits_hold_without_events(hosts: tuple[Suite, Suite]) -> None:
    async with AsyncClient(hosts[0].url) as one, AsyncClient(hosts[1].url) as two:
        for name in ("l.open", "l.limited"):
            queue = await one.queue(name, create=True)
            await queue.put_many([b"x"] * 40)
        await one.queue("l.limited").configure(max_in_flight=6)
        got: Counter[str] = Counter()
        for place in (two, one, two, two):
            got.update(m.queue for m in await place.select("l.open:1,l.limited:1").claim(4, wait=9))
        assert got == {"l.open": 10, "l.limited": 6}


async def test_a_kill_while_many_wait_leaves_nothing_claimed(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", mq_options=["--processes=2"]) as suite:
        async with AsyncClient(suite.url) as client:
            for name in ("a", "b"):
                await client.create_queue(name)
            waiting = [
                asyncio.create_task(client.select("a:2,b,t-*").claim(wait=ARRIVAL_S))
                for _ in range(20)
            ]
            assert (await client.queue("a").counts()).total == 0  # they have been sent before
            await asyncio.to_thread(suite["mq"].signal, signal.SIGKILL)
            await asyncio.to_thread(suite.restart, "mq")
            await client.queue("a").put_many([b"x"] * 10)
            await client.queue("b").put_many([b"x"] * 10)
            async with asyncio.timeout(60):  # the clients ask again
                found = [message for one in waiting for message in await one]
            assert len({(m.queue, m.id) for m in found}) == 20
            assert {m.deliveries for m in found} == {1}


# -- keys ------------------------------------------------------------------------------------------


class Guarded:
    """A suite with keys of two tenants."""

    def __init__(self, suite: Suite, keys: dict[str, str]) -> None:
        self.suite, self.keys = suite, keys


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.toml"
    keys = {
        "one": add_key(file, "one", "--receive=one-*", "--send=*"),
        "two": add_key(file, "two", "--receive=two-*", "--look=one-*"),
        "admin": add_key(file, "admin", "--admin=*", "--receive=*", "--send=*"),
    }
    with Suite(folder / "mq", mq_options=[f"--keys={file}"]) as suite:
        with Client(suite.url, key=keys["admin"]) as client:
            for name in ("one-a", "one-b", "two-a", "other"):
                client.create_queue(name)
        yield Guarded(suite, keys)


@pytest.fixture
async def tenant(guarded: Guarded) -> AsyncIterator[ClientSession]:
    async with ClientSession(guarded.suite.url) as session:
        yield session


async def test_a_pattern_matches_only_queues_of_the_key(
    guarded: Guarded, tenant: ClientSession
) -> None:
    admin = AsyncClient(guarded.suite.url, key=guarded.keys["admin"])
    async with admin:
        for name in ("one-a", "one-b", "two-a", "other"):
            await admin.queue(name).purge()
            await admin.queue(name).put(name.encode())
    for key, queues, expected in (
        ("one", "*", ["one-a", "one-b"]),
        ("two", "*:5,two-a:1", ["two-a"]),
        ("two", "one-*", []),
    ):
        found: list[str] = []
        headers = bearer(guarded.keys[key])
        while len(found) < len(expected):
            answer = await claim(tenant, queues, count=9, wait=ARRIVAL_S, headers=headers)
            found += [m["queue"] for m in answer.json["messages"]]
        assert sorted(found) == expected
        assert (await claim(tenant, queues, headers=headers)).status == 204


async def test_a_queue_of_others_is_refused_like_a_missing_one(
    guarded: Guarded, tenant: ClientSession
) -> None:
    headers = bearer(guarded.keys["two"])
    for there, missing in (("other", "others"), ("one-a", "one-z")):
        answers = [await claim(tenant, "two-a", name, headers=headers) for name in (there, missing)]
        bodies = [
            answer.body.replace(name.encode(), b"NAME")
            for answer, name in zip(answers, (there, missing), strict=True)
        ]
        assert [answer.status for answer in answers] == [403, 403]
        assert bodies[0] == bodies[1]
    unknown = await claim(tenant, "two-a", "two-z", headers=headers)
    assert (unknown.status, unknown.json["queue"]) == (404, "two-z")
    assert (await claim(tenant, "two-a")).status == 401


async def test_a_new_queue_of_others_wakes_no_waiter(
    guarded: Guarded, tenant: ClientSession
) -> None:
    headers = bearer(guarded.keys["two"])
    waiting = asyncio.create_task(claim(tenant, "*", wait=ARRIVAL_S, headers=headers))
    async with AsyncClient(guarded.suite.url, key=guarded.keys["admin"]) as admin:
        for name in ("one-new", "two-new"):
            await (await admin.queue(name, create=True)).put(name.encode())
    assert (await waiting).headers["X-Message-Queue"] == "two-new"


# -- clients ---------------------------------------------------------------------------------------


def test_a_client_acknowledges_in_the_queue_of_each_message(
    suite: Suite, two: tuple[str, str]
) -> None:
    with Client(suite.url) as client:
        for name in two:
            client.queue(name).put(name.encode(), id="same")
        selection = client.select(two)
        found = []
        while len(found) < 2:
            found += selection.claim(2, wait=ARRIVAL_S)
        assert sorted(m.queue for m in found) == sorted(two)
        assert [m.ack() for m in found] == [True, True]
        with pytest.raises(NoSuchQueue):
            client.select(f"{two[0]},none").claim()


def test_weights_are_kept_for_each_selection_and_key(suite: Suite, two: tuple[str, str]) -> None:
    with Client(suite.url) as client:
        for name in two:
            client.queue(name).put_many([b"x"] * 12)
        eventually(lambda: sum(client.queue(name).counts().ready for name in two) == 24)
        got: Counter[str] = Counter()
        for _ in range(12):  # a new selection each time: the server keeps the turns
            got.update(m.queue for m in client.select(f"{two[0]}:3,{two[1]}").claim())
        assert got == {two[0]: 9, two[1]: 3}


def test_openapi_names_the_queue_of_a_message(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        document = json.loads(wire.ask("GET", "/_openapi.json").body)
    operation = document["paths"]["/_claim"]["get"]
    assert "X-Message-Queue" in operation["responses"]["200"]["headers"]
    assert operation["parameters"][0]["name"] == "queues"
