"""A message is claimable as soon as its put is answered: in every dialect and process.

No mover runs, and no claim waits.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq import Client, Spool
from tests.harness.suite import Suite
from tests.http.conformance.speaker import Speaker
from tests.http.conformance.speakers import SPEAKERS, Native
from tests.http.keyfile import add_key

TIMES = 40


class Running(NamedTuple):
    """Two processes of mq that share one socket, no mover, and their spool."""

    suite: Suite
    spool: Spool
    key: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("claimable")
    file = folder / "keys.toml"
    key = add_key(
        file, "all", "--send=*", "--send=topics/*", "--receive=*", "--admin=*", "--admin=topics/*"
    )
    options = [f"--keys={file}", "--processes=2"]
    with (
        Suite(folder / "mq", mq_options=options, reaper=False) as suite,
        Spool(folder / "mq", sync="none", delivers=False) as spool,
    ):
        suite.terminate("mover")
        yield Running(suite, spool, key)


@pytest.mark.parametrize("kind", SPEAKERS, ids=[one.name for one in SPEAKERS])
def test_a_message_is_claimable_after_its_answer(running: Running, kind: type[Speaker]) -> None:
    speaker = kind(running.suite.url, running.key, running.spool)
    queue = f"of-{kind.name}"
    speaker.make(queue)
    for folder in speaker.folders(queue):
        running.spool.queue(folder).configure(visibility_timeout=600)
    for number in range(TIMES):  # the kernel chooses the process of each request
        assert speaker.ask(speaker.put(queue, f"message {number}")).status < 300
        [claimed] = speaker.take(queue)
        assert f"message {number}" in claimed.body


def test_a_message_is_claimable_between_library_and_server(running: Running) -> None:
    speaker = Native(running.suite.url, running.key, running.spool)
    jobs = running.spool.queue("jobs", create=True)
    for number in range(TIMES):
        jobs.put(b"by the library %d" % number)
        [claimed] = speaker.take("jobs")
        assert claimed.body == f"by the library {number}"
        assert speaker.ask(speaker.put("jobs", f"over http {number}")).status == 201
        [message] = jobs.claim()
        assert message.body == b"over http %d" % number


def test_copies_of_a_publish_and_batches_are_claimable(running: Running) -> None:
    names = ["one", "other"]
    topic = running.spool.topic("news", create=True)
    for name in names:
        running.spool.create_queue(name)
        topic.subscribe(name)
    with Client(running.suite.url, key=running.key, retry_for=0) as client:
        for number in range(TIMES // 4):
            assert set(client.topic("news").publish(b"%d" % number)) == set(names)
            for name in names:
                [copy] = client.queue(name).claim()
                assert copy.body == b"%d" % number
            client.queue("one").put_many([b"%d" % each for each in range(100)])
            with Client(running.suite.url, key=running.key, retry_for=0) as another:
                assert len(another.queue("one").claim(count=100)) == 100


def test_a_message_is_claimable_after_lost_events(tmp_path: Path) -> None:
    """A stopped process reads no events, and the kernel drops those beyond its limit."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip(f"{most} events are kept: too many to overflow them here")
    with (
        Suite(tmp_path / "mq", reaper=False) as suite,
        Spool(tmp_path / "mq", sync="none", delivers=False) as spool,
    ):
        suite.terminate("mover")
        loud, quiet = (spool.queue(name, create=True) for name in ("loud", "quiet"))
        loud.put(b"x")
        speaker = Native(suite.url, "", spool)
        assert len(speaker.take("loud")) == 1
        assert speaker.take("quiet") == []
        suite["mq"].signal(signal.SIGSTOP)
        [message_id] = loud.put_many([b"x"])
        here = suite.root / "queues" / "loud" / message_id
        for number in range(most // 2 + 1):  # each rename is two events
            there = here.with_name(f"other-{number % 2}")
            here.rename(there)
            here = there
        quiet.put(b"behind them")
        suite["mq"].signal(signal.SIGCONT)
        [claimed] = speaker.take("quiet")
        assert claimed.body == "behind them"
