"""Put: what is accepted, what is refused, and that nothing half done is ever seen."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid6 import uuid7

from fsmq.spool import (
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NewMessage,
    NoSuchQueue,
    Queue,
    QueueFull,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.fsck import check
from fsmq.spool.layout import names
from fsmq.spool.layout.messages.message import pack_header, unpack
from fsmq.spool.layout.tree import Tree
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.calls import seen
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, tree_of, visible

attribute_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True).filter(
    lambda name: name.lower() != "content-type"
)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40).filter(
    lambda text: text == text.strip()
)


def test_a_put_message_is_a_file_with_the_body_as_posted(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"one\n\x00two")
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": [message_id]}
    assert (root / "queues" / "jobs" / message_id).read_bytes() == b"one\n\x00two"


def test_put_keeps_files_to_their_owner(jobs: Queue, root: Path) -> None:
    path = root / "queues" / "jobs" / jobs.put(b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [0, 1, 4096, 3_000_000])
def test_bodies_of_any_size_come_back(jobs: Queue, size: int) -> None:
    body = os.urandom(size)
    jobs.put(body)
    [message] = jobs.claim()
    assert message.body == body


@given(
    body=st.binary(max_size=200),
    content_type=st.none() | values,
    attributes=st.dictionaries(attribute_names, values, max_size=5),
)
def test_header_blocks_round_trip(
    body: bytes, content_type: str | None, attributes: dict[str, str]
) -> None:
    block = pack_header(content_type, attributes)
    known = names.PLAIN._replace(headed=bool(block))
    assert unpack(block + body, known) == (body, content_type, attributes)


@given(st.binary(max_size=300))
def test_a_file_that_has_no_header_block_after_all_loses_nothing(raw: bytes) -> None:
    body, content_type, attributes = unpack(raw, names.PLAIN._replace(headed=True))
    assert raw.endswith(body)
    if content_type is None and not attributes:
        assert body == raw


def test_content_type_and_attributes_come_back(jobs: Queue) -> None:
    jobs.put(b"{}\n\n", content_type="application/json", attributes={"Trace": "1: 2", "Empty": ""})
    [message] = jobs.claim()
    assert message.body == b"{}\n\n"
    assert message.content_type == "application/json"
    assert message.attributes == {"Trace": "1: 2", "Empty": ""}
    assert message.id.endswith(".h")


@pytest.mark.parametrize(
    ("content_type", "attributes"),
    [
        ("a\nb", {}),
        (" a", {}),
        (None, {"a b": ""}),
        (None, {"Content-Type": "x"}),
        (None, {"a": "x\ny"}),
        (None, {"a": "x" * 70_000}),
        (None, {"": "x"}),
        (None, {"a": "\ud800"}),
    ],
)
def test_headers_that_are_refused(
    jobs: Queue, root: Path, content_type: str | None, attributes: dict[str, str]
) -> None:
    with pytest.raises(InvalidValue):
        jobs.put(b"", content_type=content_type, attributes=attributes)
    assert tree_of(root)["new"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": -1},
        {"priority": 100},
        {"priority": True},
        {"priority": 1.5},
        {"ttl": -1},
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"delay": -0.1},
        {"delay": float("nan")},
        {"delay": 1e12},
        {"id": "../x"},
        {"id": ""},
    ],
)
def test_values_that_are_refused(jobs: Queue, root: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        jobs.put(b"x", **wrong)
    assert tree_of(root)["new"] == []


def test_messages_come_by_priority_and_then_by_age(jobs: Queue) -> None:
    for priority, body in ((5, b"d"), (0, b"a"), (99, b"f"), (1, b"c"), (5, b"e"), (0, b"b")):
        jobs.put(body, priority=priority)
    claimed = jobs.claim(10)
    assert [m.body for m in claimed] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [m.priority for m in claimed] == [0, 0, 1, 5, 5, 99]


def test_put_many_stores_all_in_order(jobs: Queue) -> None:
    ids = jobs.put_many([b"%d" % n for n in range(600)])
    assert len(set(ids)) == 600
    assert ids == sorted(ids)
    assert [m.body for m in jobs.claim(1000)] == [b"%d" % n for n in range(600)]


def test_a_batch_with_one_bad_message_stores_none(jobs: Queue, root: Path) -> None:
    with pytest.raises(InvalidValue):
        jobs.put_many([b"good", NewMessage(b"bad", priority=100)])
    assert tree_of(root)["new"] == []


def test_a_batch_with_one_duplicate_stores_none(jobs: Queue, root: Path) -> None:
    jobs.put(b"first", id="one")
    with pytest.raises(DuplicateMessage):
        jobs.put_many([b"good", NewMessage(b"bad", id="one")])
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": ["one"]}


def test_a_batch_that_names_one_id_twice_is_a_duplicate(jobs: Queue, root: Path) -> None:
    # Not Unavailable: a client would try that again for ever.
    with pytest.raises(DuplicateMessage):
        jobs.put_many([NewMessage(b"a", id="one"), NewMessage(b"b", id="one")])
    assert tree_of(root)["new"] == []


def test_an_error_in_a_batch_tells_which_message_it_is_about(jobs: Queue) -> None:
    jobs.put(b"first", id="one")
    # 250 go into each part: the index counts through all of them.
    for wrong, index in (
        (NewMessage(b"", priority=100), 300),
        (NewMessage(b"", id="one"), 3),
        (NewMessage(b"", ttl=-1), 0),
    ):
        with pytest.raises(FsmqError, match=f"message {index}: ") as caught:
            jobs.put_many([b""] * index + [wrong] + [b""])
        assert caught.value.index == index
    with pytest.raises(InvalidValue, match=r"^priority: ") as alone:
        jobs.put(b"", priority=100)
    assert alone.value.index is None


def test_a_batch_has_a_limit(spool: Spool, jobs: Queue) -> None:
    with pytest.raises(InvalidValue, match="100000"):
        prepare.put(spool.context, "jobs", [NewMessage(b"")] * 100_001)


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another has been closed
            found += link.readlink().parent == folder.resolve()
    return found


@pytest.mark.parametrize("mode", ["fsync", "syncfs"])
def test_a_large_batch_keeps_few_files_open(root: Path, mode: SyncMode) -> None:
    with Spool(root, sync=mode) as spool:
        spool.create_queue("jobs")
        prepared = prepare.put(spool.context, "jobs", [NewMessage(b"%d" % n) for n in range(1600)])
        assert 0 < open_files(root / "new") < 1050
        ids = spool.complete(prepared)
        assert open_files(root / "new") == 0
        assert spool.syncer.syncs == 1
        jobs = spool.queue("jobs", create=True)
        bodies = {message.body for _ in range(2) for message in jobs.claim(1000)}
        assert len(ids) == 1600
        assert bodies == {b"%d" % n for n in range(1600)}


def test_an_own_id_is_the_id(jobs: Queue) -> None:
    assert jobs.put(b"x", id="order-17") == "order-17"
    [message] = jobs.claim()
    assert message.id == "order-17"
    assert message.created_at is None


@pytest.mark.parametrize("state", ["new", "ready", "in flight"])
def test_an_own_id_that_stands_is_refused_in_every_state(
    spool: Spool, jobs: Queue, state: str
) -> None:
    jobs.put(b"first", id="one")
    if state == "ready":
        spool.deliver()
    if state == "in flight":
        jobs.claim()
    with pytest.raises(DuplicateMessage):
        jobs.put(b"second", id="one")
    spool.deliver()
    found = jobs.find("one")
    assert found is not None
    assert found.body == b"first"


def test_an_own_id_with_a_header_block_stands_in_the_way_of_one_without(jobs: Queue) -> None:
    own = str(uuid7())
    jobs.put(b"first", id=own, content_type="text/plain")
    with pytest.raises(DuplicateMessage):
        jobs.put(b"second", id=own)


FACTS = {
    "id": "order-17",
    "priority": 7,
    "ttl": 1000,
    "content_type": "application/json",
    "attributes": {"try": "1"},
    "group": "a",
}


def test_an_own_id_carries_everything(spool: Spool, jobs: Queue, root: Path) -> None:
    name = jobs.put(b"{}", **FACTS)
    assert tree_of(root)["queues/jobs"] == [name]
    with pytest.raises(DuplicateMessage) as refused:
        jobs.put(b"{}", **FACTS | {"attributes": {"try": "2"}})
    assert refused.value.message_id == name
    [message] = jobs.claim()
    assert (message.id, message.priority, message.content_type) == (name, 7, "application/json")
    assert (message.attributes, message.group) == ({"try": "1"}, "a")
    assert message.expires_at is not None
    assert 999 < message.expires_at - time.time() < 1000 * 17 / 16 + 1
    jobs.remove(name)
    jobs.put(b"{}", **FACTS)


@pytest.mark.parametrize("left", [set(FACTS) - {"id"}, {"group", "content_type"}, set()])
def test_an_own_id_is_in_the_way_whatever_header_it_has(jobs: Queue, left: set[str]) -> None:
    header = {"content_type", "attributes", "group"}
    jobs.put(b"first", **{name: FACTS[name] for name in FACTS if name in {"id", *(left & header)}})
    for other in ({}, {"content_type": "a/b"}, {"attributes": {"a": "1"}}):
        with pytest.raises(DuplicateMessage):
            jobs.put(b"second", id="order-17", **other)


def test_an_own_id_that_is_too_long_with_what_it_carries_is_refused(spool: Spool) -> None:
    queue, own = spool.queue("q" * 180, create=True), "i" * 64
    queue.put(b"x", id=own)
    with pytest.raises(InvalidValue, match="id: is too long for queue"):
        queue.put(b"x", id=own, priority=1)


def test_a_plain_own_id_stays_the_name_where_bodies_are_compressed(jobs: Queue) -> None:
    jobs.configure(compression="zlib")
    assert jobs.put(b"x" * 1000, id="order-17") == "order-17"
    assert jobs.put(b"x" * 1000, id="order-18", priority=1) == "p01.@order-18@.z"
    assert [message.body for message in jobs.claim(2)] == [b"x" * 1000] * 2


def test_an_own_id_is_free_again_when_its_message_is_removed(jobs: Queue) -> None:
    jobs.put(b"first", id="one")
    jobs.remove("one")
    jobs.put(b"second", id="one")
    assert [m.body for m in jobs.claim(2)] == [b"second"]


def test_an_own_id_is_taken_by_queue(spool: Spool, jobs: Queue) -> None:
    jobs.put(b"x", id="one")
    spool.queue("other", create=True).put(b"y", id="one")


def test_a_put_leaves_nothing_but_its_message(jobs: Queue, root: Path) -> None:
    jobs.put(b"x", id="one")
    jobs.put(b"x", id="two", delay=60)
    assert tree_of(root) == {"new": [], "delay": ["jobs:two"], "queues/jobs": ["one"]}


def test_an_own_id_under_way_elsewhere_is_unavailable(spool: Spool, jobs: Queue) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"first", id="one")])
    with pytest.raises(Unavailable):
        prepare.put(spool.context, "jobs", [NewMessage(b"second", id="one")])
    assert spool.complete(prepared) == ["one"]
    with pytest.raises(DuplicateMessage):
        jobs.put(b"third", id="one")


def test_a_shell_users_file_is_not_overwritten(spool: Spool, root: Path) -> None:
    spool.create_queue("jobs")
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"ours", id="one")])
    (root / "queues" / "jobs" / "one").write_bytes(b"theirs")
    with pytest.raises(DuplicateMessage):
        spool.complete(prepared)
    assert (root / "queues" / "jobs" / "one").read_bytes() == b"theirs"
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": ["one"]}


def test_a_staged_message_is_not_visible_before_it_is_durable(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    spool.deliver()  # its start, which takes every dot-name for left over, is behind it
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    spool.deliver()
    assert visible(root) == []
    [message_id] = spool.complete(prepared)
    assert visible(root) == [("jobs", message_id)]


def test_an_abandoned_put_leaves_nothing(spool: Spool, jobs: Queue, root: Path) -> None:
    prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y", id="one")]).abort()
    assert tree_of(root)["new"] == []


def dot_names(root: Path) -> list[Path]:
    """The dot-names of puts."""
    return list((root / "new").glob(".*"))


def test_a_mover_that_starts_leaves_a_put_alone_whose_writer_is_alive(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    # A sync that hangs, or a writer that is stopped, for an hour.
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y", id="one")])
    clock.advance(3600)
    with Spool(root, sync="none", clock=clock) as mover:
        mover.deliver()
        assert mover.queue("jobs").claim(9) == []
    assert check(root, clock=clock, pause=0).findings == []
    ids = spool.complete(prepared)
    assert sorted(visible(root)) == sorted(("jobs", one) for one in ids)


def test_what_a_put_that_died_has_left_comes_out_at_once(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    def die(root: Path) -> None:
        with Spool(root, sync="none", delivers=False) as writer:
            prepare.put(writer.context, "jobs", [NewMessage(b"torn"), NewMessage(b"whole")])
            torn = min(dot_names(root), key=lambda path: path.stat().st_mtime_ns)
            os.truncate(torn, 2)
            os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=die, args=(root,))
    process.start()
    process.join()
    assert len(dot_names(root)) == 2
    with Spool(root, sync="none") as mover:
        mover.deliver()
        assert [m.body for m in mover.queue("jobs").claim(9)] == [b"whole"]
    assert dot_names(root) == []


def test_what_a_put_could_not_remove_is_removed_though_its_process_lives(
    root: Path, spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y")])
    unlink = Tree.unlink

    def fail(tree: Tree, path: str) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(Tree, "unlink", fail)
    prepared.abort()
    monkeypatch.setattr(Tree, "unlink", unlink)
    assert len(dot_names(root)) == 2
    with Spool(root, sync="none") as mover:
        mover.deliver()
    assert dot_names(root) == []


def test_a_child_does_not_keep_the_puts_of_its_parent(root: Path, spool: Spool) -> None:
    """Nor does it end them, whatever it puts itself."""
    fork = multiprocessing.get_context("fork")
    spool.create_queue("jobs")
    spool.queue("jobs").put(b"before")
    goes_on, gone = fork.Event(), fork.Event()

    def stay(root: Path) -> None:
        spool.queue("jobs").put(b"of the child")
        gone.set()
        goes_on.wait(60)

    def parent(root: Path) -> None:
        prepared = prepare.put(spool.context, "jobs", [NewMessage(b"of the parent")])
        child = fork.Process(target=stay, args=(root,))
        child.start()
        gone.wait(60)
        with Spool(root, sync="none") as mover:
            mover.deliver()
            assert len(dot_names(root)) == 1  # the parent is alive
        del prepared
        os.kill(os.getpid(), signal.SIGKILL)

    process = fork.Process(target=parent, args=(root,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with Spool(root, sync="none") as mover:
        mover.deliver()
        bodies = {m.body for m in mover.queue("jobs").claim(9)}
    goes_on.set()
    assert bodies == {b"before", b"of the child", b"of the parent"}


def numbers_locked(root: Path) -> int:
    """How many numbers of puts are locked, by whoever it is."""
    inode = str((root / "ids" / ".puts").stat().st_ino)
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(inode in field.split(":") for fields in locks for field in fields[5:6])


def test_the_puts_of_one_batch_share_a_number(spool: Spool, root: Path) -> None:
    """The kernel goes through all of them for each."""
    topic = spool.topic("news", create=True)
    for number in range(50):
        spool.queue(f"q{number}", create=True)
        topic.subscribe(f"q{number}")
    assert len(topic.publish(b"x")) == 50
    assert numbers_locked(root) == 1
    # They are one as long as one of them is not over; what that leaves is recovered then.
    prepared = prepare.publish(spool.context, "news", NewMessage(b"left"))
    with Spool(root, sync="none") as mover:
        mover.deliver()
        assert len(dot_names(root)) == 50
    del prepared
    with Spool(root, sync="none") as mover:
        mover.deliver()
    assert dot_names(root) == []
    assert spool.queue("q49").counts().total == 2


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems that have none of bytes."""
    monkeypatch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", False)


@pytest.mark.usefixtures("without_locks")
def test_an_abandoned_put_takes_back_what_a_mover_took_for_left_over(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    # A sync that hangs for a minute and fails: meanwhile a mover starts and promotes the file.
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y", id="one")])
    with Spool(root, sync="none") as mover:
        mover.deliver()
    assert len(visible(root)) == 1  # the own id is reserved, which tells that its writer lives
    prepared.abort()
    assert visible(root) == []


def test_an_abandoned_put_leaves_another_message_of_its_id_alone(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"ours", id="one")])
    for path in (root / "new").glob(".*"):
        path.unlink()  # as recovery does when a writer was stopped for long
    with Spool(root, sync="none") as other:
        other.queue("jobs").put(b"theirs", id="one")
    prepared.abort()
    assert visible(root) == [("jobs", "one")]


def test_a_batch_that_cannot_be_shown_whole_is_taken_back(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"a"), NewMessage(b"b", id="one")])
    (root / "queues" / "jobs" / "one").write_bytes(b"a shell user was quicker")
    with pytest.raises(DuplicateMessage):
        spool.complete(prepared)
    assert visible(root) == [("jobs", "one")]


@pytest.mark.usefixtures("without_locks")
def test_a_put_that_a_mover_finished_is_acknowledged(root: Path, spool: Spool, jobs: Queue) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    with Spool(root, sync="none") as mover:
        mover.deliver()
    [message_id] = spool.complete(prepared)
    assert visible(root) == [("jobs", message_id)]


def test_a_queue_that_is_missing_takes_nothing(spool: Spool, root: Path) -> None:
    with pytest.raises(NoSuchQueue):
        prepare.put(spool.context, "nowhere", [NewMessage(b"x")])
    assert tree_of(root)["new"] == []


def test_a_queue_deleted_during_a_put_takes_nothing(spool: Spool, jobs: Queue, root: Path) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    spool.delete_queue("jobs")
    with pytest.raises(NoSuchQueue):
        spool.complete(prepared)
    assert tree_of(root) == {"new": [], "delay": []}


def test_a_put_stands_once_a_part_of_it_is_shown(
    root: Path, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may be done with the first when the disk refuses the second: recovery shows that."""
    with Spool(root, sync="none", delivers=False) as writer:
        rename = writer.tree.rename
        shown: list[str] = []

        def rename_first(source: str, target: str, **how: bool) -> bool:
            if shown:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            shown.append(target)
            return rename(source, target, **how)

        with monkeypatch.context() as patched:
            patched.setattr(writer.tree, "rename", rename_first)
            first, second = writer.queue("jobs").put_many([b"x", b"y"])
        # The writer lives, and has let go of what it could not show.
        assert [message.id for message in jobs.claim(2)] == [first, second]


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_what_is_purged_while_a_put_is_shown_was_put_before_it(
    root: Path, jobs: Queue, verb: str
) -> None:
    with Spool(root, sync="none", delivers=False) as writer:
        renames: list[str] = []

        def end_them(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "_rename2" and len(renames) < 2:
                renames.append(name)
                if len(renames) == 2:
                    [message] = jobs.claim(2)
                    assert message.ack()
                    jobs.purge() if verb == "purge" else jobs.spool.delete_queue("jobs")

        prepared = prepare.put(writer.context, "jobs", [NewMessage(b"x"), NewMessage(b"y")])
        with seen(end_them):
            assert len(writer.complete(prepared)) == 2
        jobs.spool.create_queue("jobs")
        with Spool(root, sync="none") as mover:
            mover.deliver()
            assert mover.queue("jobs").claim(2) == []
    assert tree_of(root)["new"] == []


def test_what_a_queues_folder_does_not_take_a_mover_delivers_when_it_does(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two; that the first one was shown is no fault."""
    rename = spool.tree.rename
    asked: list[str] = []

    def rename_first(source: str, target: str, **how: bool) -> bool:
        if target.startswith("queues/jobs/"):
            asked.append(target)
            if len(asked) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(source, target, **how)

    with monkeypatch.context() as patched:
        patched.setattr(spool.tree, "rename", rename_first)
        first, second = jobs.put_many([b"x", b"y"])
    assert tree_of(root) == {"new": [f"jobs:{second}"], "delay": [], "queues/jobs": [first]}
    spool.deliver()
    assert [message.id for message in jobs.claim(2)] == [first, second]


def test_a_body_beyond_the_spools_limit_is_refused(root: Path) -> None:
    with Spool(root, sync="none", max_message_bytes=10) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"x" * 10)
        with pytest.raises(MessageTooLarge, match="11 bytes"):
            jobs.put(b"x" * 11)


def test_a_body_beyond_the_queues_limit_is_refused(jobs: Queue) -> None:
    jobs.configure(max_message_bytes=3)
    with pytest.raises(MessageTooLarge) as refused:
        jobs.put(b"four")
    assert refused.value.limit == 3


def test_a_full_queue_refuses_until_there_is_room(jobs: Queue) -> None:
    jobs.configure(max_depth=2)
    first = jobs.put(b"1")
    jobs.put(b"2")
    with pytest.raises(QueueFull) as full:
        jobs.put(b"3")
    assert full.value.retry_after >= 1
    jobs.remove(first)

    def has_room() -> bool:
        with suppress(QueueFull):
            return bool(jobs.put(b"3"))
        return False

    eventually(has_room)  # the depth is counted once a second


def test_the_default_delay_of_a_queue_holds_for_its_puts(
    spool: Spool, jobs: Queue, clock: Clock
) -> None:
    jobs.configure(default_delay=10)
    jobs.put(b"later")
    jobs.put(b"at once", delay=0)
    assert [m.body for m in jobs.claim(2)] == [b"at once"]
    clock.advance(10.1)
    assert [m.body for m in jobs.claim(2)] == [b"later"]


def test_a_removed_folder_is_made_again(jobs: Queue, root: Path) -> None:
    (root / "new").rmdir()
    jobs.put(b"x")
    assert len(tree_of(root)["queues/jobs"]) == 1
    assert tree_of(root)["new"] == []


@pytest.mark.parametrize("error", [InvalidValue("a", "b"), NoSuchQueue("q"), QueueFull("q", 1)])
def test_all_errors_have_one_base(error: Exception) -> None:
    assert isinstance(error, FsmqError)


def test_that_an_id_is_in_use_is_told_behind_a_sync(spool: Spool, jobs: Queue, root: Path) -> None:
    """Who has brought its message there may not have synced that yet."""
    jobs.put(b"x", id="x")
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x", id="x")])
    assert prepared.dirty.folders >= {"new", "delay", "queues/jobs"}
    with pytest.raises(DuplicateMessage):
        spool.complete(prepared)
    spool.create_queue(write_side("dups"))
    spool.create_queue(read_side("dups"))
    spool.complete(prepare.dedup_send(spool.context, "dups", [b"x"]))
    again = prepare.dedup_send(spool.context, "dups", [b"x"])
    assert again.dirty.folders >= {"new", "delay", f"queues/{write_side('dups')}"}
    assert spool.complete(again) == []
