"""Two suites on one tree, like two hosts on a shared filesystem: topics, settings, shares."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually
from tests.http.emodb.helpers import SUCCESS, Emo, payloads
from tests.http.helpers import Wire

TOP = 2**63 - 1


class Host:
    """One of the hosts."""

    def __init__(self, root: Path, node: str, logs: Path) -> None:
        mq_options = [f"--node={node}", "--peers=auto"]
        self.suite = Suite(
            root, mq_options=mq_options, mover=[f"--node={node}"], reaper=False, logs=logs
        )
        self.suite.__enter__()
        self.wire = Wire(self.suite.url)

    def close(self) -> None:
        self.wire.close()
        self.suite.close()

    def range(self) -> tuple[int, int]:
        told = self.wire.ask("GET", "/status/partitionrange").json
        return int(told["bottom"]), int(told["top"])

    def members(self) -> list[str]:
        return self.wire.ask("GET", "/status/servers").body.decode().splitlines()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    folder = tmp_path_factory.mktemp("hosts")
    one = Host(folder / "mq", "one", folder / "logs-one")
    other = Host(folder / "mq", "other", folder / "logs-other")
    yield one, other
    one.close()
    other.close()


def test_topics_and_settings_hold_on_both(hosts: tuple[Host, Host]) -> None:
    one, other = (host.wire for host in hosts)
    for n in range(10):
        queue = f"q{n}"
        assert one.ask("PUT", f"/v1/queues/{queue}").status == 201
        one.ask("PUT", "/v1/topics/news")
        subscribed = one.ask("PUT", f"/v1/topics/news/queues/{queue}").json["Queues"]
        published = other.ask("PUT", "/v1/topics/news/message", body=b"x")
        assert sorted(published.json) == subscribed
        one.ask("PATCH", f"/v1/queues/{queue}", body=b'{"visibility_timeout": %d}' % n)
        assert other.ask("GET", f"/v1/queues/{queue}").json["VisibilityTimeout"] == n
    other.ask("DELETE", "/v1/topics/news/queues/q3")
    assert "q3" not in one.ask("PUT", "/v1/topics/news/message", body=b"x").json


async def test_equal_messages_from_both_hosts_are_stored_once_in_a_dedup_queue(
    hosts: tuple[Host, Host],
) -> None:
    """Both send the same JSON at once, single and in overlapping batches; then both poll."""
    one, other = hosts
    async with (
        ClientSession(one.suite.url) as to_one,
        ClientSession(other.suite.url) as to_other,
    ):
        both = [
            Emo(to_one, one.suite, "dedupq", "twice"),
            Emo(to_other, other.suite, "dedupq", "twice"),
        ]
        everything = [f"m{n:02}" for n in range(60)]
        sent = [host.post("send", message) for message in everything for host in both]
        for host in both:
            sent += [host.post("sendbatch", everything[::step]) for step in (1, -1, 3)]
        random.shuffle(sent)
        answers = await asyncio.gather(*sent)
        assert {(answer.status, answer.body) for answer in answers} == {(200, SUCCESS)}
        assert [await host.size() for host in both] == [60, 60]
        got: list[str] = []

        async def drain(host: Emo) -> None:
            while await host.size():
                messages = await host.poll(limit=7)
                got.extend(payloads(messages))
                await host.ack(*messages)

        await asyncio.wait_for(asyncio.gather(*map(drain, both)), 30)
        assert sorted(got) == everything


def test_each_host_has_its_share_and_takes_over_that_of_a_dead_one(
    hosts: tuple[Host, Host],
) -> None:
    one, other = hosts
    half = 2**62
    # Each host checks every 5 s who is alive.
    eventually(lambda: one.range() == (0, half - 1) and other.range() == (half, TOP))
    told = [f"Member: {name} 127.0.0.1" for name in ("one", "other")]
    assert one.members() == other.members() == told
    one.wire.ask("PUT", "/v1/queues/shared")
    assert one.wire.ask("GET", "/v1/queues/shared").json["partitions"] == 2
    one.wire.ask("PATCH", "/v1/queues/shared", body=b'{"min_partitions": 6}')
    for host in hosts:
        assert host.wire.ask("GET", "/v1/queues/shared").json["partitions"] == 6

    # No message is delivered by both.
    total = 60
    for n in range(total):
        assert one.wire.ask("POST", f"/shared/messages?id=m{n}").status == 201
    got: list[str] = []
    while len(got) < total:
        for host in hosts:
            batch = host.wire.ask("GET", "/shared/messages?wait=1&count=7")
            if batch.status == 200:
                got += [message["id"] for message in batch.json["messages"]]
    assert len(set(got)) == len(got) == total

    other.suite.kill("mq")
    peer = one.suite.root / "peers" / "other"
    silent_since = peer.stat().st_mtime - 21
    os.utime(peer, (silent_since, silent_since))
    eventually(lambda: one.range() == (0, TOP))
    assert one.members() == told[:1]
    assert one.wire.ask("GET", "/v1/queues/shared").json["partitions"] == 6


def test_a_host_shows_the_metrics_of_its_own_processes(hosts: tuple[Host, Host]) -> None:
    one = hosts[0]
    # Except for reports that are being replaced.
    names = {path.name.split(":")[0] for path in (one.suite.root / "metrics").glob("[!.]*")}
    assert names == {"one", "other"}
    lines = one.wire.ask("GET", "/_metrics").body.decode().splitlines()
    up = sorted(line for line in lines if line.startswith("fsmq_process_up{"))
    assert up == ['fsmq_process_up{process="mover"} 1.0', 'fsmq_process_up{process="mq"} 1.0']
