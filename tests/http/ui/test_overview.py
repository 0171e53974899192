"""The overview: problems, rights, and that it never waits for listings."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from fsmq.spool.spool import Spool
from tests.harness.suite import Suite, eventually
from tests.http.inside import Inside
from tests.http.keyfile import add_key

from .asked import Api, Site
from .browser import OpenTab, needs_chromium
from .filled import write_history

ITEM = re.compile(r'<li><span class="tag[^"]*">([^<]*)</span> <a href="[^"]*">([^<]*)</a> ([^<]*)')
TILE = re.compile(r"<span>([^<]*)</span> <strong[^>]*>(?:<span[^>]*>)?([^<]*)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("overview")
    file, root = folder / "keys.toml", folder / "root"
    everything = ("*", "logs/*", "logs/*/*")
    keys = {
        "all": add_key(file, "all", *(f"--admin={one}" for one in everything)),
        "mine": add_key(file, "mine", "--look=mine", "--look=logs/mine"),
        "channel": add_key(file, "channel", "--look=logs/mine", "--look=logs/mine/*"),
    }
    with Spool(root, sync="none") as spool:
        for name in ("mine", "theirs"):
            queue = spool.queue(name, create=True)
            queue.configure(dead_letter_queue=f"{name}.dead", max_deliveries=5, alert_age=0.001)
            queue.put_many([b"x"] * 3)
            spool.create_queue(f"{name}.idle")
            spool.queue(f"{name}.idle").configure(paused=True)
            log = spool.log(name, create=True)
            log.publish_many([b"y"] * 7)
            log.channel("reader").create("first", visibility_timeout=0)
            channel = log.channel("stuck")
            channel.create("first", order="strict", max_deliveries=1, on_poison="block")
            [failed] = channel.claim()
            failed.release()
            spool.queue(f"{name}.dead", create=True).put(b"dead")
    write_history(root)
    with Suite(root, mq_options=[f"--keys={file}", "--sync=none", "--processes=1"]) as suite:
        site = Site(suite, keys)
        eventually(lambda: "theirs" in site.ask("all", "GET", "")[1])
        yield site


def items(site: Site, key: str) -> list[tuple[str, str, str]]:
    found = ITEM.findall(site.ask(key, "GET", "")[1])
    return [(kind, name, text.strip()) for kind, name, text in found]


def test_problems_are_listed_first_by_severity(site: Site) -> None:
    found = items(site, "all")
    kinds = [kind for kind, *_ in found]
    assert list(dict.fromkeys(kinds)) == ["blocked", "late", "dead letters", "lagging", "paused"]
    assert ("late", "mine", "has 3 messages waiting, the oldest for") in found
    assert ("dead letters", "mine.dead", "holds 1 message, the oldest for") in found
    assert ("lagging", "mine/reader", "is 7 messages behind, the oldest for") in found
    assert ("paused", "mine.idle", "until it is resumed") in found
    stuck = "has used up the deliveries of the message at offset 0"
    assert ("blocked", "mine/stuck", stuck) in found
    _, text = site.ask("all", "GET", "")
    assert text.index("Needs attention") < text.index('<ul class="figures">')
    # Rates are known from the second sample on.
    eventually(lambda: "nothing is claimed from it" in site.ask("all", "GET", "")[1])


def test_a_key_sees_only_problems_of_its_queues_and_logs(site: Site) -> None:
    assert [(kind, name) for kind, name, _ in items(site, "mine")] == [("late", "mine")]
    text = site.ask("mine", "GET", "")[1]
    assert "theirs" not in text
    tiles = dict(TILE.findall(text))
    assert (tiles["ready"], tiles["dead letters"]) == ("3", "0")
    names = {name for _, name, _ in items(site, "channel")}
    assert names == {"mine/stuck", "mine/reader"}
    assert "theirs" not in site.ask("channel", "GET", "")[1]


def test_figures_leave_out_dead_letter_queues(site: Site) -> None:
    tiles = dict(TILE.findall(site.ask("all", "GET", "")[1]))
    assert (tiles["ready"], tiles["dead letters"], tiles["in flight"]) == ("6", "2", "0")


def test_the_page_of_queues_counts_as_the_overview_does(site: Site) -> None:
    text = site.ask("all", "GET", "queues")[1]
    found = dict(re.findall(r"<span[^>]*>([A-Za-z ]+)</span><strong[^>]*>([0-9]+)<", text))
    assert (found["Ready"], found["Dead letters"]) == ("6", "2")


def test_the_history_sums_up_only_visible_queues(site: Site) -> None:
    """The history is of the queue `jobs`, which only the key ``all`` may see."""
    done = re.compile(r'data-l="Removed">([^<]*)<')
    assert any(one != "0" for one in done.findall(site.ask("all", "GET", "")[1]))
    assert all(one == "0" for one in done.findall(site.ask("mine", "GET", "")[1]))


def test_health_problems_need_a_right_on_all_queues(site: Site) -> None:
    assert site.ask("all", "GET", "cluster?health=yes")[0] == 200
    found = items(site, "all")
    assert found[0][0] == "health"
    assert not [one for one in items(site, "mine") if one[0] == "health"]


def test_queries_of_the_list_of_queues_redirect_to_it(site: Site) -> None:
    for query in ("match=mine&sort=name", "find=mine.", "menu=mine", "state=late", "page=2"):
        status, _ = site.ask("all", "GET", f"?{query}")
        assert status == 303, query
    api = Api(site.suite, site.keys["all"])
    assert b"q/mine.idle" in api.ask("GET", "/_ui/?match=mine.i*")[1]
    assert site.ask("all", "GET", "?live=no")[0] == 200


def test_an_empty_spool_shows_only_a_hint(tmp_path: Path) -> None:
    with Suite(tmp_path / "root", mq_options=["--sync=none"]) as suite:
        site = Site(suite, {"": "none"})
        _, text = site.ask("", "GET", "")
        assert "No queue yet" in text
        assert "<h2" not in text
        assert "No log yet" in site.ask("", "GET", "logs")[1]


def test_consumers_are_listed_by_host_and_program(suite: Suite) -> None:
    api = Api(suite)
    api.make("worked")

    def row() -> str:
        api.put("worked")
        api.claim("worked")
        text = api.ask("GET", "/_ui/")[1].decode()
        found = re.search(r'<tr><th scope="row">mq[^<]*, host .*?</tr>', text, re.DOTALL)
        return found[0] if found else ""

    assert 'q/worked">worked</a>' in eventually(row)


def test_the_overview_does_not_wait_for_listings(tmp_path: Path) -> None:
    """Large folders take seconds to list, and only four are listed at a time."""
    gate = threading.Event()
    with Inside(tmp_path / "root", ui=True) as inside:
        for _ in range(10):
            asyncio.run_coroutine_threadsafe(inside.service.listing(gate.wait), inside.loop)
        try:
            with urlopen(f"{inside.url}/_ui/", timeout=60) as answer:
                assert b"being counted" in answer.read()
        finally:
            gate.set()
        eventually(lambda: b"No queue yet" in urlopen(f"{inside.url}/_ui/").read())


def test_a_claim_that_blocks_its_group_is_reported(suite: Suite) -> None:
    with Spool(suite.root, sync="none") as spool:
        spool.create_queue("grouped", fifo=True)
        queue = spool.queue("grouped")
        queue.configure(alert_age=0.001)
        for body in (b"first", b"second"):
            queue.put(body, group="g")
        assert [len(queue.claim()), len(queue.claim())] == [1, 0]
    note = "; 1 message in flight or delayed may hold back their groups"
    eventually(lambda: note.encode() in Api(suite).ask("GET", "/_ui/")[1])


@needs_chromium
def test_the_overview_and_its_chart_are_live(open_tab: OpenTab, suite: Suite) -> None:
    write_history(suite.root, 1)
    api = Api(suite)
    api.make("lively")
    tab = open_tab(suite)
    eventually(lambda: b"data-charts" in api.ask("GET", "/_ui/")[1])
    tab.open()
    tab.wait_until_live()
    tab.page.locator(".uplot").first.wait_for()
    ready = tab.page.locator(".figures li", has_text="ready").locator("strong")
    before = int(ready.inner_text().replace("\u202f", ""))
    api.put("lively")
    eventually(lambda: int(ready.inner_text().replace("\u202f", "")) > before)
    tab.page.locator(".figures a", has_text="ready").click()
    tab.page.locator("h1", has_text="Queues").wait_for()
    assert "sort=ready" in tab.page.url
