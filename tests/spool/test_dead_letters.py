"""Dead letters know from where, why and when they were buried, wherever they are moved."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path

import pytest

from fsmq.spool import Bury, InvalidValue, Message, NewMessage, Queue, Spool, Unavailable
from fsmq.spool.durability.locks import lock
from fsmq.spool.layout.messages import dead_letter
from fsmq.spool.layout.messages.dead_letter import MAX_REASON_BYTES, DeadLetter, reason_of
from tests.harness.calls import Trap, failing, seen
from tests.spool.helpers import Clock


@pytest.fixture
def dead(spool: Spool, jobs: Queue) -> Queue:
    """The dead-letter queue of `jobs`."""
    jobs.configure(max_deliveries=2, dead_letter_queue="dead")
    return spool.queue("dead")


def known(message: Message | None) -> DeadLetter:
    assert message is not None
    assert message.dead_letter is not None
    return message.dead_letter


def only(queue: Queue) -> Message:
    [message] = queue.peek()
    return message


def test_one_that_was_delivered_too_often_says_so(jobs: Queue, dead: Queue, clock: Clock) -> None:
    jobs.put(b"poison")
    for _ in range(2):
        assert jobs.claim(visibility=5)
        clock.advance(5)
        jobs.spool.deliver()
    told = DeadLetter("jobs", "max_deliveries", 2, clock.now)
    assert only(dead).dead_letter == told
    found = dead.find(only(dead).id)
    assert found is not None
    assert found.dead_letter == told


def test_so_does_one_whose_last_delivery_is_released(
    jobs: Queue, dead: Queue, clock: Clock
) -> None:
    jobs.put(b"poison")
    for _ in range(2):
        jobs.claim()[0].release()
    assert only(dead).dead_letter == DeadLetter(
        "jobs", "max_deliveries", 2, jobs.spool.context.clock()
    )


def test_bury_gives_the_reason(jobs: Queue, dead: Queue, clock: Clock) -> None:
    jobs.put(b"poison")
    jobs.claim()[0].bury("no such customer: Ωmega")
    assert only(dead).dead_letter == DeadLetter("jobs", "no such customer: Ωmega", 1, clock.now)


def test_bury_needs_no_reason(jobs: Queue, dead: Queue, clock: Clock) -> None:
    jobs.put(b"poison")
    jobs.claim()[0].bury()
    assert only(dead).dead_letter == DeadLetter("jobs", None, 1, clock.now)


def test_the_text_of_an_exception_is_the_reason(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"poison")
    with jobs.claim_one():
        raise Bury("line one\nline two\x1b[31m" + "ä" * 2000)
    reason = known(only(dead)).reason or ""
    assert reason.startswith("line one line two [31mää")
    assert reason.endswith("ä…")
    assert MAX_REASON_BYTES - 2 <= len(reason.encode()) <= MAX_REASON_BYTES
    assert reason_of(ValueError()) is None


def test_a_reason_that_is_too_long_is_refused_and_nothing_is_buried(
    jobs: Queue, dead: Queue
) -> None:
    jobs.put(b"poison")
    [message] = jobs.claim()
    with pytest.raises(InvalidValue, match=r"reason: .* 1024 bytes .*, not 1026"):
        message.bury("ä" * 513)
    assert dead.peek() == []
    message.bury("ä" * 512)
    assert only(dead).dead_letter is not None


def test_other_messages_are_no_dead_letters(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"x")
    jobs.spool.deliver()
    assert only(jobs).dead_letter is None


def test_it_goes_with_the_message_by_fsmq_and_by_hand(
    spool: Spool, jobs: Queue, dead: Queue, root: Path
) -> None:
    jobs.put(b"poison", id="plain")
    jobs.claim()[0].bury("why")
    told = only(dead).dead_letter
    assert told is not None
    dead.move_to("other" if spool.create_queue("other") else "")
    assert only(spool.queue("other")).dead_letter == told
    shell = 'mv "$1/queues/other/plain" "$1/new/jobs:again"'
    subprocess.run(["sh", "-c", shell, "sh", str(root)], check=True)
    spool.deliver()
    assert only(jobs).dead_letter == told
    assert (root / "queues/jobs/again").read_bytes() == b"poison"
    # A claim does not look for it: that would cost each of them a system call.
    [claimed] = jobs.claim()
    assert claimed.dead_letter is None
    # What counts is its last death.
    claimed.bury("once more")
    assert known(only(dead)).reason == "once more"


def test_a_shell_reads_it(jobs: Queue, dead: Queue, root: Path, clock: Clock) -> None:
    jobs.put(b"poison")
    jobs.claim()[0].bury("no such customer")
    path = root / "queues/dead" / only(dead).id
    line = f"{round(clock.now * 1000)} 1 jobs no such customer"
    assert os.getxattr(path, "user.fsmq.dead").decode() == line
    copy = path.with_name("copy")
    subprocess.run(["cp", "-a", str(path), str(copy)], check=True)
    assert dead_letter.unpack(os.getxattr(copy, "user.fsmq.dead")) == known(dead.find("copy"))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"1 2",
        b"1 2 .no",
        b"-1 2 jobs",
        b"1 -2 jobs",
        b"99999999999999999 1 jobs",
        b"\xff",
    ],
)
def test_what_is_no_such_line_says_nothing(jobs: Queue, root: Path, value: bytes) -> None:
    jobs.put(b"x", id="x")
    jobs.spool.deliver()
    os.setxattr(root / "queues/jobs/x", "user.fsmq.dead", value)
    assert only(jobs).dead_letter is None


def test_one_that_a_person_wrote_is_cleaned() -> None:
    told = dead_letter.unpack(b"1500 0 jobs a\tb\x1b[2J\nc \xff")
    assert told == DeadLetter("jobs", "a b [2J c \ufffd", None, 1.5)


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_without_room_for_it_a_message_is_buried_all_the_same(
    jobs: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*of: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "setxattr", refuse)
    jobs.put(b"poison")
    jobs.claim()[0].bury("why")
    assert only(dead).body == b"poison"
    assert only(dead).dead_letter is None


def test_where_the_disk_fails_for_it_the_burial_is_to_be_tried_again(
    jobs: Queue, dead: Queue
) -> None:
    jobs.put(b"poison")
    [message] = jobs.claim()
    with seen(Trap("setxattr", failing(0))), pytest.raises(Unavailable, match="EIO"):
        message.bury("why")
    found = jobs.find(message.id)
    assert found is not None
    assert (found.state, found.deliveries) == ("in_flight", 1)
    message.bury("why")
    assert known(only(dead)).reason == "why"


def test_a_letter_of_a_channel_is_to_be_tried_again_too(spool: Spool, root: Path) -> None:
    log = spool.log("users", create=True)
    log.publish(b"poison")
    mailer = log.channel("mailer")
    mailer.create("first", dead_letter_queue="dead")
    [message] = mailer.claim()
    with seen(Trap("setxattr", failing(0))), pytest.raises(Unavailable, match="EIO"):
        mailer.bury(message, reason="why")
    assert os.listdir(root / "new") == []
    mailer.bury(message, reason="why")
    spool.deliver()
    assert known(only(spool.queue("dead"))).reason == "why"


def test_a_burial_that_fails_leaves_the_message_as_it_was(
    spool: Spool, jobs: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"poison")
    [message] = jobs.claim()
    message.bury("first")
    dead.move_to("jobs")
    [message] = jobs.claim()
    monkeypatch.setattr(spool.tree, "move", lambda *of: False)
    with pytest.raises(Exception, match="in flight"):
        jobs.bury(message, "second")
    monkeypatch.undo()
    found = jobs.find(message.id)
    assert found is not None
    assert (found.state, found.deliveries) == ("in_flight", 1)
    assert known(found).reason == "first"


def test_bury_by_the_mover_opens_no_other_file(
    jobs: Queue, dead: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"poison", id="x")
    jobs.claim()[0].release()
    jobs.claim(visibility=1)
    clock.advance(1)
    opened, real = [], os.open

    def noted(path: str, *of: int, **by: int) -> int:
        opened.append(path)
        return real(path, *of, **by)

    monkeypatch.setattr(os, "open", noted)
    jobs.spool.deliver()
    monkeypatch.undo()
    assert only(dead).id == "x"
    assert [path for path in opened if str(path).endswith("x")] == ["delay/jobs:x"]


def test_who_is_stopped_creating_the_dead_letter_queue_holds_up_no_delivery(
    spool: Spool, jobs: Queue, dead: Queue, clock: Clock
) -> None:
    jobs.configure(max_deliveries=1)
    jobs.put_many([NewMessage(b"x")] * 60)
    spool.deliver()
    assert len(jobs.claim(60)) == 60
    dead.delete()
    stopped = lock(spool.tree, "config/.dead.lock", os.O_CREAT)
    assert stopped is not None
    clock.advance(60)
    spool.queue("other", create=True).put(b"y")
    begun = time.monotonic()
    spool.deliver()
    assert time.monotonic() - begun < 3
    assert spool.counts("other").ready == 1
    assert jobs.counts().total == 60
    stopped.free()
    clock.advance(60)
    spool.deliver()
    assert dead.counts().ready == 60
