"""Groups of sends into fifo queues, and sends that fail or die."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq import InvalidValue, NewMessage, Queue, Spool, Unavailable
from fsmq.spool.durability import send_lines
from fsmq.spool.durability.locks import Lock
from fsmq.spool.durability.send_lines import lock_sends
from fsmq.spool.layout.tree import Tree
from fsmq.spool.limits import sequencer
from tests.harness.suite import eventually
from tests.spool.crashing import MUTATING, begin_sends
from tests.spool.helpers import Clock
from tests.spool.running import waiting
from tests.spool.test_other_users import NOBODY, as_its_user, shared  # noqa: F401

QUEUE = "orders"


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = 1_790_000_000.0
    return clock


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none", clock=clock) as spool:
        spool.create_queue(QUEUE, fifo=True)
        yield spool


@pytest.fixture
def queue(spool: Spool) -> Queue:
    return spool.queue(QUEUE)


def drained(queue: Queue) -> list[str]:
    """Claim and acknowledge messages one by one."""
    found = []
    while claimed := queue.claim():
        found.append(claimed[0].body.decode())
        claimed[0].ack()
    return found


def failing(call: Callable[..., Any], path: str) -> Callable[..., Any]:
    """A call of the tree that fails for paths that contain ``path``."""

    def fail(tree: Tree, *paths: str, **named: Any) -> Any:
        if any(path in one for one in paths):
            raise OSError(errno.EIO, os.strerror(errno.EIO), paths[0])
        return call(tree, *paths, **named)

    return fail


def refuse(work: object) -> None:
    raise Unavailable("the disk reports an I/O error (EIO)")


@contextmanager
def locked(spool: Spool, queue: str = QUEUE) -> Iterator[Lock]:
    """Another process is stopped during a send."""
    held = lock_sends(spool.tree, queue)
    assert held is not None
    try:
        yield held
    finally:
        held.unlock()


def die_sending(spool: Spool, *messages: NewMessage) -> None:
    """Write messages in a process that dies before its sync."""
    child = os.fork()
    if not child:
        dying = Spool(spool.tree.root, sync="none", delivers=False, clock=spool.context.clock)
        begin_sends(dying, QUEUE, *messages)
        os._exit(0)
    os.waitpid(child, 0)


def in_thread(call: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        with suppress(Unavailable):
            call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# -- failures ------------------------------------------------------------------------------------


def test_a_failed_put_that_could_not_be_undone_comes_before_later_puts(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put("1", group="g")
    with monkeypatch.context() as patch:
        patch.setattr(spool.syncer, "sync", refuse)
        patch.setattr(Tree, "unlink", failing(Tree.unlink, "new/."))
        with pytest.raises(Unavailable):
            queue.put("2", group="g")
    queue.put("3", group="g")
    assert drained(queue) == ["1", "2", "3"]


def test_a_failed_put_is_undone(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(spool.syncer, "sync", refuse)
        with pytest.raises(Unavailable):
            queue.put("1", group="g", dedup_id="1")
    assert os.listdir(spool.tree.root / "new") == []
    with Spool(spool.tree.root, sync="none", clock=spool.context.clock) as other:
        there = other.queue(QUEUE)
        assert there.put("2", group="g", dedup_id="1") == queue.put("3", group="g", dedup_id="1")
    assert drained(queue) == ["2"]


def failing_second() -> Callable[..., bool]:
    """A rename that fails the second time."""
    real, shown = Tree.rename, list[str]()

    def rename(tree: Tree, source: str, target: str, **named: Any) -> bool:
        shown.append(target)
        if len(shown) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO), source)
        return real(tree, source, target, **named)

    return rename


def test_a_batch_with_a_failed_rename_is_completed_by_a_retry(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [NewMessage(b"%d" % n, group="ab"[n % 2], dedup_id=str(n)) for n in range(4)]
    rename = failing_second()
    with monkeypatch.context() as patch:
        patch.setattr(Tree, "rename", rename)
        with pytest.raises(Unavailable):
            queue.put_many(batch)
    [first] = os.listdir(spool.tree.root / "queues" / QUEUE)  # none after the failed rename
    ids = queue.put_many([*batch, NewMessage(b"4", group="b")])
    assert ids[0] == first
    assert ids == sorted(ids)
    assert drained(queue) == ["0", "1", "2", "3", "4"]


def test_a_failed_rename_fails_the_later_puts_of_its_group(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: dict[str, object] = {}

    def put(text: str) -> None:
        try:
            results[text] = queue.put(text, group="g")
        except Unavailable as error:
            results[text] = error

    with locked(spool):
        threads = []
        for number in range(3):
            threads.append(threading.Thread(target=put, args=(str(number),)))
            threads[-1].start()
            eventually(waiting(spool, number + 1))
        rename = failing_second()
        monkeypatch.setattr(Tree, "rename", rename)
    for thread in threads:
        thread.join()
    assert [type(results[text]) for text in "012"] == [str, Unavailable, Unavailable]
    queue.put("3", group="g")
    assert drained(queue) == ["0", "1", "2", "3"]


def test_a_failed_put_that_a_power_cut_brings_back_stays_hidden(
    spool: Spool, queue: Queue, clock: Clock
) -> None:
    """Its retry was stored, because no file was left then."""
    aside = spool.tree.root / "aside"
    sent = begin_sends(spool, QUEUE, NewMessage(b"failed", group="g", dedup_id="1"))
    [staged] = (spool.tree.root / "new").iterdir()
    staged.rename(aside)
    sent.dirty.close()
    sent.abort()
    queue.put("again", group="g", dedup_id="1")
    aside.rename(staged)
    with Spool(spool.tree.root, sync="none", clock=clock) as later:
        later.deliver()
    assert not staged.exists()
    assert drained(queue) == ["again"]


def test_a_lost_file_of_sends_keeps_the_order(spool: Spool, queue: Queue, clock: Clock) -> None:
    queue.put("1", group="g")
    (spool.tree.root / "config" / f".{QUEUE}.sends").unlink()
    clock.now -= 30
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        other.queue(QUEUE).put("2", group="g")
    assert drained(queue) == ["1", "2"]


# -- signals -------------------------------------------------------------------------------------


class TimeLimit(Exception):
    pass


def limited(seconds: float, call: Callable[[], object]) -> None:
    """Call with a time limit that is set with an alarm."""

    def stop(*given: object) -> None:
        raise TimeLimit

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def apart(root: Path, do: Callable[[Spool], object]) -> None:
    """Run ``do`` in the main thread of another process, which must succeed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            with Spool(root, sync="none") as spool:
                do(spool)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_put_that_a_signal_ends_during_its_sync_blocks_no_other(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    with Spool(root, sync="none") as spool:
        queue = spool.queue(QUEUE)
        spool.create_queue(QUEUE, fifo=True)
        queue.put("1", group="g")

        def interrupted(other: Spool) -> None:
            there = other.queue(QUEUE)
            real, other.syncer.sync = other.syncer.sync, lambda work: time.sleep(60)  # type: ignore[method-assign]
            with pytest.raises(TimeLimit):
                limited(0.05, lambda: there.put("2", group="g", dedup_id="2"))
            other.syncer.sync = real  # type: ignore[method-assign]
            there.put("3", group="g")
            assert os.listdir(root / "new") == []
            queue.put("4", group="g", dedup_id="2")  # with the spool of the parent

        apart(root, interrupted)
        queue.put("5", group="g")
        assert drained(queue) == ["1", "3", "4", "5"]


def test_a_put_that_a_signal_ends_during_its_wait_is_not_sent_later(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    with Spool(root, sync="none") as spool:
        queue = spool.queue(QUEUE)
        spool.create_queue(QUEUE, fifo=True)

        def interrupted(other: Spool) -> None:
            with locked(spool), pytest.raises(TimeLimit):
                limited(0.05, lambda: other.queue(QUEUE).put("1", group="g"))
            other.queue(QUEUE).put("2", group="g")

        apart(root, interrupted)
        assert drained(queue) == ["2"]


@pytest.mark.parametrize("is_after", [False, True])
def test_a_put_that_is_interrupted_at_any_call_leaves_the_queue_in_order(
    tmp_path: Path, is_after: bool
) -> None:
    """It is stored in its place, or not at all; and its retry is stored once."""
    for at in range(1000):
        root = tmp_path / str(at)
        with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
            spool.create_queue(QUEUE, fifo=True)
            queue, there = spool.queue(QUEUE), other.queue(QUEUE)
            queue.put("1", group="g")
            batch = [NewMessage(text, group="g", dedup_id=text.decode()) for text in (b"2", b"3")]
            with raising(at, is_after) as calls, suppress(TimeLimit):
                queue.put_many(batch)
            one, two = (there, queue) if at % 2 else (queue, there)
            one.put("4", group="g")
            ids = two.put_many(batch)
            assert drained(queue) in (["1", "2", "3", "4"], ["1", "4", "2", "3"])
            assert one.put_many(batch) == ids
            assert queue.counts().total == 0
            assert os.listdir(root / "new") == []
        if len(calls) <= at:
            assert at > 8
            return
    raise AssertionError("the put did not end")


@contextmanager
def raising(at: int, is_after: bool) -> Iterator[list[str]]:
    """Let the mutating call of this number raise TimeLimit, before or after it is made."""
    calls: list[str] = []
    names = {name: getattr(os, name) for name in MUTATING}
    rename2 = Tree._rename2

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) != at + 1:
                return call(*arguments, **named)
            if is_after:
                made = call(*arguments, **named)
                if name == "open":
                    os.close(made)
            raise TimeLimit

        return wrapped

    for name, call in names.items():
        setattr(os, name, wrap(name, call))
    Tree._rename2 = wrap("rename2", rename2)  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        for name, call in names.items():
            setattr(os, name, call)
        Tree._rename2 = rename2  # type: ignore[method-assign]


# -- other processes -----------------------------------------------------------------------------


def test_a_stopped_sender_holds_up_only_its_queue(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "PATIENCE_S", 0.2)
    other = spool.queue("others")
    spool.create_queue("others", fifo=True)
    topic = spool.topic("both", create=True)
    topic.subscribe(QUEUE)
    topic.subscribe("others")
    with locked(spool):
        publish = in_thread(lambda: topic.publish(b"never", group="g"))
        eventually(waiting(spool, 1))
        other.put("1", group="g")
        with pytest.raises(Unavailable):
            queue.put("1", group="g")
        publish.join()
    queue.put("2", group="g")
    assert (drained(other), drained(queue)) == (["1"], ["2"])


def test_a_put_that_waited_for_a_deletion_fails(spool: Spool, queue: Queue) -> None:
    errors: list[Exception] = []

    def put() -> None:
        try:
            queue.put("1", group="g", dedup_id="1")
        except Exception as error:
            errors.append(error)

    with locked(spool):
        thread = threading.Thread(target=put)
        thread.start()
        eventually(waiting(spool, 1))
        (spool.tree.root / "queues" / QUEUE).rmdir()
    thread.join()
    assert [type(error).__name__ for error in errors] == ["NoSuchQueue"]
    assert [n for n in os.listdir(spool.tree.root / "config") if n.endswith(".sends")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_of_a_dead_put_of_another_user_are_skipped(shared: Path) -> None:  # noqa: F811
    def setting_up() -> str:
        with Spool(shared, sync="none") as spool:
            spool.create_queue(QUEUE, fifo=True)
            return spool.queue(QUEUE).put("1", group="g")

    def put() -> str:
        with Spool(shared, sync="none") as spool:
            reported: list[str] = []
            stamps, report = spool.context.stamps, lambda path, _: reported.append(path)
            send_lines.Recovery(spool.tree, stamps, QUEUE, time.time(), report).try_it()
            spool.queue(QUEUE).put("3", group="g")
            return " ".join([str(len(reported)), *drained(spool.queue(QUEUE))])

    as_its_user(setting_up)
    os.chown(shared, 0, 0)  # else root is refused
    with Spool(shared, sync="none") as spool:
        die_sending(spool, NewMessage(b"2", group="g"))
        os.chown(shared, NOBODY, NOBODY)
        assert as_its_user(put) == "1 1 3"
        spool.deliver()
        assert drained(spool.queue(QUEUE)) == ["2"]


@contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> Iterator[None]:
    """Files with these names cannot be read."""
    real = os.read

    def read(fd: int, count: int) -> bytes:
        if os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, count)

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        yield


def left_by_dead(spool: Spool) -> list[str]:
    return sorted(name for name in os.listdir(spool.tree.root / "new") if name[0] == ".")


def test_an_unreadable_message_of_a_dead_put_holds_up_no_other(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put("1", group="g")
    die_sending(spool, NewMessage(b"2", group="g"), NewMessage(b"3", group="other"))
    [bad, _] = left_by_dead(spool)
    reported: list[str] = []
    context = spool.context
    recovery = send_lines.Recovery(
        spool.tree, context.stamps, QUEUE, context.clock(), lambda path, why: reported.append(path)
    )
    with unreadable(monkeypatch, [bad]):
        recovery.try_it()
        queue.put("4", group="g")
        assert drained(queue) == ["1", "3", "4"]
    assert reported == [f"new/{bad}"]
    spool.deliver()
    recovery.try_it()
    assert drained(queue) == ["2"]


def test_a_retry_waits_until_the_message_of_a_dead_put_can_be_read(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be complete or torn: a retry now would be lost, or stored twice."""
    die_sending(spool, NewMessage(b"1", group="g", dedup_id="one"))
    with unreadable(monkeypatch, left_by_dead(spool)):
        for _ in range(2):
            with pytest.raises(Unavailable, match="EIO"):
                queue.put("1", group="g", dedup_id="one")
    queue.put("1", group="g", dedup_id="one")
    queue.put("2", group="g")
    assert drained(queue) == ["1", "2"]


# -- time ----------------------------------------------------------------------------------------


def test_places_follow_the_clock_again_when_no_message_is_ahead_of_it(
    spool: Spool, queue: Queue, clock: Clock
) -> None:
    clock.now += 365 * 86_400
    queue.put("1", group="g")
    clock.now -= 365 * 86_400
    with Spool(spool.tree.root, sync="none", clock=clock) as later:
        there = later.queue(QUEUE)
        known = there.put("2", group="g", dedup_id="2")
        assert drained(there) == ["1", "2"]
    with Spool(spool.tree.root, sync="none", clock=clock) as latest:
        there = latest.queue(QUEUE)
        now = there.put("3", group="g")
        assert now < known
        [message] = there.peek()
        assert message.created_at == pytest.approx(clock.now, abs=1)
        assert there.put("2", group="g", dedup_id="2") == known
    die_sending(spool, NewMessage(b"4", group="g"))
    assert queue.put("2", group="g", dedup_id="2") == known


def test_a_running_process_follows_the_clock_again(
    spool: Spool, queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "_LOOK_EVERY_S", 0.0)
    clock.now += 86_400
    queue.put("1", group="g")
    clock.now -= 86_400
    queue.put("2", group="g")
    assert [m.body for m in queue.claim(9)] == [b"1"]
    queue.put("3", group="g")
    ahead = [m.created_at for m in queue.peek(9)]
    assert all(at is not None and at > clock.now + 80_000 for at in ahead)
    for message in queue.peek(9, state="in_flight"):
        queue.ack(message.id)
    assert drained(queue) == ["2", "3"]
    queue.put("4", group="g")
    assert [m.created_at for m in queue.peek(9)] == [pytest.approx(clock.now, abs=1)]


def test_attributes_must_not_forge_a_dedup_id(queue: Queue) -> None:
    with pytest.raises(InvalidValue):
        queue.put("passed on", group="g", attributes={"fsmq.dedup": "1"})
