"""Groups over HTTP: senders and workers at three processes on two hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq import AsyncClient, Client, ClientQueue
from fsmq.spool import Claimed, FsmqError, NewMessage, Spool
from fsmq.spool.durability.send_lines import lock_sends
from tests.harness.suite import Suite
from tests.http.helpers import Wire

QUEUE = "orders"
GROUPS = "abcdefgh"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Suite]]:
    """Two processes on a host where file events arrive, and one on a host that lists folders."""
    folder: Path = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        suites = [
            stack.enter_context(
                Suite(
                    folder / "mq",
                    mq_options=[f"--node={node}", f"--watch={watch}", "--poll-interval=0.02"],
                    mover=node == "one",
                    reaper=node == "one",
                    logs=folder / f"{node}-logs",
                )
            )
            for node, watch in (("one", "events"), ("one-b", "events"), ("two", "poll"))
        ]
        with Wire(suites[0].url) as wire:
            assert wire.ask("PUT", f"/{QUEUE}?fifo=true").status == 201
        yield suites


class Held(NamedTuple):
    """A claim as its holder saw it. until: when the holder ended it."""

    sequence: int
    since: float
    until: float
    acked: bool


class Story:
    """The actions of senders and workers. left: messages that are not acknowledged yet."""

    def __init__(self, each: int, senders: int) -> None:
        self.each = each
        self.sent: dict[str, dict[int, str]] = {group: {} for group in GROUPS}
        self.held: dict[str, list[Held]] = defaultdict(list)
        self.left = {
            json.dumps([group, sender, number])
            for group in GROUPS
            for sender in range(senders)
            for number in range(each)
        }
        self.done = threading.Event()
        self._dice = random.Random(7)
        self._lock = threading.Lock()

    def send(self, suite: Suite, sender: int) -> None:
        with Client(suite.url) as client:
            for number in range(self.each):
                for group in GROUPS:
                    body = json.dumps([group, sender, number])
                    message_id = client.queue(QUEUE).put(body, group=group)
                    with self._lock:
                        self.sent[group][sequence_of(message_id)] = body

    def work(self, suite: Suite) -> None:
        with Client(suite.url) as client:
            while not self.done.is_set():
                for message in client.queue(QUEUE).claim(self._dice.randint(1, 4), wait=1.0):
                    self._settle(message, time.monotonic())

    def _settle(self, message: Claimed, since: float) -> None:
        assert message.group is not None
        assert message.sequence is not None
        acks, until = self._dice.random() > 0.05, time.monotonic()
        with self._lock:
            self.held[message.group].append(Held(message.sequence, since, until, acks))
        if acks:
            message.ack()
            with self._lock:
                self.left.discard(message.body.decode())
                if not self.left:
                    self.done.set()
        else:
            message.release()


def test_order_over_three_processes(hosts: list[Suite]) -> None:
    """Workers acknowledge and release; each group is processed in order, by one at a time."""
    senders = 2 * len(hosts)
    story = Story(6, senders)
    threads = [
        *(threading.Thread(target=story.send, args=(hosts[n % 3], n)) for n in range(senders)),
        *(threading.Thread(target=story.work, args=(hosts[n % 3],)) for n in range(6)),
    ]
    for thread in threads:
        thread.start()
    is_done = story.done.wait(120)
    story.done.set()
    for thread in threads:
        thread.join()
    assert is_done, sorted(story.left)[:5]
    for group in GROUPS:
        check(story.held[group], story.sent[group])


def check(held: list[Held], sent: dict[int, str]) -> None:
    """No message is lost or done twice; groups are in order, one message at a time."""
    acked = [one.sequence for one in sorted(held, key=lambda one: one.since) if one.acked]
    assert acked == sorted(sent)
    order = sorted(held, key=lambda one: one.since)
    for before, after in pairwise(order):
        assert before.until <= after.since
        assert before.sequence <= after.sequence
    # Each sender's messages are in the order in which it sent them.
    last: dict[int, int] = defaultdict(lambda: -1)
    for sequence in acked:
        _, sender, number = json.loads(sent[sequence])
        assert number == last[sender] + 1
        last[sender] = number


def sequence_of(message_id: str) -> int:
    return int(message_id[:8] + message_id[9:13] + message_id[15:18], 16)


def test_an_ack_wakes_a_waiter_on_another_process(hosts: list[Suite]) -> None:
    with Client(hosts[0].url) as client, Client(hosts[1].url) as other:
        client.create_queue("calls", fifo=True)
        queue = client.queue("calls")
        for number in range(2):
            queue.put(str(number), group="g")
        [message] = queue.claim(wait=30)
        found: list[bytes] = []

        def wait() -> None:
            found.extend(m.body for m in other.queue("calls").claim(wait=60))

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.5)
        assert not found
        message.ack()
        waiting.join()
        assert found == [b"1"]


def test_a_waiter_gets_the_message_behind_many_expired_ones(hosts: list[Suite]) -> None:
    with Wire(hosts[0].url) as wire:
        assert wire.ask("PUT", "/expired?fifo=true").status == 201
        for _ in range(3):
            old = [{"body": "old", "group": "one", "ttl": 1}] * 100
            assert wire.ask("POST", "/expired/batch", body=json.dumps(old).encode()).status == 201
        assert wire.ask("POST", "/expired/messages?group=one", body=b"alive").status == 201
        time.sleep(2.2)  # the expiry is in whole seconds
        started = time.monotonic()
        assert wire.ask("GET", "/expired/messages?wait=20").body == b"alive"
        assert time.monotonic() - started < 20


def test_a_message_without_a_group_is_refused(hosts: list[Suite]) -> None:
    with Wire(hosts[0].url) as wire:
        many = [{"body": "1", "group": "z"}, {"body": "2"}]
        answer = wire.ask("POST", f"/{QUEUE}/batch", body=json.dumps(many).encode())
        assert (answer.status, answer.json["field"], answer.json["index"]) == (400, "group", 1)
        assert wire.ask("POST", f"/{QUEUE}/messages", body=b"x").status == 400
        assert wire.ask("POST", f"/{QUEUE}/messages?group=%F0%9F%90%A2", body=b"x").status == 201
        answer = wire.ask("GET", f"/{QUEUE}/messages?count=1&wait=5")
        [message] = answer.json["messages"]
        assert message["group"] == "\N{TURTLE}"


def test_a_deduplication_id_stores_one_message_by_any_interface(hosts: list[Suite]) -> None:
    """Concurrent puts of all kinds at all processes: one message, and all get its id."""

    def posted(wire: Wire, query: str, headers: dict[str, str]) -> str:
        answer = wire.ask("POST", f"/once/messages?group=g{query}", body=b"x", headers=headers)
        assert answer.status == 201
        return str(answer.json["id"])

    def batch(wire: Wire) -> str:
        many = [{"body": "x", "group": "g", "dedup_id": "1"}] * 2
        answer = wire.ask("POST", "/once/batch", body=json.dumps(many).encode())
        [one] = set(answer.json["ids"])
        return str(one)

    def put(client: Client) -> str:
        return client.queue("once").put_json("x", group="g", dedup_id="1")

    async def put_async(url: str) -> str:
        async with AsyncClient(url) as client:
            queue = client.queue("once")
            return await queue.put_json("x", group="g", dedup_id="1")

    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(suite.url)) for suite in hosts]
        clients = [stack.enter_context(Client(suite.url)) for suite in hosts]
        pool = stack.enter_context(ThreadPoolExecutor(9))
        clients[0].create_queue("once", fifo=True)
        tries = [
            *(pool.submit(posted, wires[n], "&dedup_id=1", {}) for n in (0, 1)),
            pool.submit(posted, wires[2], "", {"Idempotency-Key": '"1"'}),
            *(pool.submit(put, client) for client in clients),
            pool.submit(asyncio.run, put_async(hosts[1].url)),
        ]
        ids = {one.result() for one in tries}
        ids |= {batch(wires[1])}
        assert len(ids) == 1
        [message] = clients[2].queue("once").claim(9, wait=30)
        assert ({message.id}, message.dedup_id) == (ids, "1")
        message.ack()
        assert {put(client) for client in clients} == ids
        answer = wires[0].ask("POST", "/jobs-of-all/messages?dedup_id=1", body=b"x")
        assert answer.status == 404
        clients[0].create_queue("jobs-of-all")
        answer = wires[0].ask("POST", "/jobs-of-all/messages?dedup_id=1", body=b"x")
        assert (answer.status, answer.json["field"]) == (400, "dedup_id")


def test_a_stopped_sender_delays_puts_into_its_queue_only(hosts: list[Suite]) -> None:
    """Puts of all kinds into its queue wait and keep their order; other queues are not affected."""
    with Client(hosts[0].url) as client, Spool(hosts[0].root, delivers=False) as stopped:
        for name in ("held", "free"):
            client.create_queue(name, fifo=True)
        client.create_topic("both")
        for name in ("held", "free"):
            client.topic("both").subscribe(name)
        client.create_queue("plain")
        queue = client.queue("held")
        assert queue.put("0", group="g", dedup_id="0")
        held = lock_sends(stopped.tree, "held")
        assert held is not None
        with ThreadPoolExecutor(8) as pool:
            try:
                waiting = [
                    pool.submit(client.topic("both").publish, "published", group="g"),
                    *(pool.submit(queue.put, str(n), group="g") for n in range(3)),
                    pool.submit(queue.put, "again", group="g", dedup_id="0"),
                    pool.submit(queue.put_many, [NewMessage(b"m", group="g")] * 300),
                ]
                client.queue("plain").put("x")
                assert client.queue("free").put("1", group="g")
                assert not any(one.done() for one in waiting)
            finally:
                held.unlock()
            told = [one.result(30) for one in waiting]
        assert queue.counts().ready == 1 + 1 + 3 + 300
        [first] = queue.claim()
        assert first.id == told[4]
        assert sorted([told[0]["held"], *told[1:4], *told[5]]) == [
            one.id for one in queue.peek(1000)
        ]


class Kills:
    """Senders that retry each message while servers are killed."""

    def __init__(self, each: int, senders: int, groups: str, anywhere: str) -> None:
        self.each, self.groups, self.anywhere = each, groups, anywhere
        self.sent: dict[str, set[str]] = defaultdict(set)  # ids by what was sent
        # Times of claims are those of the server: this process can be delayed.
        self.claimed: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
        self.left = {
            f"{group} {sender} {number}"
            for group in groups
            for sender in range(senders)
            for number in range(each)
        }
        self.all = set(self.left)
        self.progress = threading.Condition()

    def send(self, suite: Suite, sender: int) -> None:
        with Client(suite.url) as client:
            queue = client.queue("killed")
            for number in range(self.each):
                for group in self.groups:
                    text = f"{group} {sender} {number}"
                    for _ in range(2):  # the second finds what the first has stored
                        self._until_answered(queue, text, group)

    def _until_answered(self, queue: ClientQueue, text: str, group: str) -> None:
        while True:
            try:
                message_id = queue.put(text, group=group, dedup_id=text)
            except (FsmqError, OSError):
                continue
            with self.progress:
                self.sent[text].add(message_id)
            return

    def work(self, suite: Suite) -> None:
        with Client(suite.url) as client:
            queue = client.queue("killed")
            while self.left:
                try:
                    for message in queue.claim(3, visibility=4.0, wait=1.0):
                        self._take(message)
                except (FsmqError, OSError):
                    continue

    def _take(self, message: Claimed) -> None:
        text = message.body.decode()
        assert message.sequence is not None
        assert message.deadline is not None
        with self.progress:
            self.claimed[text[0]].append((message.deadline, message.sequence, text))
        if not self._is_acked(message):
            return
        with self.progress:
            self.left.discard(text)
            self.progress.notify_all()

    def _is_acked(self, message: Claimed) -> bool:
        """Whether an acknowledgement was carried out, answered or not."""
        with contextlib.suppress(FsmqError, OSError):
            if message.ack():
                return True
        while True:
            try:
                with Client(self.anywhere) as client:
                    return client.queue("killed").find(message.id) is None
            except (FsmqError, OSError):
                continue

    def wait(self, left: int) -> None:
        """Wait until only so many are left."""
        with self.progress:
            assert self.progress.wait_for(lambda: len(self.left) <= left, 200), sorted(self.left)


def test_kills_lose_nothing_and_store_nothing_twice(hosts: list[Suite]) -> None:
    """Each process is killed once during puts and claims."""
    with Client(hosts[0].url) as client:
        client.create_queue("killed", fifo=True)
    story = Kills(6, 2 * len(hosts), "abcd", hosts[0].url)
    threads = [
        *(threading.Thread(target=story.send, args=(hosts[n % 3], n)) for n in range(6)),
        *(threading.Thread(target=story.work, args=(hosts[n % 3],)) for n in range(3)),
    ]
    for thread in threads:
        thread.start()
    total = len(story.all)
    for number, suite in enumerate(hosts, 1):
        story.wait(total - number * total // 5)
        suite.kill("mq")
        suite.restart("mq")
    story.wait(0)
    for thread in threads:
        thread.join()
    assert story.sent.keys() == story.all
    assert {text: len(ids) for text, ids in story.sent.items() if len(ids) > 1} == {}
    for group, claimed in story.claimed.items():
        places = [sequence for _, sequence, _ in sorted(claimed)]
        assert places == sorted(places)
        of_text = {text: sequence for _, sequence, text in claimed}
        assert len(of_text) == len(set(places)) == total // len(story.claimed)
        for sender in range(6):
            order = [of_text[f"{group} {sender} {number}"] for number in range(6)]
            assert order == sorted(order)
    with Client(hosts[0].url) as client:
        assert client.queue("killed").counts().total == 0
