"""Topics feed logs, and the channel of a log feeds a queue: all or none, and nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import LogFull, MessageTooLarge, NewMessage, NoSuchLog, QueueFull, Spool
from fsmq.spool.durability import locks
from fsmq.spool.durability.locks import Lock
from fsmq.spool.errors import InvalidValue
from fsmq.spool.fsck import check
from fsmq.spool.layout.tree import Tree
from fsmq.spool.log.consuming.forwarding import Feed
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.topic import Topic
from tests.harness.suite import HOME, eventually
from tests.spool.helpers import Clock


@pytest.fixture
def topic(spool: Spool) -> Topic:
    """One with a queue and two logs."""
    topic = spool.topic("news")
    topic.create()
    spool.create_queue("copies")
    topic.subscribe("copies")
    for log in ("all", "refunds"):
        spool.log(log, create=True)
    topic.subscribe("logs/all")
    topic.subscribe("logs/refunds", {"type": ["refund"]})
    return topic


def bodies(spool: Spool, log: str) -> list[bytes]:
    return [message.body for message in spool.log(log).read()]


def claimed(spool: Spool, queue: str) -> list[bytes]:
    spool.deliver()
    return [message.body for message in spool.queue(queue).claim(1000)]


def test_a_topic_feeds_logs_and_queues(spool: Spool, topic: Topic) -> None:
    ids = topic.publish(b"sale", attributes={"type": "sale", "key": "ann"}, content_type="text/x")
    assert list(ids) == ["copies", "logs/all"]
    assert ids["logs/all"] == "0"
    assert list(topic.publish(b"refund", attributes={"type": "refund"})) == [
        "copies",
        "logs/all",
        "logs/refunds",
    ]
    assert bodies(spool, "all") == [b"sale", b"refund"]
    assert bodies(spool, "refunds") == [b"refund"]
    assert claimed(spool, "copies") == [b"sale", b"refund"]
    [first, _] = spool.log("all").read()
    assert (first.key, first.content_type) == ("ann", "text/x")
    assert first.attributes == {"type": "sale"}
    with pytest.raises(InvalidValue, match="id"):
        topic.publish(b"x", attributes={"id": "a log gives this a meaning"})


def test_subscriptions_of_logs_come_and_go(spool: Spool, topic: Topic) -> None:
    assert topic.subscriptions() == {
        "copies": None,
        "logs/all": None,
        "logs/refunds": {"type": ["refund"]},
    }
    assert not topic.subscribe("logs/refunds", {"type": ["sale"]})
    assert topic.subscriptions()["logs/refunds"] == {"type": ["sale"]}
    assert topic.unsubscribe("logs/refunds")
    assert not topic.unsubscribe("logs/refunds")
    with pytest.raises(NoSuchLog):
        topic.subscribe("logs/none")
    with pytest.raises(InvalidValue):
        topic.subscribe("logs/a/b")
    entry = spool.tree.root / "topics/news/_log:refunds"
    entry.touch()  # as a shell would
    assert topic.subscriptions()["logs/refunds"] is None
    assert check(spool.tree.root, offline=True).clean
    spool.log("refunds").delete()
    assert not entry.exists()
    assert list(topic.subscriptions()) == ["copies", "logs/all"]
    entry.touch()
    assert list(topic.publish(b"x")) == ["copies", "logs/all"]
    [finding] = check(spool.tree.root, offline=True).findings
    assert "does not exist" in finding.reason


def fill_queue(spool: Spool) -> None:
    spool.configure("copies", {"max_depth": 1})
    spool.queue("copies").put(b"there")


def fill_log(spool: Spool) -> None:
    (spool.tree.root / "logs/all/full").touch()


def lower_limit(spool: Spool) -> None:
    spool.log("refunds").configure(max_message_bytes=3)


@pytest.mark.parametrize(
    ("obstacle", "error"),
    [(fill_queue, QueueFull), (fill_log, LogFull), (lower_limit, MessageTooLarge)],
)
def test_what_one_does_not_take_reaches_nobody(
    spool: Spool, topic: Topic, obstacle: Callable[[Spool], None], error: type[Exception]
) -> None:
    obstacle(spool)
    before = claimed(spool, "copies")
    with pytest.raises(error):
        topic.publish(b"much", attributes={"type": "refund"})
    assert bodies(spool, "all") == bodies(spool, "refunds") == []
    assert claimed(spool, "copies") == []
    assert before in ([], [b"there"])


def test_a_failed_sync_of_a_log_keeps_a_message_from_queues(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(root) as spool:
        topic = spool.topic("news")
        topic.create()
        spool.create_queue("copies")
        topic.subscribe("copies")
        spool.log("all", create=True).publish(b"before")
        topic.subscribe("logs/all")

        def fails(fd: int) -> None:
            raise OSError(5, "injected")

        monkeypatch.setattr(os, "fdatasync", fails)
        with pytest.raises(Exception, match=r"injected|Input/output|disk"):
            topic.publish(b"lost")
        monkeypatch.undo()
        assert bodies(spool, "all") == [b"before"]
        assert claimed(spool, "copies") == []


PUBLISHES = """
import sys, time
from fsmq.spool import Spool
with Spool(sys.argv[1], delivers=False) as spool, open(sys.argv[2], "a", buffering=1) as told:
    topic = spool.topic("news")
    while True:
        body = str(time.time_ns())
        ids = topic.publish(body.encode())
        print(body, ids["logs/all"], file=told)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)})


def test_killed_publishers_leave_what_was_answered_in_all(tmp_path: Path) -> None:
    root, told = tmp_path / "mq", tmp_path / "told"
    with Spool(root) as spool:
        topic = spool.topic("news")
        topic.create()
        spool.create_queue("copies")
        topic.subscribe("copies")
        spool.log("all", create=True)
        topic.subscribe("logs/all")
        size = 0
        for round_ in range(4):
            process = start(PUBLISHES, root, told)
            try:
                eventually(lambda s=size: told.exists() and told.stat().st_size > s + 300)
                time.sleep(0.013 * round_)
            finally:
                process.kill()
                process.wait()
            size = told.stat().st_size
        answered = [line.split() for line in told.read_text().splitlines()]
        spool.tend_logs()
        found = [message.body.decode() for message in spool.log("all").read()]
        for body, offset in answered:
            assert found[int(offset)] == body
        assert len(set(found)) == len(found) < len(answered) + 5
        copies = set()
        while got := claimed(spool, "copies"):
            copies |= {body.decode() for body in got}
        assert {body for body, _ in answered} <= copies
        assert len(copies) < len(answered) + 5


# -- a channel feeds a queue ---------------------------------------------------------------------


@pytest.fixture
def log(spool: Spool) -> Log:
    spool.create_queue("mails")
    return spool.log("users", create=True)


def feed(spool: Spool, log: Log, wait: float = 0.0) -> int:
    channel = log.channel("mails")
    channel.create("first")
    with Feed(channel, spool.queue("mails"), log.name, log.stats().uuid) as feeding:
        return feeding.step(wait)


def test_what_a_full_queue_could_not_take_is_no_delivery_more(spool: Spool, log: Log) -> None:
    """Its consumers are away for long: nothing is wrong with the messages."""
    channel = log.channel("mails")
    channel.create("first", max_deliveries=3, on_poison="skip")
    log.publish_many([b"%d" % number for number in range(600)])
    spool.configure("mails", {"max_depth": 10})
    spool.queue("mails").put_many([b"x"] * 10)
    with Feed(channel, spool.queue("mails"), log.name, log.stats().uuid) as feeding:
        for _ in range(5):
            with pytest.raises(QueueFull):
                feeding.step()
        assert channel.state().in_flight == 600
        spool.queue("mails").purge()
        spool.configure("mails", {"max_depth": None})
        assert feeding.step() == 600
        assert feeding.step() == 0
    assert len(claimed(spool, "mails")) == 600
    assert (channel.state().lag, channel.state().skipped) == (0, 0)


def test_what_is_kept_is_released_at_the_end(spool: Spool, log: Log) -> None:
    log.publish(b"waits")
    spool.configure("mails", {"max_depth": 1})
    spool.queue("mails").put(b"x")
    with pytest.raises(QueueFull):
        feed(spool, log)
    assert log.channel("mails").state().in_flight == 0


def test_a_channel_feeds_a_queue(spool: Spool, log: Log) -> None:
    log.publish_many([LogEntry(b"one", key="ann", attributes={"a": "b"}), b"two", b""])
    assert feed(spool, log) == 3
    assert feed(spool, log) == 0
    spool.deliver()
    found = spool.queue("mails").claim(10)
    assert [message.body for message in found] == [b"one", b"two", b""]
    assert found[0].attributes == {"log": "users", "offset": "0", "key": "ann", "a": "b"}
    assert log.channel("mails").state().position == 3


def test_what_was_put_before_a_crash_is_not_put_again(
    spool: Spool, log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.publish_many([b"%d" % number for number in range(5)])
    channel = log.channel("mails")
    channel.create("first")
    target = Feed(channel, spool.queue("mails"), log.name, log.stats().uuid)
    messages = channel.claim(5)
    spool.queue("mails").put_many([target._copy(one) for one in messages[:3]])
    clock.advance(31)  # and then it died
    assert feed(spool, log) == 5
    assert sorted(claimed(spool, "mails")) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_the_queue_refuses_comes_back(spool: Spool, log: Log, clock: Clock) -> None:
    spool.configure("mails", {"max_message_bytes": 10})
    log.publish_many([b"small", b"x" * 11, b"small too"])
    assert feed(spool, log) == 3
    assert log.channel("mails").state().lag == 1
    assert claimed(spool, "mails") == [b"small", b"small too"]
    log.channel("mails").configure(max_deliveries=1, on_poison="skip")
    clock.advance(2)
    feed(spool, log)
    assert log.channel("mails").state().skipped == 1
    spool.configure("mails", {"max_depth": 2})
    log.publish(b"waits")
    with pytest.raises(QueueFull):
        feed(spool, log)
    assert log.channel("mails").state().in_flight == 0


def test_what_a_queue_took_is_brought_once_though_it_refuses_the_rest(
    spool: Spool, log: Log
) -> None:
    """Its consumers remove what came before the feed tries again."""
    bodies = [b"%d" % n for n in range(1000)]
    log.publish_many(bodies)
    found: list[bytes] = []
    for number in range(1, 9):
        # What is removed is counted late: so the limit grows.
        spool.configure("mails", {"max_depth": 300 * number})
        with suppress(QueueFull):
            feed(spool, log)
        spool.deliver()
        messages = spool.queue("mails").claim(1000)
        found += [message.body for message in messages]
        spool.queue("mails").ack_each(messages)
    assert sorted(found) == sorted(bodies)
    assert log.channel("mails").state().lag == 0


FEEDS = """
import sys
from fsmq.cli import main
sys.argv = ["fsmq", "log", "feed", "users", "mails", "--follow", "--at", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_killed_feeders_bring_each_message_once(tmp_path: Path) -> None:
    root = tmp_path / "mq"
    number = 3000
    with Spool(root) as spool:
        spool.create_queue("mails")
        log = spool.log("users", create=True)
        log.publish_many([b"%d" % n for n in range(number)])
        channel = log.channel("mails")
        channel.create("first", visibility_timeout=1.0)
        for stop in (1, 500, 1400, 2500):
            process = start(FEEDS, root)
            try:
                eventually(lambda s=stop: spool.counts("mails").total >= s)
            finally:
                process.kill()
                process.wait()
        command = [sys.executable, "-m", "fsmq.cli", "log", "users", "--to", "mails", "--at", root]
        subprocess.run(command, cwd=HOME, check=True, env={**os.environ, "PYTHONPATH": str(HOME)})
        assert channel.state().lag == 0
        found: list[int] = []
        while got := claimed(spool, "mails"):
            found += map(int, got)
        assert sorted(found) == list(range(number))


def test_a_copy_of_a_message_has_the_same_id_wherever_it_is_made(spool: Spool, log: Log) -> None:
    log.publish(b"x")
    [message] = log.read()
    made: list[NewMessage] = [
        Feed(log.channel(name), spool.queue("mails"), log.name, log.stats().uuid)._copy(message)
        for name in ("one", "other")
    ]
    assert made[0].id == made[1].id


def test_a_deletion_that_died_behind_the_log_subscribes_no_later_one(
    spool: Spool, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes next ends what it has left: a retry, or who creates a log of this name."""
    for log in ("all", "refunds"):
        with monkeypatch.context() as patch:
            patch.setattr(spool.context.topics, "entries_of", lambda name: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                spool.log(log).delete()
    with pytest.raises(NoSuchLog):
        spool.log("all").delete()
    assert spool.log("all").create()
    assert spool.log("refunds").create()
    assert "copies" in topic.subscriptions()
    assert not {"logs/all", "logs/refunds"} & set(topic.subscriptions())


def test_a_log_is_made_anew_only_when_all_of_the_old_one_is_gone(
    spool: Spool, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is stopped where the log is gone, and its subscriptions are not."""
    entries_of = spool.context.topics.entries_of
    made: list[bool] = []

    def others() -> None:
        with Spool(spool.tree.root, sync="none") as other:
            made.append(other.log("all").create())
            made.append(other.topic("news").subscribe("logs/all"))

    creator = threading.Thread(target=others)

    def stopped(name: str) -> Iterator[str]:
        creator.start()
        eventually(lambda: asked.count("config/._log:all.lock") > 1 or not creator.is_alive())
        return entries_of(name)

    asked: list[str] = []
    real = locks.lock

    def lock(tree: Tree, path: str, create: int) -> Lock | None:
        asked.append(path)
        return real(tree, path, create)

    monkeypatch.setattr(locks, "lock", lock)
    monkeypatch.setattr(spool.context.topics, "entries_of", stopped)
    spool.log("all").delete()
    creator.join()
    assert made == [True, True]
    assert "logs/all" in topic.subscriptions()
