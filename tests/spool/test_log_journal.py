"""Steps of logs in the journal: one line for each range of offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.records.journal import Journal
from tests.spool.helpers import Clock


def steps(root: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted((root / "journal").iterdir()) for line in path.open()]
    return [json.loads(line) for line in lines]


def brief(root: Path) -> list[tuple[Any, ...]]:
    return [
        (one["event"], one.get("channel"), one["offset"], one["count"])
        for one in steps(root)
        if "log" in one
    ]


def test_each_step_of_a_log_is_written(root: Path, clock: Clock) -> None:
    with Spool(root, journal=True, clock=clock) as spool:
        log = spool.log("users", create=True)
        mailer = log.channel("mailer")
        mailer.create(order="none", max_deliveries=2, dead_letter_queue="dead")
        log.publish_many([b"0", b"1", b"2", b"3", b"4"])
        log.publish(b"5")
        mailer.claim(6)
        mailer.ack(0, 1, 3)
        mailer.renew(2)
        mailer.release(4)
        mailer.bury(2)
        mailer.claim(1)
        mailer.release(4)
        spool.tend_logs()
        mailer.seek(5)
    assert brief(root) == [
        ("published", None, 0, 5),
        ("published", None, 5, 1),
        ("claimed", "mailer", 0, 6),
        ("done", "mailer", 0, 2),
        ("done", "mailer", 3, 1),
        ("renewed", "mailer", 2, 1),
        ("released", "mailer", 4, 1),
        ("buried", "mailer", 2, 1),
        ("claimed", "mailer", 4, 1),
        ("released", "mailer", 4, 1),
        ("buried", "mailer", 4, 1),
        ("sought", "mailer", 5, 0),
    ]
    found = [one for one in steps(root) if one["event"] == "claimed"]
    assert [one["deliveries"] for one in found] == [1, 2]
    about = {(one["v"], one["log"], one["via"]) for one in steps(root) if "log" in one}
    assert about == {(1, "users", "library")}


def test_retention_is_written(root: Path, clock: Clock) -> None:
    with Spool(root, journal=True, clock=clock) as spool:
        log = spool.log("users")
        log.create(retain_for=10, segment_bytes=4096)
        log.channel("slow").create("first", max_lag=20)
        for number in range(60):
            log.publish(b"%0100d" % number)
        clock.advance(30)
        spool.tend_logs()
        first = log.first()
        assert first > 0
    for name in ("lost", "retired"):
        assert sum(count for event, _, _, count in brief(root) if event == name) == first


def test_the_expiry_of_a_channel_is_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Spool(root, journal=True) as spool:
        log = spool.log("users", create=True)
        log.channel("idle").create("first", expires=5)
        log.channel("idle").claim()
        monkeypatch.setattr(
            "fsmq.spool.log.consuming.channels.ChannelStore.used_at_ns", lambda self: 0
        )
        spool.tend_logs()
        assert log.channels() == []
    assert ("expired", "idle", 0, 0) in brief(root)


def test_nothing_is_written_without_a_journal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **more: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Journal, "note_of_log", fails)
    with Spool(root) as spool:
        log = spool.log("users", create=True)
        channel = log.channel("mailer", create=True)
        log.publish(b"x")
        [message] = channel.claim()
        message.ack()
