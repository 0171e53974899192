"""Dead letters know their queue, the reason and the time of their burial, wherever they move."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Bury, InvalidValue, Message, NewMessage, Queue, Spool, Unavailable
from fsmq.spool.durability.locks import lock
from fsmq.spool.layout.messages import dead_letter
from fsmq.spool.layout.messages.dead_letter import MAX_REASON_BYTES, DeadLetter, reason_of
from fsmq.spool.records.life_words import details
from tests.harness.calls import Trap, failing, seen
from tests.spool.helpers import Clock, present


@pytest.fixture
def dead(spool: Spool, jobs: Queue) -> Queue:
    """The dead-letter queue of `jobs`."""
    jobs.configure(max_deliveries=2, dead_letter_queue="dead")
    return spool.queue("dead")


def known(message: Message | None) -> DeadLetter:
    return present(present(message).dead_letter)


def only(queue: Queue) -> Message:
    [message] = queue.peek()
    return message


@pytest.mark.parametrize("is_released", [False, True])
def test_a_message_is_buried_after_its_last_delivery(
    jobs: Queue, dead: Queue, clock: Clock, is_released: bool
) -> None:
    message_id = jobs.put(b"poison")
    for _ in range(2):
        [message] = jobs.claim(visibility=5)
        if is_released:
            message.release()
        else:
            clock.advance(5)
            jobs.spool.deliver()
    assert jobs.counts().total == 0
    letter = DeadLetter("jobs", "max_deliveries", 2, clock.now)
    assert only(dead).dead_letter == known(dead.find(message_id)) == letter
    [message] = dead.claim()
    assert (message.id, message.body, message.deliveries) == (message_id, b"poison", 1)


def test_the_last_release_keeps_its_reason(jobs: Queue, dead: Queue, clock: Clock) -> None:
    jobs.put(b"poison")
    jobs.claim()[0].release(reason="no answer")
    assert only(jobs).dead_letter is None
    with pytest.raises(ZeroDivisionError), jobs.claim()[0]:
        _ = 1 / 0
    reason = "max_deliveries: ZeroDivisionError: division by zero"
    assert only(dead).dead_letter == DeadLetter("jobs", reason, 2, clock.now)


def test_a_long_reason_of_the_last_release_is_shortened(jobs: Queue, dead: Queue) -> None:
    jobs.configure(max_deliveries=1)
    jobs.put(b"poison")
    with pytest.raises(InvalidValue, match="1024 bytes"):
        jobs.claim()[0].release(reason="x" * (MAX_REASON_BYTES + 1))
    [message] = jobs.peek(state="in_flight")
    jobs.release(message, reason="é" * (MAX_REASON_BYTES // 2))
    letter = present(only(dead).dead_letter)
    assert present(letter.reason).startswith("max_deliveries: éé")
    assert present(letter.reason).endswith("é…")
    assert len(present(letter.reason).encode()) in (MAX_REASON_BYTES - 1, MAX_REASON_BYTES)


@pytest.mark.parametrize("reason", ["no such customer: Ωmega", None])
def test_bury_keeps_its_reason(jobs: Queue, dead: Queue, clock: Clock, reason: str | None) -> None:
    jobs.put(b"poison")
    jobs.claim()[0].bury(reason)
    assert only(dead).dead_letter == DeadLetter("jobs", reason, 1, clock.now)


def test_the_text_of_an_exception_is_the_reason(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"poison")
    with jobs.claim_one():
        raise Bury("line one\nline two\x1b[31m" + "ä" * 2000)
    reason = known(only(dead)).reason or ""
    assert reason.startswith("line one line two [31mää")
    assert reason.endswith("ä…")
    assert MAX_REASON_BYTES - 2 <= len(reason.encode()) <= MAX_REASON_BYTES
    assert reason_of(ValueError()) is None


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_without_a_text_releases_its_message(jobs: Queue, dead: Queue) -> None:
    jobs.configure(max_deliveries=1)
    jobs.put(b"poison")
    with pytest.raises(Mute), jobs.claim_one():
        raise Mute
    assert known(only(dead)).reason == "max_deliveries: Mute"
    assert reason_of(Mute()) is None


@pytest.mark.parametrize("how", ["bury", "release", "release later", "timer", "worker"])
@pytest.mark.parametrize("state", ["ready", "in_flight", "new"])
def test_an_id_that_is_used_again_does_not_keep_its_message_from_being_buried(
    jobs: Queue, dead: Queue, root: Path, clock: Clock, state: str, how: str
) -> None:
    jobs.configure(max_deliveries=1)
    jobs.put(b"first", id="order-17")
    jobs.claim()[0].bury()
    if state == "in_flight":
        dead.claim(visibility=50)
    elif state == "new":
        os.rename(root / "queues/dead/order-17", root / "new/dead:order-17")
    jobs.put(b"second", id="order-17", priority=0, ttl=1000, attributes={"a": "b"})
    [message] = jobs.claim(visibility=10)
    if how == "timer":
        clock.advance(11)
        jobs.spool.deliver()
    elif how == "worker":
        with pytest.raises(ValueError, match="why"), message:
            raise ValueError("why")
    elif how == "bury":
        message.bury("why")
    else:
        message.release(5 if how == "release later" else 0, reason="why")
    jobs.spool.deliver()
    assert jobs.counts().total == 0
    clock.advance(100)
    jobs.spool.deliver()
    letters = {one.body: one for one in dead.peek()}
    second = letters[b"second"]
    assert letters[b"first"].id == "order-17" != second.id
    assert (second.attributes, second.deliveries) == ({"a": "b"}, 0)
    assert "why" in (known(second).reason or "") or how == "timer"
    assert dead.redrive().moved == 2
    assert sorted(one.body for one in jobs.claim(9)) == [b"first", b"second"]


@pytest.mark.parametrize("how", ["bury", "release", "timer"])
def test_two_messages_of_an_id_are_buried_at_the_same_moment(
    jobs: Queue, dead: Queue, clock: Clock, how: str
) -> None:
    """The second one comes between the look for its id and the rename of the first."""
    jobs.configure(max_deliveries=1)
    jobs.put(b"first", id="order-17")
    [message] = jobs.claim(visibility=10)
    clock.advance(11 if how == "timer" else 0)

    def bury(*_: Any) -> None:
        dead.put(b"second", id="order-17")

    with seen(Trap("_rename2", bury)):
        if how == "timer":
            jobs.spool.deliver()
        elif how == "bury":
            message.bury()
        else:
            message.release()
    assert jobs.counts().total == 0
    letters = {one.body: one for one in dead.peek()}
    assert (letters[b"second"].id, letters.keys()) == ("order-17", {b"first", b"second"})
    assert known(letters[b"first"]).deliveries == 1


def test_the_life_of_a_dead_letter_goes_on_under_its_new_id(root: Path) -> None:
    with Spool(root, journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_deliveries=2, dead_letter_queue="dead")
        for body in (b"first", b"second"):
            jobs.put(body, id="order-17")
            [message] = jobs.claim()
            message.bury()
        [letter] = [one for one in spool.queue("dead").peek() if one.body == b"second"]
        spool.queue("dead").redrive(only=[letter.id])
        spool.context.journal.flush()
        events = [step.event for step in jobs.life(letter.id).steps]
        assert events[-2:] == ["buried", "moved"]
        told = [details(step) for step in jobs.life("order-17").steps]
        assert any(one.startswith(f"to dead as {letter.id}") for one in told)


def test_a_bury_with_too_long_a_reason_is_refused(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"poison")
    [message] = jobs.claim()
    with pytest.raises(InvalidValue, match=r"reason: .* 1024 bytes .*, not 1026"):
        message.bury("ä" * 513)
    assert dead.peek() == []
    message.bury("ä" * 512)
    assert only(dead).dead_letter is not None


def test_other_messages_have_no_dead_letter(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"x")
    jobs.spool.deliver()
    assert only(jobs).dead_letter is None


def test_a_dead_letter_moves_with_its_message(
    spool: Spool, jobs: Queue, dead: Queue, root: Path
) -> None:
    jobs.put(b"poison", id="plain")
    jobs.claim()[0].bury("why")
    letter = known(only(dead))
    spool.create_queue("other")
    dead.move_to("other")
    assert only(spool.queue("other")).dead_letter == letter
    shell = 'mv "$1/queues/other/plain" "$1/new/jobs:again"'
    subprocess.run(["sh", "-c", shell, "sh", str(root)], check=True)
    spool.deliver()
    assert only(jobs).dead_letter == letter
    assert (root / "queues/jobs/again").read_bytes() == b"poison"
    # A claim does not read it: that would cost each claim a system call.
    [claimed] = jobs.claim()
    assert claimed.dead_letter is None
    claimed.bury("once more")
    assert known(only(dead)).reason == "once more"


def test_shell_users_read_dead_letters(jobs: Queue, dead: Queue, root: Path, clock: Clock) -> None:
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
def test_a_malformed_dead_letter_is_ignored(jobs: Queue, root: Path, value: bytes) -> None:
    jobs.put(b"x", id="x")
    jobs.spool.deliver()
    os.setxattr(root / "queues/jobs/x", "user.fsmq.dead", value)
    assert only(jobs).dead_letter is None


def test_control_characters_of_a_dead_letter_are_removed() -> None:
    letter = dead_letter.unpack(b"1500 0 jobs a\tb\x1b[2J\nc \xff")
    assert letter == DeadLetter("jobs", "a b [2J c \ufffd", None, 1.5)


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_without_room_for_a_dead_letter_the_message_is_buried(
    jobs: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*of: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "setxattr", refuse)
    jobs.put(b"poison")
    jobs.claim()[0].bury("why")
    assert only(dead).body == b"poison"
    assert only(dead).dead_letter is None


def test_a_burial_fails_if_the_disk_fails(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"poison")
    [message] = jobs.claim()
    with seen(Trap("setxattr", failing(0))), pytest.raises(Unavailable, match="EIO"):
        message.bury("why")
    found = present(jobs.find(message.id))
    assert (found.state, found.deliveries) == ("in_flight", 1)
    message.bury("why")
    assert known(only(dead)).reason == "why"


def test_a_burial_from_a_channel_fails_if_the_disk_fails(spool: Spool, root: Path) -> None:
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


@pytest.mark.parametrize("verb", ["bury", "release"])
def test_a_burial_from_a_channel_that_is_not_durable_is_an_error(root: Path, verb: str) -> None:
    def fail(name: str, of: tuple[Any, ...]) -> None:
        if name in ("fsync", "fdatasync") and "progress" in os.readlink(f"/proc/self/fd/{of[0]}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Spool(root, sync="fsync") as spool:
        log = spool.log("users", create=True)
        log.publish(b"poison")
        mailer = log.channel("mailer")
        mailer.create("first", dead_letter_queue="dead", max_deliveries=1, on_poison="bury")
        [message] = mailer.claim()
        with seen(fail), pytest.raises(Unavailable, match="EIO"):
            getattr(mailer, verb)(message, reason="why")


def test_a_failed_burial_leaves_the_message_as_it_was(
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
    found = present(jobs.find(message.id))
    assert (found.state, found.deliveries) == ("in_flight", 1)
    assert known(found).reason == "first"


def test_a_mover_buries_a_message_without_opening_another_file(
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


def test_a_stopped_creation_of_the_dead_letter_queue_blocks_no_delivery(
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
