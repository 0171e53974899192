"""Topics: fan-out of copies, filters, and changes by a shell."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import (
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    NoSuchTopic,
    QueueFull,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.durability import settings_lock
from fsmq.spool.durability.send_lines import lock_sends
from fsmq.spool.fsck import check
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.layout.topics.deliveries import Delivery
from fsmq.spool.layout.topics.filters import Filter
from fsmq.spool.layout.topics.policies import Policy
from fsmq.spool.layout.topics.topics import subscriber_of
from fsmq.spool.layout.tree import Tree
from fsmq.spool.log.store import Store
from fsmq.spool.topic import Topic
from tests.harness.calls import Trap, failing, seen
from tests.harness.suite import eventually
from tests.spool.helpers import visible
from tests.spool.running import waiting


def names(root: Path, topic: str) -> list[str]:
    """The entries of a topic, as ``ls`` shows them."""
    return sorted(p.name for p in (root / "topics" / topic).iterdir())


def news_for(spool: Spool, *queues: str, fifo: bool = False) -> Topic:
    """A topic to which new queues are subscribed."""
    news = spool.topic("news", create=True)
    for queue in queues:
        spool.create_queue(queue, fifo=fifo)
        news.subscribe(queue)
    return news


def test_a_publish_writes_a_copy_for_each_subscribed_queue(spool: Spool) -> None:
    news = spool.topic("news", create=True)
    for queue in ("a", "b", "c"):
        spool.queue(queue, create=True)
    assert news.subscribe("a") is True
    assert news.subscribe("b") is True
    ids = news.publish(b"hello", attributes={"kind": "x"})
    assert sorted(ids) == ["a", "b"]
    assert ids["a"] != ids["b"]
    assert visible(spool.tree.root) == sorted(ids.items())
    for queue in ids:
        [message] = spool.queue(queue).claim()
        assert (message.id, message.body) == (ids[queue], b"hello")
        assert message.attributes == {"kind": "x"}
    assert spool.queue("c").claim() == []


def test_subscribing_again_replaces_the_filter(spool: Spool) -> None:
    spool.queue("a", create=True)
    news = spool.topic("news", create=True)
    assert news.subscribe("a", {"type": ["order"]}) is True
    assert news.publish(b"", attributes={"type": "invoice"}) == {}
    assert news.subscribe("a") is False
    assert list(news.publish(b"", attributes={"type": "invoice"})) == ["a"]
    assert news.unsubscribe("a") is True
    assert news.unsubscribe("a") is False
    assert news.publish(b"") == {}


def test_topics_are_created_listed_and_deleted(spool: Spool, root: Path) -> None:
    spool.queue("a", create=True)
    assert spool.create_topic("one") is True
    assert spool.create_topic("one") is False
    spool.topic("two", create=True).subscribe("a")
    assert spool.topics() == ["one", "two"]
    spool.topic("two").delete()
    assert spool.topics() == ["one"]
    assert spool.queues() == ["a"]
    with pytest.raises(NoSuchTopic):
        spool.topic("two").subscriptions()
    spool.reap()
    assert list((root / "remove").iterdir()) == []


def test_missing_queues_and_topics_are_errors(spool: Spool) -> None:
    spool.queue("a", create=True)
    news = spool.topic("news", create=True)
    with pytest.raises(NoSuchQueue):
        news.subscribe("b")
    news.delete()
    for act in (
        news.delete,
        news.subscriptions,
        lambda: news.subscribe("a"),
        lambda: news.unsubscribe("a"),
        lambda: news.publish(b""),
    ):
        with pytest.raises(NoSuchTopic, match="'news'"):
            act()
    with pytest.raises(InvalidValue, match="topic"):
        spool.topic("_no", create=True)


def test_deleting_a_queue_ends_its_subscriptions(spool: Spool, root: Path) -> None:
    queue = spool.queue("a", create=True)
    for topic in ("one", "two"):
        spool.topic(topic, create=True).subscribe("a")
    queue.delete()
    spool.queue("a")
    assert spool.topic("one").subscriptions() == {}
    assert names(root, "one") == names(root, "two") == []
    assert spool.topic("two").publish(b"") == {}


def test_subscriptions_of_sns_outlive_their_queue(spool: Spool, root: Path) -> None:
    for queue in ("a", "b", "dead"):
        spool.queue(queue, create=True)
    news = spool.topic("news", create=True)
    policy = json.dumps({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead"})
    for queue in ("a", "b"):
        spool.subscribe("news", queue, Delivery(raw=True, kept={"RedrivePolicy": policy}))
    spool.queue("a").delete()
    assert names(root, "news") == ["a", "b"]
    assert list(news.subscriptions()) == ["b"]
    assert sorted(news.publish(b"1")) == ["b", "dead"]
    # The same for a queue deleted by hand; each of the two puts a dead letter.
    shutil.rmtree(root / "queues" / "b")
    assert list(news.publish(b"2")) == ["dead"]
    bodies = [message.body for message in spool.queue("dead").claim(9)]
    assert sorted(bodies) == [b"1", b"2", b"2"]
    spool.queue("dead").configure(max_message_bytes=1)
    with pytest.raises(MessageTooLarge):
        news.publish(b"long")
    spool.queue("dead").delete()
    assert news.publish(b"3") == {}
    # An entry that cannot be parsed is kept; one of another kind ends with its queue.
    spool.queue("c", create=True)
    spool.subscribe("news", "c", Delivery())
    (root / "topics" / "news" / "c").write_text('{"sns": {broken')
    spool.queue("c").delete()
    assert names(root, "news") == ["a", "b", "c"]
    spool.queue("a", create=True)
    assert list(news.publish(b"4")) == ["a"]


def test_the_largest_subscription_is_read_again(spool: Spool, root: Path) -> None:
    """As JSON in JSON it takes several times its bytes."""
    spool.queue("a", create=True)
    spool.topic("news", create=True)
    policy = Policy(json.dumps({"a": ["é" * 8180]}, ensure_ascii=False))
    kept = json.dumps({"a": "\U0001f600" * 4080}, ensure_ascii=False)
    largest = Delivery(policy, kept={"RedrivePolicy": kept, "DeliveryPolicy": kept})
    spool.subscribe("news", "a", largest)
    with Spool(root) as other:
        found = other.context.topics.filters("news")["a"]
        assert isinstance(found, Delivery)
        assert found.text() == largest.text()
        with pytest.raises(InvalidValue, match="subscription: takes more than"):
            other.subscribe("news", "a", Delivery(kept={"other": 40 * kept}))
        kept_on = other.context.topics.filters("news")["a"]
        assert kept_on is not None
        assert kept_on.text() == largest.text()


def test_a_shell_subscribes_with_touch(spool: Spool, root: Path) -> None:
    spool.queue("a", create=True)
    news = spool.topic("news", create=True)
    assert news.publish(b"") == {}
    (root / "topics" / "news" / "a").touch()
    assert list(news.publish(b"")) == ["a"]
    (root / "topics" / "news" / "a").write_text('{"type": ["order"]}')
    assert news.publish(b"") == {}
    assert list(news.publish(b"", attributes={"Type": "order"})) == ["a"]
    (root / "topics" / "news" / "a").unlink()
    assert news.publish(b"", attributes={"Type": "order"}) == {}


def test_subscriptions_of_another_process_are_seen_at_once(spool: Spool, root: Path) -> None:
    news = spool.topic("news", create=True)
    with Spool(root, sync="none", delivers=False) as other:
        for n in range(30):
            spool.queue(f"q{n}", create=True)
            assert len(other.topic("news").subscriptions()) == n
            news.subscribe(f"q{n}")


def test_foreign_files_in_a_topic_are_ignored(spool: Spool, root: Path) -> None:
    spool.queue("a", create=True)
    news = spool.topic("news", create=True)
    folder = root / "topics" / "news"
    (folder / "a").symlink_to("/etc/hostname")
    (folder / "gone").touch()
    (folder / ".hidden").touch()
    (folder / "a folder").mkdir()
    assert news.publish(b"") == {}
    (folder / "a").unlink()
    news.subscribe("a", {"type": ["order"]})
    news.subscriptions()
    (folder / "a").write_text("{broken")
    # The last valid filter still applies; a process that has not seen one uses none.
    assert news.publish(b"", attributes={"type": "x"}) == {}
    with Spool(root, sync="none") as fresh:
        assert list(fresh.topic("news").publish(b"", attributes={"type": "x"})) == ["a"]


def test_an_empty_folder_named_like_a_queue_is_replaced(spool: Spool, root: Path) -> None:
    news = spool.topic("news", create=True)
    spool.queue("jobs", create=True)
    folder = root / "topics" / "news" / "jobs"
    folder.mkdir()
    assert spool.subscriptions("news") == {}
    assert not news.unsubscribe("jobs")
    assert not folder.exists()
    folder.mkdir()
    assert news.subscribe("jobs")
    assert folder.is_file()
    news.unsubscribe("jobs")
    folder.mkdir()
    (folder / "of-someone").touch()
    for verb in (news.subscribe, news.unsubscribe):
        with pytest.raises(Unavailable, match=f"{folder} is a folder with files in it: move it"):
            verb("jobs")
    spool.delete_queue("jobs")
    assert (folder / "of-someone").exists()


def test_a_publish_reaches_all_queues_or_none(spool: Spool, root: Path) -> None:
    news = news_for(spool, "a", "b", "c")
    spool.queue("b").configure(max_message_bytes=3)
    with pytest.raises(MessageTooLarge):
        news.publish(b"four")
    assert list((root / "new").iterdir()) == []
    spool.queue("b").configure(max_depth=1)
    news.publish(b"1")
    with pytest.raises(QueueFull, match="'b'"):
        news.publish(b"2")
    assert [queue for queue, _ in visible(root)] == ["a", "b", "c"]


def test_a_retry_of_a_refused_publish_is_not_a_duplicate(spool: Spool) -> None:
    """With the same dedup_id, in all fifo queues of the topic."""
    news = news_for(spool, "a", "b", fifo=True)
    spool.configure("b", {"max_depth": 1})
    spool.queue("b").put(b"in its way", group="g")
    with pytest.raises(QueueFull, match="'b'"):
        news.publish(b"x", group="g", dedup_id="1")
    spool.configure("b", {"max_depth": None})
    assert spool.queue("a").counts().total == 0
    ids = news.publish(b"x", group="g", dedup_id="1")
    assert news.publish(b"x", group="g", dedup_id="1") == ids
    assert [m.id for m in spool.queue("a").peek(9)] == [ids["a"]]
    assert [m.id for m in spool.queue("b").peek(9)][1:] == [ids["b"]]
    spool.log("all", create=True)
    news.subscribe("logs/all")
    with pytest.raises(InvalidValue, match="dedup_id"):
        news.publish(b"x", group="g", dedup_id="2")
    assert sorted(news.publish(b"y", group="g")) == ["a", "b", "logs/all"]


def test_a_publish_whose_sync_fails_leaves_nothing(spool: Spool, root: Path) -> None:
    news_for(spool, "a", "b")
    prepared = prepare.publish(spool.context, "news", NewMessage(b"x"))
    assert len(list((root / "new").iterdir())) == 2
    prepared.dirty.close()
    prepared.abort()
    assert list((root / "new").iterdir()) == []


def test_a_publish_whose_last_rename_fails_leaves_nothing(spool: Spool, root: Path) -> None:
    news_for(spool, "a", "b")
    prepared = prepare.publish(spool.context, "news", NewMessage(b"x"))
    [path] = [p for p in (root / "new").iterdir() if p.name.startswith(".b:")]
    path.unlink()  # as a mover with a wrong clock would
    prepared.dirty.close()
    with pytest.raises(Unavailable):
        prepared.commit()
    spool.deliver()
    assert visible(root) == []


def test_a_publish_skips_a_queue_that_is_deleted_meanwhile(spool: Spool) -> None:
    news_for(spool, "a", "b")
    prepared = prepare.publish(spool.context, "news", NewMessage(b"x"))
    spool.queue("a").delete()
    prepared.dirty.close()
    assert list(prepared.commit()) == ["b"]


def test_a_retry_of_a_publish_that_failed_in_one_fifo_queue_reaches_each_once(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = ["f1", "f2", "f3"]
    news, real, refused = news_for(spool, *queues, fifo=True), Tree.rename, [True]

    def rename(tree: Tree, source: str, target: str, **named: Any) -> bool:
        if refused and target.startswith("queues/f2/"):
            refused.pop()
            raise OSError(errno.EIO, os.strerror(errno.EIO), source)
        return real(tree, source, target, **named)

    monkeypatch.setattr(Tree, "rename", rename)
    with pytest.raises(Unavailable):
        news.publish(b"x", group="g", dedup_id="1")
    ids = news.publish(b"x", group="g", dedup_id="1")
    for queue in queues:
        [message] = spool.queue(queue).claim(9)
        assert message.id == ids[queue]


def test_a_publish_whose_group_failed_reaches_no_log_and_no_other_queue(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another send into its fifo queue takes too long; then a sync fails."""
    monkeypatch.setattr("fsmq.spool.limits.sequencer.PATIENCE_S", 0.01)
    spool.create_queue("f", fifo=True)
    spool.create_queue("plain")
    spool.log("l").create()
    news = spool.topic("news", create=True)
    for subscriber in ("f", "plain", subscriber_of("l")):
        news.subscribe(subscriber)
    held = lock_sends(spool.tree, "f")
    assert held is not None
    with pytest.raises(Unavailable):
        news.publish(b"1", group="g")
    held.unlock()

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Spool(root, sync="fsync") as other, monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(Unavailable):
            other.topic("news").publish(b"2", group="g")
    assert spool.log("l").end() == 0
    assert spool.counts("plain").total == 0
    ids = news.publish(b"3", group="g")
    assert [message.body for message in spool.queue("f").claim(9)] == [b"3"]
    assert [message.id for message in spool.queue("plain").claim(9)] == [ids["plain"]]


def test_a_message_that_a_log_refuses_reaches_no_fifo_queue(spool: Spool) -> None:
    log = spool.log("l", create=True)
    news = news_for(spool, "f", fifo=True)
    news.subscribe(subscriber_of("l"))
    news.publish(b"1", group="g")
    [message] = spool.queue("f").claim()
    assert (message.body, [one.body for one in log.read("first")]) == (b"1", [b"1"])
    prepared = prepare.publish(spool.context, "news", NewMessage(b"2", group="g"))

    def refuse() -> None:
        raise Unavailable("the log refuses")

    prepared.before = refuse
    with pytest.raises(Unavailable, match="the log refuses"):
        spool.complete(prepared)
    assert spool.counts("f").total == 1


@pytest.mark.parametrize(
    ("policy", "passes", "fails"),
    [
        ({}, [{}, {"a": "1"}], []),
        ({"a": ["1", "2"]}, [{"a": "2"}, {"A": "1"}], [{}, {"a": "3"}, {"b": "1"}]),
        ({"a": ["1"], "b": ["1"]}, [{"a": "1", "b": "1"}], [{"a": "1"}, {"b": "1"}]),
        ({"A": [{"prefix": "in"}]}, [{"a": "in"}, {"a": "invoice"}], [{}, {"a": "i"}]),
        ({"a": [{"anything-but": "1"}]}, [{"a": "2"}, {"a": ""}], [{}, {"a": "1"}]),
        ({"a": [{"anything-but": ["1", "2"]}]}, [{"a": "3"}], [{"a": "1"}, {"a": "2"}]),
        ({"a": [{"exists": True}]}, [{"a": ""}], [{}]),
        ({"a": [{"exists": False}, "1"]}, [{}, {"a": "1"}], [{"a": "2"}]),
    ],
)
def test_filters(policy: Any, passes: list[Any], fails: list[Any]) -> None:
    parsed = Filter.parse(json.dumps(policy).encode())
    assert parsed is not None
    assert [parsed.matches(a) for a in passes] == [True] * len(passes)
    assert [parsed.matches(a) for a in fails] == [False] * len(fails)
    assert json.loads(parsed.text()) == policy


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("[]", "filter: is not a JSON object"),
        ("{", "filter: is not JSON"),
        ("[" * 100_000, "filter: has more than 16384 bytes"),
        ("[" * 10_000, "filter: is not JSON"),
        ('{"a b": ["x"]}', "filter.a b: is not an attribute name"),
        ('{"a": "x"}', "filter.a: must be a list"),
        ('{"a": []}', "filter.a: must be a list"),
        ('{"a": ["x"], "A": ["x"]}', "filter.A: is given twice"),
        ('{"a": ["x"], "a": ["y"]}', "filter.a: is given twice"),
        ('{"a": [1]}', "filter.a: has an unknown condition"),
        ('{"a": [{"suffix": "x"}]}', "filter.a: has an unknown condition"),
        ('{"a": [{"exists": "yes"}]}', "filter.a: has an unknown condition"),
        ('{"a": [{"anything-but": [1]}]}', "filter.a: anything-but needs"),
        (json.dumps({"a": ["x"] * 151}), "filter: has more than 150 conditions"),
    ],
)
def test_invalid_filters_are_refused(policy: str, error: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        Filter.parse(policy.encode())
    assert str(raised.value).startswith(error)


def test_fsck_checks_topics(spool: Spool, root: Path) -> None:
    news_for(spool, "a").subscribe("a", {"type": ["order"]})
    assert check(root, offline=True).findings == []
    folder = root / "topics" / "news"
    (folder / "gone").touch()
    (folder / "a").write_text("{broken")
    (folder / "two words").touch()
    (folder / "link").symlink_to("a")
    (folder / ".01977420-dc00-7abc-8def-0123456789ab.tmp").touch()
    (root / "topics" / "stray").touch()
    (root / "topics" / "_bad").mkdir()
    report = check(root, offline=True)
    assert sorted((f.kind.value, f.path) for f in report.findings) == [
        ("bad-filter", "topics/news/a"),
        ("leftover", "topics/news/.01977420-dc00-7abc-8def-0123456789ab.tmp"),
        ("stray", "topics/_bad"),
        ("stray", "topics/news/link"),
        ("stray", "topics/news/two words"),
        ("stray", "topics/stray"),
        ("subscription-without-queue", "topics/news/gone"),
    ]
    repaired = check(root, offline=True, repair=True).repaired
    assert [f.kind.value for f in repaired] == ["leftover"]


def test_a_deletion_removes_the_subscription_of_a_process_that_dies(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.0)
    spool.create_queue("a")
    news = spool.topic("news", create=True)
    replace = spool.tree.replace

    def replace_and_die(path: str, content: bytes) -> None:
        with Spool(root, sync="none", delivers=False) as other, suppress(Unavailable):
            other.delete_queue("a")
        replace(path, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(spool.tree, "replace", replace_and_die)
        with pytest.raises(KeyboardInterrupt):
            news.subscribe("a")
    with suppress(NoSuchQueue):
        spool.delete_queue("a")
    assert spool.create_queue("a")
    assert names(root, "news") == []


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("queues", [("p1", "p2"), ("p1", "f1"), ("f1", "f2")], ids="-".join)
def test_a_publish_reaches_all_queues_or_none_when_a_call_fails(
    tmp_path: Path, queues: tuple[str, ...], is_done: bool
) -> None:
    for at in range(200):
        root = tmp_path / str(at)
        with Spool(root, sync="fsync", delivers=False) as spool:
            news = spool.topic("news", create=True)
            for queue in queues:
                spool.create_queue(queue, fifo=queue[0] == "f")
                if queue[0] == "f":
                    spool.configure(queue, {"dedup_by_content": True})
                news.subscribe(queue)
            trap = Trap(at, failing(0, is_done=is_done))
            error = None
            try:
                with seen(trap):
                    news.publish(b"x", group="g")
            except Unavailable as raised:
                error = raised
        with Spool(root, sync="none") as other:  # a mover
            other.deliver()
            reached = [other.counts(queue).total for queue in queues]
            fault = f"{error} at {trap.calls[-1]}, call {at}"
            assert sum(reached) == (len(queues) if error is None or any(reached) else 0), fault
        if not trap.is_sprung:
            assert at > 6
            return
    raise AssertionError("the publish did not end")


def test_a_publish_reaches_all_queues_or_none_when_another_of_its_group_fails(spool: Spool) -> None:
    spool.create_queue("f", fifo=True)
    topics = ["t1", "t2", "t3"]
    for name in topics:
        spool.create_queue(f"plain-{name}")
        for queue in ("f", f"plain-{name}"):
            spool.topic(name, create=True).subscribe(queue)

    def refuse_one(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_rename2" and arguments[2].startswith(("queues/plain-t2/", "new/plain-t2:")):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def publish(name: str) -> None:
        with suppress(Unavailable):
            spool.topic(name).publish(name.encode(), group="g")

    held = lock_sends(spool.tree, "f")
    assert held is not None
    with seen(refuse_one):
        threads = [threading.Thread(target=publish, args=(name,)) for name in topics]
        for number, thread in enumerate(threads, 1):
            thread.start()
            eventually(waiting(spool, number))
        held.unlock()
        for thread in threads:
            thread.join()
    with Spool(spool.tree.root, sync="none") as other:  # a mover
        other.deliver()
        in_order = {message.body.decode() for message in other.queue("f").peek(9)}
        plain = {name for name in topics if other.counts(f"plain-{name}").total}
    assert in_order == plain
    assert "t2" not in plain


@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_failed_publish_that_is_in_a_log_reaches_all_queues(spool: Spool, bad: str) -> None:
    topic = news_for(spool, "a", "b")
    log = spool.log("users", create=True)
    topic.subscribe("logs/users")

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_rename2" and arguments[2].startswith((f"queues/{bad}/", f"new/{bad}:")):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with seen(fail), pytest.raises(Unavailable):
        topic.publish(b"x")
    assert log.end() == 1
    with Spool(spool.tree.root, sync="none") as other:  # a mover
        other.deliver()
        assert [other.counts(queue).ready for queue in ("a", "b")] == [1, 1]


def test_a_message_that_a_log_refuses_reaches_no_queue(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = news_for(spool, "a")
    spool.log("users", create=True)
    topic.subscribe("logs/users")

    def fail(self: Store, *of: Any) -> None:
        raise Unavailable("the disk refuses")

    monkeypatch.setattr(Store, "publish_each", fail)
    with pytest.raises(Unavailable):
        topic.publish(b"x")
    spool.deliver()
    assert spool.counts("a").total == 0
    assert os.listdir(spool.tree.root / "new") == []
