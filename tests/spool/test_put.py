"""Put: valid and invalid messages, batches, own ids, and unfinished puts."""

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
from fsmq.spool.durability.drafts import Draft
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


def test_a_message_is_a_file_with_its_body(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"one\n\x00two")
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": [message_id]}
    assert (root / "queues" / "jobs" / message_id).read_bytes() == b"one\n\x00two"


def test_only_the_owner_can_read_messages(jobs: Queue, root: Path) -> None:
    path = root / "queues" / "jobs" / jobs.put(b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("size", [0, 1, 4096, 3_000_000])
def test_bodies_of_any_size_are_stored(jobs: Queue, size: int) -> None:
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
def test_a_file_without_its_header_block_is_read_whole(raw: bytes) -> None:
    body, content_type, attributes = unpack(raw, names.PLAIN._replace(headed=True))
    assert raw.endswith(body)
    if content_type is None and not attributes:
        assert body == raw


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


def test_messages_are_claimed_by_priority_and_then_by_age(jobs: Queue) -> None:
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


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        ([b"good", NewMessage(b"bad", priority=100)], InvalidValue),
        ([b"good", NewMessage(b"bad", id="one")], DuplicateMessage),
        # Not Unavailable: a client would retry that for ever.
        ([NewMessage(b"a", id="two"), NewMessage(b"b", id="two")], DuplicateMessage),
    ],
)
def test_a_batch_with_one_bad_message_stores_none(
    jobs: Queue, root: Path, batch: list[bytes | NewMessage], error: type[Exception]
) -> None:
    jobs.put(b"first", id="one")
    with pytest.raises(error):
        jobs.put_many(batch)
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": ["one"]}


def test_an_error_in_a_batch_has_the_index_of_its_message(jobs: Queue) -> None:
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
    """The number of open files of a folder in this process."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the listing
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


FACTS = {
    "id": "order-17",
    "priority": 7,
    "ttl": 1000,
    "content_type": "application/json",
    "attributes": {"try": "1"},
    "group": "a",
}


def test_an_own_id_carries_all_fields(spool: Spool, jobs: Queue, root: Path) -> None:
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
def test_a_taken_id_is_refused_whatever_header_it_has(jobs: Queue, left: set[str]) -> None:
    header = {"content_type", "attributes", "group"}
    jobs.put(b"first", **{name: FACTS[name] for name in FACTS if name in {"id", *(left & header)}})
    for other in ({}, {"content_type": "a/b"}, {"attributes": {"a": "1"}}):
        with pytest.raises(DuplicateMessage):
            jobs.put(b"second", id="order-17", **other)


def test_an_own_id_that_is_too_long_with_its_priority_is_refused(spool: Spool) -> None:
    queue, own = spool.queue("q" * 180, create=True), "i" * 64
    queue.put(b"x", id=own)
    with pytest.raises(InvalidValue, match="id: is too long for queue"):
        queue.put(b"x", id=own, priority=1)


def test_an_own_id_is_the_name_although_bodies_are_compressed(jobs: Queue) -> None:
    jobs.configure(compression="zlib")
    assert jobs.put(b"x" * 1000, id="order-17") == "order-17"
    assert jobs.put(b"x" * 1000, id="order-18", priority=1) == "p01.@order-18@.z"
    assert [message.body for message in jobs.claim(2)] == [b"x" * 1000] * 2


def test_an_own_id_that_another_put_has_reserved_is_unavailable(spool: Spool, jobs: Queue) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"first", id="one")])
    with pytest.raises(Unavailable):
        prepare.put(spool.context, "jobs", [NewMessage(b"second", id="one")])
    assert spool.complete(prepared) == ["one"]
    with pytest.raises(DuplicateMessage):
        jobs.put(b"third", id="one")


def test_a_staged_message_is_not_visible_before_it_is_durable(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    spool.deliver()  # the first delivery recovers dot-names
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


def test_a_starting_mover_ignores_a_put_whose_writer_is_alive(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    # For example a sync that hangs for an hour.
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y", id="one")])
    clock.advance(3600)
    with Spool(root, sync="none", clock=clock) as mover:
        mover.deliver()
        assert mover.queue("jobs").claim(9) == []
    assert check(root, clock=clock, pause=0).findings == []
    ids = spool.complete(prepared)
    assert sorted(visible(root)) == sorted(("jobs", one) for one in ids)


def test_complete_messages_of_a_dead_put_are_shown_at_once(
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


def test_files_that_a_put_could_not_remove_are_removed_while_its_process_lives(
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


def test_a_forked_child_neither_keeps_nor_ends_the_puts_of_its_parent(
    root: Path, spool: Spool
) -> None:
    fork = multiprocessing.get_context("fork")
    spool.create_queue("jobs")
    spool.queue("jobs").put(b"before")
    may_end, has_put = fork.Event(), fork.Event()

    def stay(root: Path) -> None:
        spool.queue("jobs").put(b"of the child")
        has_put.set()
        may_end.wait(60)

    def parent(root: Path) -> None:
        prepared = prepare.put(spool.context, "jobs", [NewMessage(b"of the parent")])
        child = fork.Process(target=stay, args=(root,))
        child.start()
        has_put.wait(60)
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
    may_end.set()
    assert bodies == {b"before", b"of the child", b"of the parent"}


def numbers_locked(root: Path) -> int:
    """The number of locked put numbers, of all processes."""
    inode = str((root / "ids" / ".puts").stat().st_ino)
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(inode in field.split(":") for fields in locks for field in fields[5:6])


def test_the_puts_of_one_batch_share_a_number(spool: Spool, root: Path) -> None:
    """The kernel searches all locks of a file for each."""
    topic = spool.topic("news", create=True)
    for number in range(50):
        spool.queue(f"q{number}", create=True)
        topic.subscribe(f"q{number}")
    assert len(topic.publish(b"x")) == 50
    assert numbers_locked(root) == 1
    # The number is locked as long as one put is unfinished; then the files are recovered.
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
    """Systems without locks of bytes."""
    monkeypatch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", False)


@pytest.mark.usefixtures("without_locks")
def test_an_abandoned_put_removes_a_message_that_a_mover_recovered(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    # During a sync that hangs and then fails, a mover starts and promotes the file.
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x"), NewMessage(b"y", id="one")])
    with Spool(root, sync="none") as mover:
        mover.deliver()
    assert len(visible(root)) == 1  # the own id is reserved, so its writer is alive
    prepared.abort()
    assert visible(root) == []


def test_an_abandoned_put_keeps_another_message_with_its_id(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"ours", id="one")])
    for path in (root / "new").glob(".*"):
        path.unlink()  # as recovery does after a writer was stopped for long
    with Spool(root, sync="none") as other:
        other.queue("jobs").put(b"theirs", id="one")
    prepared.abort()
    assert visible(root) == [("jobs", "one")]


def test_a_batch_is_removed_and_no_file_overwritten_when_an_id_was_taken_meanwhile(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"a"), NewMessage(b"b", id="one")])
    (root / "queues" / "jobs" / "one").write_bytes(b"of a shell")
    with pytest.raises(DuplicateMessage):
        spool.complete(prepared)
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": ["one"]}
    assert (root / "queues" / "jobs" / "one").read_bytes() == b"of a shell"


@pytest.mark.usefixtures("without_locks")
def test_a_put_that_a_mover_finished_is_acknowledged(root: Path, spool: Spool, jobs: Queue) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    with Spool(root, sync="none") as mover:
        mover.deliver()
    [message_id] = spool.complete(prepared)
    assert visible(root) == [("jobs", message_id)]


def test_a_put_fails_when_its_queue_is_deleted(spool: Spool, jobs: Queue, root: Path) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    spool.delete_queue("jobs")
    with pytest.raises(NoSuchQueue):
        spool.complete(prepared)
    assert tree_of(root) == {"new": [], "delay": []}


def test_a_put_is_not_undone_once_a_part_of_it_is_visible(
    root: Path, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer may have the first message when the rename of the second fails."""
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
        # The writer is alive and has released the unfinished file.
        assert [message.id for message in jobs.claim(2)] == [first, second]


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_a_purge_between_the_renames_of_a_put_comes_after_the_put(
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


def test_a_mover_delivers_a_message_that_the_folder_of_the_queue_had_no_room_for(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_full_queue_refuses_messages_until_there_is_room(jobs: Queue) -> None:
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


@pytest.mark.parametrize("fifo", [False, True])
def test_the_default_delay_applies_to_puts(spool: Spool, clock: Clock, fifo: bool) -> None:
    queue, groups = spool.queue("later"), iter("ab" if fifo else (None, None))
    spool.create_queue("later", fifo=fifo)
    queue.configure(default_delay=10)
    queue.put(b"later", group=next(groups))
    queue.put(b"at once", group=next(groups), delay=0)
    assert [m.body for m in queue.claim(2)] == [b"at once"]
    clock.advance(10.1)
    assert [m.body for m in queue.claim(2)] == [b"later"]


def test_a_put_without_a_delay_is_ready_whatever_the_time_of_its_file(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some times look like those of delays, by chance."""
    write, context = Draft.write, spool.context

    def write_and_stamp(draft: Draft, fd: int, timer_ns: int = 0) -> None:
        write(draft, fd, timer_ns)
        chance_ns = context.stamps.encode(draft.message_id, context.now_ms() + 60_000, 0)
        os.utime(fd, ns=(chance_ns, chance_ns))

    monkeypatch.setattr(Draft, "write", write_and_stamp)
    message_id = jobs.put(b"x")
    assert [message.id for message in jobs.claim()] == [message_id]


def test_a_removed_folder_is_created_again(jobs: Queue, root: Path) -> None:
    (root / "new").rmdir()
    jobs.put(b"x")
    assert len(tree_of(root)["queues/jobs"]) == 1
    assert tree_of(root)["new"] == []


def test_a_duplicate_is_reported_after_a_sync(spool: Spool, jobs: Queue) -> None:
    """The process that moved the other message may not have synced it yet."""
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
