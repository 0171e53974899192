"""Settings are validated, durable, applied at once, and not lost by a mistake in a file."""

from __future__ import annotations

import errno
import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, NoSuchQueue, Queue, QueueSettings, Spool, Unavailable
from fsmq.spool.durability import settings_lock
from tests.spool import racing
from tests.spool.racing import OWN_OF_CHANNELS, OWN_OF_LOGS, OWN_SETTINGS, race


def test_a_new_queue_has_the_defaults(jobs: Queue, root: Path) -> None:
    assert jobs.settings() == QueueSettings()
    assert list((root / "config").iterdir()) == []


def test_settings_survive_a_restart(root: Path, jobs: Queue) -> None:
    jobs.configure(visibility_timeout=7, max_depth=9)
    with Spool(root, sync="none") as again:
        assert again.settings("jobs") == QueueSettings(visibility_timeout=7.0, max_depth=9)


def test_a_change_keeps_the_other_settings(jobs: Queue) -> None:
    jobs.configure(max_depth=9)
    jobs.configure(retention=3600)
    assert (jobs.settings().max_depth, jobs.settings().retention) == (9, 3600.0)
    jobs.configure(max_depth=None)
    assert jobs.settings().max_depth is None


def test_a_change_applies_to_other_processes_at_once(root: Path, jobs: Queue) -> None:
    with Spool(root, sync="none") as other:
        assert other.settings("jobs").max_depth is None
        for depth in (5, 6, 7):
            jobs.configure(max_depth=depth)
            assert other.settings("jobs").max_depth == depth


@pytest.mark.parametrize(
    "wrong",
    [
        {"visibility_timeout": -1},
        {"visibility_timeout": math.nan},
        {"visibility_timeout": math.inf},
        {"visibility_timeout": 8 * 86_400},
        {"visibility_timeout": None},
        {"visibility_timeout": "30"},
        {"visibility_timeout": True},
        {"max_deliveries": 0, "dead_letter_queue": "dead"},
        {"max_deliveries": 100, "dead_letter_queue": "dead"},
        {"max_deliveries": 1.5, "dead_letter_queue": "dead"},
        {"max_deliveries": 3},
        {"dead_letter_queue": "dead"},
        {"max_deliveries": 3, "dead_letter_queue": "../dead"},
        {"max_deliveries": 3, "dead_letter_queue": 7},
        {"max_deliveries": 3, "dead_letter_queue": "jobs"},
        {"retention": -1},
        {"default_delay": -1},
        {"default_delay": 10**9},
        {"max_message_bytes": 0},
        {"max_depth": 0},
        {"max_depth": "many"},
        {"colour": "red"},
    ],
)
def test_values_that_are_refused(jobs: Queue, root: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        jobs.configure(**wrong)
    assert jobs.settings() == QueueSettings()
    assert list((root / "config").iterdir()) == []
    assert jobs.spool.queues() == ["jobs"]


def test_dead_letters_are_enabled_and_disabled_together(jobs: Queue) -> None:
    jobs.configure(max_deliveries=3, dead_letter_queue="dead")
    assert jobs.spool.queues() == ["dead", "jobs"]
    with pytest.raises(InvalidValue):
        jobs.configure(max_deliveries=None)
    jobs.configure(max_deliveries=None, dead_letter_queue=None)
    assert jobs.settings() == QueueSettings()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b'{"max_depth": -1}', b"\x00", b"[" * 60_000, b"\xff\xfe\xfa"],
)
def test_an_invalid_file_changes_nothing(jobs: Queue, root: Path, content: bytes) -> None:
    jobs.configure(max_depth=9)
    assert jobs.settings().max_depth == 9
    (root / "config" / "jobs.json").write_bytes(content)
    assert jobs.settings().max_depth == 9
    assert jobs.spool.context.settings.problem("jobs") is not None
    with Spool(root, sync="none") as again:  # it has not seen the valid file
        assert again.settings("jobs") == QueueSettings()


def test_a_valid_file_has_no_problem(jobs: Queue) -> None:
    assert jobs.spool.context.settings.problem("jobs") is None
    jobs.configure(max_depth=9)
    assert jobs.spool.context.settings.problem("jobs") is None


def test_settings_of_a_missing_queue_are_an_error(spool: Spool) -> None:
    with pytest.raises(NoSuchQueue):
        spool.settings("gone")
    with pytest.raises(NoSuchQueue):
        spool.configure("gone", {"max_depth": 1})


def test_concurrent_changes_of_different_settings_are_all_kept(root: Path) -> None:
    rounds = 20
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
        spool.log("events", create=True).channel("mail").create()
        spool.create_topic("news")
        race(racing.change_one_setting, root, len(OWN_SETTINGS), rounds)
        for settings, names in (
            (spool.settings("jobs"), OWN_SETTINGS),
            (spool.log("events").settings(), OWN_OF_LOGS),
            (spool.log("events").channel("mail").settings(), OWN_OF_CHANNELS),
        ):
            found = {name: getattr(settings, name) for name in names}
            assert found == {name: True if name == "paused" else rounds for name in names}
        about = spool.context.topics.about("news")
        assert about == {f"by {number}": rounds for number in range(len(OWN_SETTINGS))}


def test_a_process_that_is_stopped_during_a_change_blocks_only_changes(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.01)
    with settings_lock.settings_held(spool.tree, "jobs"):
        for change in (lambda: jobs.configure(max_depth=3), jobs.delete):
            with pytest.raises(Unavailable, match="stopped"):
                change()
        assert not jobs.create()
        jobs.put(b"x")
        assert [m.body for m in jobs.claim()] == [b"x"]
        assert spool.create_queue("other")
    assert jobs.configure(max_depth=3).max_depth == 3


def test_a_stopped_process_blocks_only_changes_of_logs_channels_and_topics(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.01)
    log, topic = spool.log("events", create=True), spool.topic("news", create=True)
    channel = log.channel("mail")
    channel.create()
    topic.subscribe("jobs")
    with settings_lock.settings_held(spool.tree, settings_lock.LOG + "events"):
        for change in (
            lambda: log.configure(retain_for=60.0),
            lambda: channel.configure(paused=True),
            lambda: log.channel("other").create(),
            channel.delete,
            log.delete,
        ):
            with pytest.raises(Unavailable, match="stopped"):
                change()
        assert (log.create(), channel.create()) == (False, False)
        log.publish(b"x")
        channel.ack(*channel.claim())
    with settings_lock.settings_held(spool.tree, settings_lock.TOPIC + "news"):
        subscriptions = (partial(verb, "jobs") for verb in (topic.subscribe, topic.unsubscribe))
        for change in (*subscriptions, topic.delete):
            with pytest.raises(Unavailable, match="stopped"):
                change()
        assert not topic.create()
        assert list(topic.publish(b"x")) == ["jobs"]
    assert topic.subscriptions() == {"jobs": None}
    assert channel.lag() == 0


def test_a_change_writes_only_the_given_settings(jobs: Queue, root: Path) -> None:
    path = root / "config" / "jobs.json"
    path.write_text('{"max_depth": 9, "visibility_timeout": 30, "of a later version": [1]}')
    assert jobs.settings() == QueueSettings(max_depth=9, visibility_timeout=30.0)
    jobs.configure(retention=60)
    kept = {"max_depth": 9, "visibility_timeout": 30, "of a later version": [1]}
    assert json.loads(path.read_text()) == {**kept, "retention": 60.0}
    jobs.configure(retention=None)
    assert json.loads(path.read_text()) == kept


def test_a_change_of_a_log_or_channel_keeps_unknown_settings(spool: Spool, root: Path) -> None:
    log = spool.log("users", create=True)
    mailer = log.channel("mailer", create=True)
    folder = root / "logs" / "users"
    for path in (folder / "log.json", folder / "channels" / "mailer" / "channel.json"):
        later = {**json.loads(path.read_text()), "of a later version": [1]}
        path.write_text(json.dumps(later))
        log.configure(retain_for=60)
        mailer.configure(max_lag=60)
        assert json.loads(path.read_text())["of a later version"] == [1]
    assert (log.settings().retain_for, mailer.settings().max_lag) == (60, 60)


def test_an_invalid_file_is_not_replaced(jobs: Queue, root: Path) -> None:
    path = root / "config" / "jobs.json"
    for content in ('{"max_depth": 9,}', '{"max_depth": -1}'):
        path.write_text(content)
        with pytest.raises(Unavailable, match=r"config/jobs.json cannot be understood"):
            jobs.configure(retention=60)
        assert path.read_text() == content


def test_changes_fail_and_deletions_succeed_without_room_for_a_lock(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change without the lock could overwrite another one."""
    spool.create_topic("news")
    log = spool.log("users", create=True)
    log.channel("mailer").create()
    create = spool.tree.create

    def full(path: str, *flags: int) -> int:
        if path.endswith(".lock") and path.startswith("config/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(path, *flags)

    monkeypatch.setattr(spool.tree, "create", full)
    for change in (
        lambda: jobs.configure(paused=True),
        lambda: spool.create_queue("more"),
        lambda: log.configure(retain_for=60),
        lambda: log.channel("mailer").configure(paused=True),
        lambda: spool.topic("news").subscribe("jobs"),
    ):
        with pytest.raises(Unavailable, match="ENOSPC"):
            change()
    log.channel("mailer").delete()
    log.delete()
    spool.topic("news").delete()
    jobs.delete()
