"""Topics feed logs, and channels feed queues: atomically, and each message once."""

from __future__ import annotations

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
from tests.spool.logs import failing_syncs
from tests.spool.running import start_python


@pytest.fixture
def topic(spool: Spool) -> Topic:
    """A topic with a queue and two logs."""
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
    ids = topic.publish(b"refund", attributes={"type": "refund"})
    assert list(ids) == ["copies", "logs/all", "logs/refunds"]
    assert bodies(spool, "all") == [b"sale", b"refund"]
    assert bodies(spool, "refunds") == [b"refund"]
    assert claimed(spool, "copies") == [b"sale", b"refund"]
    [first, _] = spool.log("all").read()
    assert (first.key, first.content_type) == ("ann", "text/x")
    assert first.attributes == {"type": "sale"}
    with pytest.raises(InvalidValue, match="id"):
        topic.publish(b"x", attributes={"id": "a log gives this a meaning"})


def test_logs_subscribe_and_unsubscribe(spool: Spool, topic: Topic) -> None:
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
def test_a_message_that_one_subscriber_refuses_reaches_none(
    spool: Spool, topic: Topic, obstacle: Callable[[Spool], None], error: type[Exception]
) -> None:
    obstacle(spool)
    before = claimed(spool, "copies")
    with pytest.raises(error):
        topic.publish(b"much", attributes={"type": "refund"})
    assert bodies(spool, "all") == bodies(spool, "refunds") == []
    assert claimed(spool, "copies") == []
    assert before in ([], [b"there"])


def test_a_message_whose_sync_failed_in_a_log_reaches_no_queue(root: Path) -> None:
    with Spool(root) as spool:
        topic = spool.topic("news")
        topic.create()
        spool.create_queue("copies")
        topic.subscribe("copies")
        spool.log("all", create=True).publish(b"before")
        topic.subscribe("logs/all")
        with failing_syncs(), pytest.raises(Exception, match=r"injected|Input/output|disk"):
            topic.publish(b"lost")
        assert bodies(spool, "all") == [b"before"]
        assert claimed(spool, "copies") == []


PUBLISHES = """
import sys, time
from fsmq.spool import Spool
with Spool(sys.argv[1], delivers=False) as spool, open(sys.argv[2], "a", buffering=1) as answers:
    topic = spool.topic("news")
    while True:
        body = str(time.time_ns())
        ids = topic.publish(body.encode())
        print(body, ids["logs/all"], file=answers)
"""


def test_answered_messages_of_killed_publishers_reach_all_subscribers(tmp_path: Path) -> None:
    root, answers = tmp_path / "mq", tmp_path / "answers"
    with Spool(root) as spool:
        topic = spool.topic("news")
        topic.create()
        spool.create_queue("copies")
        topic.subscribe("copies")
        spool.log("all", create=True)
        topic.subscribe("logs/all")
        size = 0
        for round_ in range(4):
            process = start_python(PUBLISHES, root, answers)
            try:
                eventually(lambda s=size: answers.exists() and answers.stat().st_size > s + 300)
                time.sleep(0.013 * round_)
            finally:
                process.kill()
                process.wait()
            size = answers.stat().st_size
        answered = [line.split() for line in answers.read_text().splitlines()]
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


def test_messages_that_a_full_queue_refuses_are_not_counted_as_deliveries(
    spool: Spool, log: Log
) -> None:
    """Nothing is wrong with the messages."""
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


def test_feeds_that_end_while_the_queue_is_full_are_no_deliveries(spool: Spool, log: Log) -> None:
    """Else a feed that is started again and again drops messages which no queue has got."""
    channel = log.channel("mails")
    channel.create("first", max_deliveries=1, on_poison="skip")
    log.publish_many([b"%d" % number for number in range(600)])
    spool.configure("mails", {"max_depth": 10})
    spool.queue("mails").put_many([b"x"] * 10)
    for _ in range(3):
        with pytest.raises(QueueFull):
            feed(spool, log)
    assert (channel.state().in_flight, channel.state().skipped) == (0, 0)
    spool.queue("mails").purge()
    spool.configure("mails", {"max_depth": None})
    assert feed(spool, log) == 600
    assert len(claimed(spool, "mails")) == 600


def test_a_channel_feeds_a_queue(spool: Spool, log: Log) -> None:
    log.publish_many([LogEntry(b"one", key="ann", attributes={"a": "b"}), b"two", b""])
    assert feed(spool, log) == 3
    assert feed(spool, log) == 0
    spool.deliver()
    found = spool.queue("mails").claim(10)
    assert [message.body for message in found] == [b"one", b"two", b""]
    assert found[0].attributes == {"log": "users", "offset": "0", "key": "ann", "a": "b"}
    assert log.channel("mails").state().position == 3


def test_messages_put_before_a_crash_are_not_put_again(
    spool: Spool, log: Log, clock: Clock
) -> None:
    log.publish_many([b"%d" % number for number in range(5)])
    channel = log.channel("mails")
    channel.create("first")
    target = Feed(channel, spool.queue("mails"), log.name, log.stats().uuid)
    messages = channel.claim(5)
    spool.queue("mails").put_many([target._copy(one) for one in messages[:3]])
    clock.advance(31)  # it died, and its claim ends
    assert feed(spool, log) == 5
    assert sorted(claimed(spool, "mails")) == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_that_the_queue_refuses_stay(spool: Spool, log: Log, clock: Clock) -> None:
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


def test_messages_are_put_once_though_the_queue_refuses_the_rest(spool: Spool, log: Log) -> None:
    """Consumers remove the first ones before the feed retries."""
    bodies = [b"%d" % n for n in range(1000)]
    log.publish_many(bodies)
    found: list[bytes] = []
    for number in range(1, 9):
        # Removals are counted late, so the limit grows.
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
def test_killed_feeders_put_each_message_once(tmp_path: Path) -> None:
    root = tmp_path / "mq"
    number = 3000
    with Spool(root) as spool:
        spool.create_queue("mails")
        log = spool.log("users", create=True)
        log.publish_many([b"%d" % n for n in range(number)])
        channel = log.channel("mails")
        channel.create("first", visibility_timeout=1.0)
        for stop in (1, 500, 1400, 2500):
            process = start_python(FEEDS, root)
            try:
                eventually(lambda s=stop: spool.counts("mails").total >= s)
            finally:
                process.kill()
                process.wait()
        command = [sys.executable, "-m", "fsmq.cli", "log", "users", "--to", "mails", "--at", root]
        subprocess.run(command, cwd=HOME, check=True)
        assert channel.state().lag == 0
        found: list[int] = []
        while got := claimed(spool, "mails"):
            found += map(int, got)
        assert sorted(found) == list(range(number))


def test_the_copies_of_all_channels_have_the_same_id(spool: Spool, log: Log) -> None:
    log.publish(b"x")
    [message] = log.read()
    made: list[NewMessage] = [
        Feed(log.channel(name), spool.queue("mails"), log.name, log.stats().uuid)._copy(message)
        for name in ("one", "other")
    ]
    assert made[0].id == made[1].id


def test_a_log_created_after_a_crashed_deletion_is_not_subscribed(
    spool: Spool, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry of the deletion, or a creation, removes the old subscriptions."""
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


def test_a_log_is_recreated_only_after_the_whole_deletion(
    spool: Spool, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is stopped between the log and its subscriptions."""
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
