"""Forms and settings as pages show and parse them, and recent actions."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq.http.ui.setting_fields import (
    OF_CHANNEL,
    OF_LOG,
    OF_QUEUE,
    Fields,
    in_words,
    parsed,
    setting_field,
    shown,
)
from fsmq.http.ui.slimming import UNUSED
from fsmq.http.ui.words import size
from fsmq.spool import QueueSettings
from fsmq.spool.errors import InvalidValue
from fsmq.spool.resources import SETTINGS
from fsmq.spool.spool import Spool
from tests.harness.suite import HOME, Suite, eventually

from .asked import Api
from .test_by_hand import ask

TYPED: Mapping[str, Any] = {
    "5m": ("visibility_timeout", 300.0), "2 days": ("retention", 172_800.0),
    "": ("retention", None), "64 KiB": ("max_message_bytes", 65_536),
    "10 messages": ("max_depth", 10), "10/s": ("max_rate", 10),
    "0.5": ("max_rate", 0.5), "1 000": ("max_depth", 1000),
    "zstd": ("compression", "zstd"), "true": ("dedup_by_content", True),
}  # fmt: skip


@pytest.mark.parametrize("text", TYPED)
def test_settings_are_parsed_with_units(text: str) -> None:
    name, value = TYPED[text]
    assert parsed(name, SETTINGS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("visibility_timeout", "8 days", "must be 0 seconds to 7 days"),
        ("visibility_timeout", "", "must be 0 seconds to 7 days"),
        ("max_deliveries", "300", "must be 1 to 99 claims"),
        ("max_deliveries", "1.5", "must be 1 to 99 claims"),
        ("max_message_bytes", "much", "must be 1 byte to 1 TiB"),
        ("max_rate", "9" * 400, "must be 0.001 to"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_units(
    name: str, text: str, problem: str
) -> None:
    with pytest.raises(InvalidValue, match=problem):
        parsed(name, SETTINGS[name], text)


@given(st.integers(0, 604_800_000), st.one_of(st.none(), st.integers(1, 2**40)))
def test_an_unchanged_form_changes_nothing(timeout_ms: int, size: int | None) -> None:
    settings = QueueSettings(visibility_timeout=timeout_ms / 1000, max_message_bytes=size)
    for name in (name for group in OF_QUEUE.groups.values() for name in group):
        before = getattr(settings, name)
        one = setting_field(SETTINGS, name, before)
        assert shown(SETTINGS[name], before) == one.value
        if not one.choices:
            assert parsed(name, SETTINGS[name], one.value) == pytest.approx(before)


@pytest.mark.parametrize(
    ("fields", "fixed"),
    [(OF_QUEUE, {"paused", "fifo", "index"}), (OF_LOG, set()), (OF_CHANNEL, {"paused"})],
)
def test_each_setting_is_in_one_group(fields: Fields, fixed: set[str]) -> None:
    grouped = [name for group in fields.groups.values() for name in group]
    assert len(grouped) == len(set(grouped))
    assert set(fields.settings) - set(grouped) == fixed


def test_settings_are_shown_with_units() -> None:
    assert in_words("max_partition_age", SETTINGS["max_partition_age"], 432_000.0) == "5 days"
    assert in_words("min_partitions", SETTINGS["min_partitions"], 1) == "1 partition"
    assert in_words("max_depth", SETTINGS["max_depth"], None) == "any number"


def test_sizes_are_shown_with_units() -> None:
    assert [size(count) for count in (0, 1, 2, 1024)] == ["0 bytes", "1 byte", "2 bytes", "1.0 KiB"]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("max_messages", "max_depth"),
        ("max_length", "max_depth"),
        ("max_retries", "max_deliveries"),
        ("max_attempts", "max_deliveries"),
    ],
)
def test_a_common_name_of_a_setting_suggests_ours(name: str, ours: str) -> None:
    with pytest.raises(InvalidValue, match=rf"did you mean {ours}\?"):
        QueueSettings().changed({name: 5})


def test_a_dead_letter_shows_its_deliveries_in_both_queues(suite: Suite) -> None:
    api = Api(suite)
    api.make("buried.dead")
    api.make("buried", max_deliveries=5, dead_letter_queue="buried.dead")
    api.put("buried")
    message = api.claim("buried")
    with Spool(suite.root, sync="none") as spool:
        spool.queue("buried").bury(message, reason="no address")
    text = ask(suite, "GET", f"q/buried.dead/m/{message}").text
    assert "<dt>Deliveries here</dt><dd>0" in text
    assert "after 1 delivery" in text


def test_a_message_that_is_tried_again_shows_why(suite: Suite) -> None:
    api = Api(suite)
    api.make("retried", max_deliveries=5, dead_letter_queue="retried.dead")
    api.put("retried")
    message = api.claim("retried")
    api.ask("PATCH", f"/retried/messages/{message}?visibility=0&reason=no+answer")
    text = eventually(
        lambda: (
            "<dt>Last failure</dt>" in (t := ask(suite, "GET", f"q/retried/m/{message}").text) and t
        )
    )
    assert "<dt>Last failure</dt><dd>no answer, " in text
    assert "because: no answer" in text


def test_a_page_has_its_heading_once_in_its_title(suite: Suite) -> None:
    for place in ("new-log", "schedules/new"):
        text = ask(suite, "GET", place).text
        heading = re.findall("<h1>(.*?)</h1>", text)[0]
        [title] = re.findall("<title>(.*?)</title>", text)
        assert title.split(" – ").count(heading) == 1, title


def test_a_refused_form_keeps_its_values(suite: Suite) -> None:
    Api(suite).make("kept")
    with Spool(suite.root, sync="none") as spool:
        spool.log("kept", create=True).channel("reader").create("first")
    channel = "logs/kept/c/reader"
    cases: list[tuple[str, dict[str, str], str]] = [
        ("q/kept", {"do": "send", "body": "<b>&", "priority": "300"}, "priority"),
        ("q/kept", {"do": "send", "body": "x", "delay": "soon"}, "delay"),
        ("q/kept", {"do": "configure", "max_depth": "9 lives of"}, "max_depth"),
        ("schedules", {"do": "define", "name": "n", "cron": "@never", "queue": "kept"}, "cron"),
        ("queues", {"do": "create", "queue": "a/b"}, "queue"),
        ("topics", {"do": "create", "topic": "a/b"}, "topic"),
        ("logs", {"do": "create", "log": "a/b", "retain_for": "7d"}, "log"),
        ("logs", {"do": "create", "log": "never", "retain_for": "7 moons"}, "retain_for"),
        ("logs/kept", {"do": "create_channel", "channel": "a b", "from": "5"}, "channel"),
        ("logs/kept", {"do": "create_channel", "channel": "x", "from": "then"}, "from"),
        ("logs/kept", {"do": "configure", "retain_for": "soon"}, "retain_for"),
        (channel, {"do": "seek", "to": "yesterday"}, "to"),
        (channel, {"do": "configure", "max_window": "9 lives"}, "max_window"),
        (channel, {"do": "configure", "on_poison": "bury"}, "on_poison"),
    ]
    for path, form, field in cases:
        status, text = ask(suite, "POST", path, **form)
        assert status == 400, (path, text)
        assert f'id="f-{field}-problem"' in text, path
        for name, value in form.items():
            assert html.escape(value, quote=False) in text, (path, name)
    with Spool(suite.root, sync="none") as spool:
        assert spool.logs() == ["kept"]
        assert spool.log("kept").channels() == ["reader"]


def test_an_error_names_the_kind_of_the_wrong_name(suite: Suite) -> None:
    form = {"do": "define", "name": "a b", "cron": "@daily", "queue": "kept"}
    assert "is not a schedule name" in ask(suite, "POST", "schedules", **form).text
    assert "is not a log name" in ask(suite, "POST", "logs", do="create", log="a b").text


def test_settings_of_logs_have_units(suite: Suite) -> None:
    with Spool(suite.root, sync="none") as spool:
        log = spool.log("united", create=True)
        log.channel("reader").create("first")
        form = {"do": "configure", "retain_for": "2d", "segment_bytes": "1 MiB"}
        asked = ask(suite, "POST", "logs/united", **form).text
        assert "retain_for: 7 days → 2 days" in asked
        assert "fsmq log config united retain_for=172800 segment_bytes=1048576" in asked
        assert ask(suite, "POST", "logs/united", sure="yes", **form).status == 303
        assert (log.stats().settings.retain_for, log.stats().settings.segment_bytes) == (
            172_800,
            2**20,
        )
        text = ask(suite, "GET", "logs/united/settings").text
        assert 'Changed from the default: <a href="#s-retain_for">retain for</a>' in text
        form = {"do": "configure", "max_lag": "", "visibility_timeout": "5m"}
        asked = ask(suite, "POST", "logs/united/c/reader", **form).text
        assert "fsmq channel config united reader visibility_timeout=300 max_lag=none" in asked
        assert ask(suite, "POST", "logs/united/c/reader", sure="yes", **form).status == 303
        settings = log.channel("reader").state().settings
    assert (settings.max_lag, settings.visibility_timeout) == (None, 300)


def test_the_error_of_a_filter_is_beside_its_field(suite: Suite) -> None:
    Api(suite).make("filtered")
    for query, field in (("older_than=soon", "older_than"), ("attribute=x", "attribute")):
        status, text = ask(suite, "GET", f"q/filtered?{query}")
        assert (status, f'id="f-{field}-problem"' in text) == (400, True), query
    assert ask(suite, "GET", "q/filtered?older_than=5m").status == 200


def test_an_unknown_address_has_an_error_page(suite: Suite) -> None:
    for path in ("nope", "q", "static/x/y", "q/jobs/m/"):
        status, text = ask(suite, "GET", path)
        assert (status, text[:15]) == (404, "<!doctype html>"), path
    assert ask(suite, "POST", "dead", do="x")[1].startswith("<!doctype html>")


def test_a_search_without_result_says_so(suite: Suite) -> None:
    Api(suite).make("another")
    path = "queues?find=01a22b77-4d9f-71a5-b8e6-86766fe331c8"
    eventually(lambda: "No queue, topic, log or message is called" in ask(suite, "GET", path).text)


def test_a_search_finds_logs(suite: Suite) -> None:
    with Spool(suite.root, sync="none") as spool:
        spool.log("visits", create=True)
        spool.log("both", create=True)
        spool.create_queue("both")

    def found(name: str) -> tuple[int, list[str]]:
        status, text = ask(suite, "GET", f"queues?find={name}")
        return status, re.findall(r'Logs? of this name: <a href="\./(logs/[a-z]+)', text)

    assert found("visits") == (303, [])
    assert found("isit") == (200, ["logs/visits"])
    assert found("both") == (200, ["logs/both"])
    assert 'href="./q/both"' in eventually(
        lambda: text if "q/both" in (text := ask(suite, "GET", "queues?find=both").text) else ""
    )


def test_a_message_that_waits_for_its_retry_is_shown_as_retrying(suite: Suite) -> None:
    api = Api(suite)
    api.make("retried")
    api.put("retried")
    message = api.claim("retried")
    api.ask("PATCH", f"/retried/messages/{message}?release=3600")
    text = ask(suite, "GET", f"q/retried/m/{message}").text
    assert "<dd>retrying</dd>" in text
    assert "<dt>Next try</dt>" in text
    assert '<span class="tag">retry</span>' in ask(suite, "GET", "q/retried?state=delayed").text


def test_recent_actions_survive_a_restart(suite: Suite) -> None:
    api = Api(suite)
    api.make("recorded")
    api.put("recorded")
    channel = "logs/recorded/c/reader"
    for path, form in (
        ("q/recorded", {"do": "purge", "sure": "yes", "typed": "recorded"}),
        ("logs", {"do": "create", "log": "recorded"}),
        ("logs/recorded", {"do": "create_channel", "channel": "reader"}),
        (channel, {"do": "pause"}),
        (channel, {"do": "seek", "to": "first", "sure": "yes"}),
        ("logs/recorded", {"do": "delete", "sure": "yes", "typed": "recorded"}),
    ):
        assert ask(suite, "POST", path, **form).status == 303, path
    done = [
        ("purge", "recorded"),
        ("create", "logs/recorded"),
        ("create channel", "logs/recorded/reader"),
        ("pause", "logs/recorded/reader"),
        ("seek", "logs/recorded/reader"),
        ("delete", "logs/recorded"),
    ]
    suite.restart("mq")
    row = re.compile(r"<td>([a-z ]+)</td><td>([a-z/]*recorded[a-z/]*)</td>")
    eventually(lambda: row.findall(ask(suite, "GET", "work").text) == done[::-1])


def test_templates_use_no_elements_without_styles() -> None:
    templates = HOME / "fsmq/http/ui/templates"
    for template in templates.iterdir():
        text = template.read_text()
        for tag in re.findall(r"<([a-z0-9]+)", text):
            assert not UNUSED.search(tag), (template.name, tag)
        for attribute in re.findall(r'(?:type|role)="[a-z-]+"', text):
            # Pico styles buttons by their tag, and its groups contain buttons.
            bare = f"[{attribute}]".replace('"', "")
            known = bare in ("[type=button]", "[role=group]")
            assert known or not UNUSED.search(bare), template.name
