"""Pages of logs and channels: contents, rights, and hostile texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from fsmq.spool.log.log import LogEntry
from fsmq.spool.spool import Spool
from tests.harness.suite import Suite
from tests.http.keyfile import add_key

from .asked import Api, Site, buttons
from .browser import OpenTab, needs_chromium
from .test_hostile import TEXTS

BUTTONS = {
    "new-log": {"create": "admin"},
    "logs/visits/new": {"create_channel": "admin"},
    "logs/visits": {"pause": "admin"},
    "logs/visits/settings": {"configure": "admin", "delete": "admin"},
    "logs/visits/c/stuck": {
        "pause": "admin", "seek": "admin", "skip": "receive", "bury": "receive",
    },
    "logs/visits/c/stuck/settings": {"configure": "admin", "delete": "admin"},
}  # fmt: skip
RIGHTS = ("look", "receive", "send", "admin")


def fill(spool: Spool) -> None:
    """Create a log with a channel that is blocked by a message."""
    visits = spool.log("visits", create=True)
    visits.publish_many([LogEntry(f"message {n}", key=f"k{n % 2}") for n in range(120)])
    stuck = visits.channel("stuck")
    stuck.create("first", order="strict", max_deliveries=1, dead_letter_queue="dead")
    stuck.configure(on_poison="block")
    [message] = stuck.claim()
    message.release()
    visits.channel("hidden").create("first")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("logs")
    file, keys = folder / "keys.toml", {}
    everything = ("*", "logs/*", "logs/*/*")
    for right in RIGHTS:
        see = () if right == "look" else tuple(f"--look={one}" for one in everything)
        keys[right] = add_key(file, right, *(f"--{right}={one}" for one in everything), *see)
    keys["some"] = add_key(file, "some", "--look=logs/visits", "--receive=logs/visits/stuck")
    keys["channel"] = add_key(file, "channel", "--receive=logs/visits/stuck")
    with Suite(folder / "root", mq_options=[f"--keys={file}", "--sync=none"]) as suite:
        with Spool(suite.root, sync="none") as spool:
            fill(spool)
        yield Site(suite, keys)


@pytest.mark.parametrize("right", RIGHTS)
def test_a_page_has_only_buttons_that_the_key_allows(site: Site, right: str) -> None:
    for path, of in BUTTONS.items():
        _, text = site.ask(right, "GET", path)
        for button, needed in of.items():
            assert (button in buttons(text)) == (needed == right), (path, button)


@pytest.mark.parametrize("right", RIGHTS)
def test_forged_forms_are_refused(site: Site, right: str) -> None:
    form = {"sure": "yes", "log": "made", "channel": "made", "to": "last", "offset": "0"}
    form |= {"generation": "1", "order": "none", "retain_for": "1"}
    for path, of in BUTTONS.items():
        for button, needed in of.items():
            place = "logs" if path == "new-log" else re.sub("/(settings|new)$", "", path)
            if button == "pause":
                place = "logs/visits/c/stuck"  # its button is also in a row of the log
            if needed != right:
                typed = place.rpartition("/")[2]
                status, _ = site.ask(right, "POST", place, {**form, "do": button, "typed": typed})
                assert status == 403, (place, button)
    with Spool(site.suite.root, sync="none") as spool:
        assert spool.logs() == ["visits"]
        assert spool.log("visits").channels() == ["hidden", "stuck"]
        state = spool.log("visits").channel("stuck").state()
    assert (state.position, state.blocked_at, state.paused) == (0, 0, False)


def test_pages_hide_logs_and_channels_without_the_right(site: Site) -> None:
    for path in ("logs", "logs/visits", ""):
        _, text = site.ask("some", "GET", path)
        assert "hidden" not in text.replace('class="hidden"', "").replace(" hidden>", ""), path
    assert "stuck" in site.ask("some", "GET", "logs/visits")[1]
    assert site.ask("some", "GET", "logs/visits/c/hidden")[0] == 403
    assert site.ask("channel", "GET", "logs/visits")[0] == 403
    status, text = site.ask("channel", "GET", "logs/visits/c/stuck")
    assert (status, 'value="skip"' in text) == (200, True)
    assert "logs/visits/m/0" not in text, "it may not read the log"
    assert 'href="./logs/visits' not in site.ask("channel", "GET", "logs")[1]


def test_a_log_is_read_from_an_offset_page_by_page(site: Site) -> None:
    def offsets(path: str) -> list[str]:
        return re.findall(r'id="o(\d+)"', site.ask("look", "GET", path)[1])

    assert offsets("logs/visits") == [str(n) for n in range(70, 120)], "the newest"
    assert offsets("logs/visits?from=10") == [str(n) for n in range(10, 60)]
    _, text = site.ask("look", "GET", "logs/visits?from=10")
    turns = re.findall(r'rel="(prev|next)" href="[^"]*from=(\d+)', text)
    assert turns == [("prev", "0"), ("next", "60")]
    _, text = site.ask("look", "GET", "logs/visits?from=500")
    assert "No message from here on" in text
    status, text = site.ask("look", "GET", "logs/visits?from=yesterday")
    assert (status, 'value="yesterday"' in text) == (400, True)
    assert "expected an offset" in text.partition('id="f-from-problem"')[2]


def test_expired_messages_are_skipped_with_a_note(suite: Suite) -> None:
    with Spool(suite.root, sync="none") as spool:
        log = spool.log("short", create=True)
        log.configure(segment_bytes=4096, retain_for=0, retain_bytes=20_000)
        for number in range(40):
            log.publish(f"{number} " + "x" * 1000)
        spool.tend_logs()
        first = log.stats().first
    assert first > 3
    site = Site(suite, {"": "none"})
    _, text = site.ask("", "GET", "logs/short?from=2")
    assert "have been removed" in text
    assert f'id="o{first}"' in text
    status, text = site.ask("", "GET", "logs/short/m/2")
    assert (status, f"the offsets {first} to 39" in text) == (404, True)
    assert site.ask("", "GET", "logs/short/m/2/body")[0] == 410


@needs_chromium
def test_contents_of_messages_are_shown_as_text(open_tab: OpenTab, suite: Suite) -> None:
    with Spool(suite.root, sync="none") as spool:
        log = spool.log("hostile", create=True)
        plain = [
            "".join(sign for sign in text if sign.isprintable())[:100].strip() for text in TEXTS
        ]
        log.publish_many(
            [
                LogEntry(
                    text, key=shown[:100], content_type="text/html", attributes={"x": shown[:100]}
                )
                for text, shown in zip(TEXTS, plain, strict=True)
            ]
        )
        for name in (":@..", "__proto__", "-rf", "a..b"):
            spool.log(name, create=True).channel(name).create("first")
    tab = open_tab(suite)
    bad = "main iframe, main script, main base, main img"
    for path in ("logs/hostile", *(f"logs/hostile/m/{n}" for n in range(len(TEXTS)))):
        tab.open(path)
        assert tab.page.locator(bad).count() == 0, path
    for name in (":@..", "__proto__", "-rf", "a..b"):
        quoted = quote(name, safe="")
        for path in (f"logs/{quoted}", f"logs/{quoted}/c/{quoted}", f"logs/{quoted}/settings"):
            tab.open(path)
            assert name in tab.page.title(), path
    for text in TEXTS:
        tab.open(f"logs/hostile?from={quote(text)}")
        assert tab.page.locator(bad).count() == 0
    headers, body = Api(suite).ask("GET", "/_ui/logs/hostile/m/0/body")
    assert body == TEXTS[0].encode()
    assert headers["Content-Type"] == "application/octet-stream"
    assert "attachment" in headers["Content-Disposition"]
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
