"""Groups of sends into fifo queues: what one that ends early leaves, and what becomes of it."""

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
from tests.spool.test_other_users import as_its_user, shared  # noqa: F401

QUEUE = "orders"


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none", clock=clock) as spool:
        spool.create_queue(QUEUE, fifo=True)
        yield spool


@pytest.fixture
def queue(spool: Spool) -> Queue:
    return spool.queue(QUEUE)


def drained(queue: Queue) -> list[str]:
    """What can be claimed, one behind the other."""
    found = []
    while claimed := queue.claim():
        found.append(claimed[0].body.decode())
        claimed[0].ack()
    return found


def failing(call: Callable[..., Any], path: str) -> Callable[..., Any]:
    """The call of a tree that says EIO about paths that contain this."""

    def fail(tree: Tree, *paths: str, **named: Any) -> Any:
        if any(path in one for one in paths):
            raise OSError(errno.EIO, os.strerror(errno.EIO), paths[0])
        return call(tree, *paths, **named)

    return fail


def refuse(work: object) -> None:
    raise Unavailable("the disk reports an I/O error (EIO)")


@contextmanager
def locked(spool: Spool, queue: str = QUEUE) -> Iterator[Lock]:
    """Someone else sends into a queue, who was stopped in the middle."""
    held = lock_sends(spool.tree, queue)
    assert held is not None
    try:
        yield held
    finally:
        held.unlock()


def die_sending(spool: Spool, *messages: NewMessage) -> None:
    """Let another process write messages, and die before its sync."""
    child = os.fork()
    if not child:
        with Spool(
            spool.tree.root, sync="none", delivers=False, clock=spool.context.clock
        ) as dying:
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


def waiting(spool: Spool, number: int) -> Callable[[], bool]:
    """Whether so many puts wait for their group."""
    return lambda: sum(len(some) for _, some in spool.context.sequencer._waiting.values()) == number


# -- failures ------------------------------------------------------------------------------------


def test_what_a_failed_put_could_not_take_back_comes_before_later_puts(
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


def test_a_failed_put_is_taken_back(
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
    """A rename of which the second fails."""
    real, shown = Tree.rename, list[str]()

    def rename(tree: Tree, source: str, target: str, **named: Any) -> bool:
        shown.append(target)
        if len(shown) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO), source)
        return real(tree, source, target, **named)

    return rename


def test_a_batch_of_which_one_could_not_be_shown_is_shown_by_the_next(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [NewMessage(b"%d" % n, group="ab"[n % 2], dedup_id=str(n)) for n in range(4)]
    rename = failing_second()
    with monkeypatch.context() as patch:
        patch.setattr(Tree, "rename", rename)
        with pytest.raises(Unavailable):
            queue.put_many(batch)
    [first] = os.listdir(spool.tree.root / "queues" / QUEUE)  # nothing behind the one that failed
    ids = queue.put_many([*batch, NewMessage(b"4", group="b")])
    assert ids[0] == first
    assert ids == sorted(ids)
    assert drained(queue) == ["0", "1", "2", "3", "4"]


def test_one_that_cannot_be_shown_ends_its_group_and_no_put_before_it(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, object] = {}

    def put(text: str) -> None:
        try:
            told[text] = queue.put(text, group="g")
        except Unavailable as error:
            told[text] = error

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
    assert isinstance(told["0"], str)
    assert isinstance(told["1"], Unavailable)
    assert isinstance(told["2"], Unavailable)
    queue.put("3", group="g")
    assert drained(queue) == ["0", "1", "2", "3"]


def test_what_a_power_cut_brings_back_of_a_failed_put_stays_hidden(
    spool: Spool, queue: Queue, clock: Clock
) -> None:
    """Its next try was stored, since nothing was left of it then."""
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


def test_a_line_that_is_lost_changes_no_order(spool: Spool, queue: Queue, clock: Clock) -> None:
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
    """Call with a time limit of the caller's, as programs set it with an alarm."""

    def stop(*given: object) -> None:
        raise TimeLimit

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def apart(root: Path, do: Callable[[Spool], object]) -> None:
    """Do something in the main thread of another process, which must end well."""
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


def test_a_put_that_a_signal_ends_in_its_sync_is_in_nobodys_way(tmp_path: Path) -> None:
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
            queue.put("4", group="g", dedup_id="2")  # by what its parent has opened

        apart(root, interrupted)
        queue.put("5", group="g")
        assert drained(queue) == ["1", "3", "4", "5"]


def test_a_put_that_a_signal_ends_in_its_wait_is_not_sent_later(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_put_that_is_interrupted_at_any_call_leaves_the_queue_in_order(
    tmp_path: Path, is_behind: bool
) -> None:
    """It is stored, in its place, or not at all; and its next try once."""
    for at in range(1000):
        root = tmp_path / str(at)
        with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
            spool.create_queue(QUEUE, fifo=True)
            queue, there = spool.queue(QUEUE), other.queue(QUEUE)
            queue.put("1", group="g")
            batch = [NewMessage(text, group="g", dedup_id=text.decode()) for text in (b"2", b"3")]
            with raising(at, is_behind) as calls, suppress(TimeLimit):
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
def raising(at: int, is_behind: bool) -> Iterator[list[str]]:
    """Let the mutating call of a number raise TimeLimit, before it is made or behind it."""
    calls: list[str] = []
    names = {name: getattr(os, name) for name in MUTATING}
    rename2 = Tree._rename2

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) != at + 1:
                return call(*arguments, **named)
            if is_behind:
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


# -- others --------------------------------------------------------------------------------------


def test_one_who_is_stopped_holds_up_his_queue_alone(
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


def test_a_put_waits_for_a_deletion_and_finds_no_queue(spool: Spool, queue: Queue) -> None:
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
def test_what_a_put_of_another_user_has_left_is_passed_over(shared: Path) -> None:  # noqa: F811
    def setting_up() -> str:
        with Spool(shared, sync="none") as spool:
            spool.create_queue(QUEUE, fifo=True)
            return spool.queue(QUEUE).put("1", group="g")

    def put() -> str:
        with Spool(shared, sync="none") as spool:
            reported: list[str] = []
            send_lines.Recovery(
                spool.tree,
                spool.context.stamps,
                QUEUE,
                time.time(),
                lambda p, _: reported.append(p),
            ).try_it()
            spool.queue(QUEUE).put("3", group="g")
            return " ".join([str(len(reported)), *drained(spool.queue(QUEUE))])

    as_its_user(setting_up)
    with Spool(shared, sync="none") as spool:
        die_sending(spool, NewMessage(b"2", group="g"))
        assert as_its_user(put) == "1 1 3"
        spool.deliver()
        assert drained(spool.queue(QUEUE)) == ["2"]


@contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> Iterator[None]:
    """The disk cannot read the bytes of files of these names."""
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


def test_what_cannot_be_read_of_a_dead_put_keeps_no_other(
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


def test_no_put_comes_before_one_that_cannot_be_read_and_whose_id_is_not_decided(
    spool: Spool, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be acknowledged, or torn: a retry would be lost, or stored twice."""
    die_sending(spool, NewMessage(b"1", group="g", dedup_id="one"))
    with unreadable(monkeypatch, left_by_dead(spool)):
        for _ in range(2):
            with pytest.raises(Unavailable, match="EIO"):
                queue.put("1", group="g", dedup_id="one")
    queue.put("1", group="g", dedup_id="one")
    queue.put("2", group="g")
    assert drained(queue) == ["1", "2"]


# -- time ----------------------------------------------------------------------------------------


def test_places_go_by_the_clock_again_when_none_stands_that_is_ahead(
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


def test_a_running_program_looks_at_the_clock_again(
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


def test_no_attribute_says_that_an_id_was_put(queue: Queue) -> None:
    with pytest.raises(InvalidValue):
        queue.put("passed on", group="g", attributes={"fsmq.dedup": "1"})
