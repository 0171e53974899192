"""Every action of the pages, done in a browser with and without scripts, and seen in the spool."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.harness.rounds import ALL, part_of
from tests.harness.suite import Suite, eventually

from .asked import Api
from .browser import Tab, needs_chromium

pytestmark = needs_chromium
OpenTab = Callable[..., Tab]
NEVER = "0 3 29 2 *"  # so seldom that no test meets it


WAYS = {"scripts": True, "plain": False}
# Without scripts a form is the browser's own business: of each kind of them one is sent that way.
SENT_PLAIN = {
    "test_release",  # those who are chosen, and what is undone
    "test_bury",  # a question
    "test_move",  # a question with choices of its own
    "test_redrive",  # a form of all, beside a heading
    "test_send_a_file_and_take_it_back",  # a file
    "test_pause_and_resume",  # a menu, and a form that asks nothing
    "test_change_settings",  # many fields
    "test_purge",  # a name that is typed
    "test_a_topic",  # two forms of one page
    "test_a_schedule",  # forms in rows
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With scripts all actions are done, and some without; in `make soak` all both ways."""
    if "tab" not in metafunc.fixturenames:
        return
    is_plain = metafunc.function.__name__ in SENT_PLAIN or ALL
    ways = {way: value for way, value in WAYS.items() if value or is_plain}
    if "state" not in metafunc.fixturenames:
        metafunc.parametrize("tab", ways.values(), ids=ways, indirect=True)
        return
    kinds = [*product(ways.items(), ("in_flight", "delayed"))]
    kinds = part_of([kinds[0], kinds[-1]], kinds)
    ids = [f"{way}-{state}" for (way, _), state in kinds]
    found = [(value, state) for (_, value), state in kinds]
    metafunc.parametrize(("tab", "state"), found, ids=ids, indirect=["tab"])


@pytest.fixture
def tab(request: pytest.FixtureRequest, open_tab: OpenTab, suite: Suite) -> Tab:
    return open_tab(suite, java_script_enabled=request.param)


@pytest.fixture
def api(suite: Suite) -> Api:
    return Api(suite)


@pytest.fixture
def dead(api: Api, queue: str) -> str:
    """A queue for what dies in ``queue``."""
    name = f"{queue}.dead"
    api.make(name)
    api.change(queue, max_deliveries=5, dead_letter_queue=name)
    return name


def question(tab: Tab) -> Any:
    """What is asked: a page, or a dialog with it."""
    found = tab.page.locator("#question")
    found.wait_for()
    return found


def agree(tab: Tab, typed: str = "", **fields: str) -> None:
    asked = question(tab)
    for name, value in fields.items():
        asked.locator(f"[name={name}]").fill(value)
    if typed:
        asked.locator("[name=typed]").fill(typed)
    asked.locator("button").click()


def refuse(tab: Tab) -> None:
    question(tab).locator("[data-cancel]").click()
    tab.page.locator("#question").wait_for(state="hidden")


def did(tab: Tab, text: str) -> None:
    """Wait until the page says what was done."""
    tab.page.locator(".notice", has_text=text).wait_for()


def open_when_there(tab: Tab, api: Api, path: str, button: Any, words: bytes) -> None:
    """Open a page when it has a button, which may take as long as counts are old.

    The API asks for it first: a browser has much more work with each page.
    """
    eventually(lambda: words in api.ask("GET", f"/_ui/{path}")[1])
    eventually(lambda: tab.open(path) and button.count())  # of another process of mq


def open_menu(tab: Tab, api: Api, queue: str) -> None:
    name = f"Actions of {queue}"
    button = tab.page.get_by_role("button", name=name, exact=True)
    open_when_there(tab, api, f"?match={queue}", button, name.encode())
    button.click()


def choose(tab: Tab, queue: str, state: str, message: str) -> None:
    tab.open(f"q/{queue}?state={state}")
    # What is not seen of an id is copied with it.
    tab.page.locator(".messages th code", has_text=message).wait_for()
    tab.page.locator(f"input[value='{message}']").check()


def stand(api: Api, queue: str, state: str) -> str:
    """Put a message into a state, for two hours if it is in flight; its id."""
    found = api.put(queue, query="?delay=3600" if state == "delayed" else "")
    if state == "in_flight":
        api.claim(queue, "?wait=15&visibility=7200")
    # A page without scripts shows for ever what there was when it was opened.
    path = f"/_ui/q/{queue}?state={state}"
    eventually(lambda: found.encode() in api.ask("GET", path)[1])
    return found


# Counts are eventually true: the server keeps them for a moment.
# -- messages --------------------------------------------------------------------------------------


def test_release(tab: Tab, api: Api, queue: str, state: str) -> None:
    choose(tab, queue, state, stand(api, queue, state))
    tab.click("Release")
    did(tab, "Released: 1")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    tab.click("Undo")
    did(tab, "Hidden again: 1")
    eventually(lambda: api.counts(queue) == {"in_flight": 1})


def test_release_later(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/m/{stand(api, queue, 'in_flight')}")
    tab.page.locator("[name=delay]").select_option("3600")
    tab.click("Release")
    did(tab, "Released: 1")
    ends = tab.page.locator(".messages tbody").inner_html()
    assert re.search(r">\s*(1 h<|59 min)", ends)


def test_hold(tab: Tab, api: Api, queue: str) -> None:
    message = stand(api, queue, "in_flight")
    tab.open(f"q/{queue}/m/{message}")
    tab.click("Hold 5 minutes longer")
    did(tab, "Held longer: 1")
    later = ends_at(tab)
    tab.click("Undo")
    did(tab, "Hidden again: 1")
    assert 240 < later - ends_at(tab) < 360


def ends_at(tab: Tab) -> float:
    """When the hold of the message in the table ends, in Unix seconds."""
    return float(tab.page.locator(".messages tbody [data-until]").get_attribute("data-until"))


def test_bury(tab: Tab, api: Api, queue: str, dead: str) -> None:
    message = stand(api, queue, "in_flight")
    choose(tab, queue, "in_flight", message)
    tab.click("Bury")
    refuse(tab)
    eventually(lambda: api.counts(queue) == {"in_flight": 1})
    choose(tab, queue, "in_flight", message)
    tab.click("Bury")
    agree(tab, reason="no address")
    did(tab, "Buried: 1")
    eventually(lambda: api.counts(dead) == {"ready": 1})
    tab.open("dead")
    tab.sees("no address")


def test_delete_messages(tab: Tab, api: Api, queue: str) -> None:
    message = stand(api, queue, "ready")
    choose(tab, queue, "ready", message)
    tab.click("Delete")
    assert "1 message" in question(tab).inner_text()
    refuse(tab)
    eventually(lambda: api.counts(queue) == {"ready": 1})
    choose(tab, queue, "ready", message)
    tab.click("Delete")
    agree(tab)
    did(tab, "Deleted: 1")
    eventually(lambda: api.counts(queue) == {})


def test_move(tab: Tab, api: Api, queue: str) -> None:
    message = stand(api, queue, "ready")
    api.make(f"{queue}.to")
    choose(tab, queue, "ready", message)
    tab.click("Move")
    refuse(tab)
    eventually(lambda: api.counts(queue) == {"ready": 1})
    choose(tab, queue, "ready", message)
    tab.click("Move")
    agree(tab, to=f"{queue}.to")
    did(tab, "Moved: 1")
    eventually(lambda: api.counts(f"{queue}.to") == {"ready": 1})
    eventually(lambda: api.counts(queue) == {})
    choose(tab, f"{queue}.to", "ready", message)
    tab.click("Move")
    agree(tab, to=queue, rate="5")  # a chosen one
    did(tab, "goes on in the background")
    eventually(lambda: api.counts(queue) == {"ready": 1})


def test_move_all_by_the_menu_of_a_row(tab: Tab, api: Api, queue: str) -> None:
    stand(api, queue, "ready")
    api.make(f"{queue}.to")
    open_menu(tab, api, queue)
    tab.click("Move all")
    tab.page.locator("#question [name=to]").wait_for()
    agree(tab, to=f"{queue}.to")
    did(tab, "goes on in the background")
    eventually(lambda: api.counts(f"{queue}.to") == {"ready": 1})


def test_redrive(tab: Tab, api: Api, queue: str, dead: str) -> None:
    choose(tab, queue, "in_flight", stand(api, queue, "in_flight"))
    tab.click("Bury")
    agree(tab)
    did(tab, "Buried: 1")
    eventually(lambda: api.counts(dead) == {"ready": 1})
    section = tab.page.locator("section", has_text=dead)
    button = section.get_by_role("button", name="Redrive all")
    open_when_there(tab, api, "dead", button, f">{dead}</a> <span".encode())
    button.click()
    agree(tab)
    did(tab, "goes on in the background")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    eventually(lambda: api.counts(dead) == {})


def test_send(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}")
    tab.click("Send")
    fill = tab.page.fill
    fill("[name=body]", '{"tenant": 7}\n')
    fill("[name=content_type]", "application/json")
    fill("[name=attributes]", "tenant: 7\ntype: test")
    tab.page.locator("summary").click()
    fill("[name=copies]", "3")
    tab.page.locator("form button", has_text="Send").click()
    did(tab, "Sent: 3")
    assert tab.page.locator(".notice a").count() == 3
    eventually(lambda: api.counts(queue) == {"ready": 3})
    headers, body = api.ask("GET", f"/{queue}/messages?wait=15")
    assert body == b'{"tenant": 7}\n'
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Message-Attribute-tenant"] == "7", headers


def test_send_a_file_and_take_it_back(tab: Tab, api: Api, queue: str) -> None:
    body = bytes(range(256))
    tab.open(f"q/{queue}/send")
    file = {"name": "x.png", "mimeType": "image/png", "buffer": body}
    tab.page.set_input_files("[name=file]", [file])
    tab.page.locator("form button", has_text="Send").click()
    did(tab, "Sent: 1")
    headers, found = api.ask("GET", f"/{queue}/messages?wait=15")
    assert (found, headers["Content-Type"]) == (body, "image/png")
    tab.click("Undo")
    agree(tab)
    did(tab, "Deleted: 1")
    eventually(lambda: api.counts(queue) == {})


def test_send_again(tab: Tab, api: Api, queue: str) -> None:
    message = stand(api, queue, "ready")
    tab.open(f"q/{queue}/m/{message}")
    facts = tab.page.locator("main").inner_text()
    for said in ("Place in line", "the first", "5 bytes on disk"):
        assert said in facts, said
    tab.click("Send again")
    assert tab.page.input_value("[name=body]") == "hello"
    tab.page.locator("form button", has_text="Send").click()
    did(tab, "Sent: 1")
    eventually(lambda: api.counts(queue) == {"ready": 2})


# -- queues ----------------------------------------------------------------------------------------


def test_create_a_queue(tab: Tab, api: Api, queue: str) -> None:
    tab.open()
    tab.page.fill("input[name=queue]", f"{queue}.made")
    tab.click("Create queue")
    did(tab, "was created")
    eventually(lambda: api.counts(f"{queue}.made") == {})


def test_pause_and_resume(tab: Tab, api: Api, queue: str) -> None:
    open_menu(tab, api, queue)
    question(tab).locator("select[name=for]").select_option("morning")
    question(tab).get_by_role("button", name="Pause").click()
    did(tab, "Paused")
    until = api.look(queue)["settings"]["paused"]
    assert str(until)[10:19] == "T06:00:00"
    tab.click("Undo")
    did(tab, "Resumed")
    assert api.look(queue)["settings"]["paused"] is None
    tab.click("Undo")
    did(tab, "Paused")
    assert api.look(queue)["settings"]["paused"] == until
    tab.click("Resume")
    did(tab, "Resumed")
    assert api.look(queue)["settings"]["paused"] is None
    tab.click("Pause")
    did(tab, "Paused")
    assert api.look(queue)["settings"]["paused"] is True


def test_change_settings(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=visibility_timeout]", "45")
    tab.click("Show the changes")
    assert "visibility_timeout: 30 → 45" in question(tab).inner_text()
    refuse(tab)
    assert api.look(queue)["settings"]["visibility_timeout"] == 30
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=visibility_timeout]", "45")
    tab.click("Show the changes")
    agree(tab)
    did(tab, "Settings changed: 1")
    assert api.look(queue)["settings"]["visibility_timeout"] == 45


def test_a_setting_that_cannot_be_is_refused_in_words(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=visibility_timeout]", "often")
    tab.click("Show the changes")
    assert "visibility_timeout" in question(tab).inner_text()
    assert api.look(queue)["settings"]["visibility_timeout"] == 30


def test_purge(tab: Tab, api: Api, queue: str) -> None:
    stand(api, queue, "ready")
    tab.open(f"q/{queue}")
    tab.click("Purge")
    agree(tab, typed=f"{queue}x")
    tab.sees("That is not its name. Nothing was done.")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    agree(tab, typed=queue)
    did(tab, "Purged: about 1")
    eventually(lambda: api.counts(queue) == {})


def test_delete_a_queue(tab: Tab, api: Api, suite: Suite, queue: str) -> None:
    tab.open(f"q/{queue}")
    tab.click("Delete the queue")
    agree(tab, typed="jobs")
    tab.sees("Nothing was done.")
    assert (suite.root / "queues" / queue).is_dir()
    agree(tab, typed=queue)
    did(tab, "was deleted")
    assert not (suite.root / "queues" / queue).exists()


# -- topics and schedules --------------------------------------------------------------------------


def test_a_topic(tab: Tab, api: Api, suite: Suite, queue: str) -> None:
    topic = f"{queue}.news"
    tab.open("topics")
    tab.page.fill("input[name=topic]", topic)
    tab.click("Create topic")
    did(tab, "The topic is there")
    tab.page.locator("summary").first.click()
    tab.page.fill("[name=queue]", queue)
    tab.page.fill("[name=filter]", '{"type": ["order"]}')
    tab.click("Subscribe")
    did(tab, "Subscribed")
    for kind, takers in (("order", 1), ("mail", 0)):
        tab.page.fill("textarea[name=body]", "x")
        tab.page.locator("#publish ~ form [name=attributes]").fill(f"type: {kind}")
        tab.click("Show who gets it")
        agree(tab)
        did(tab, f"Published to {takers}")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    tab.click("End")
    refuse(tab)
    tab.open(f"topics/{topic}")
    tab.click("End")
    agree(tab)
    did(tab, "The subscription has ended")
    tab.click("Delete the topic")
    agree(tab, typed=topic)
    did(tab, "The topic was deleted")
    assert not (suite.root / "topics" / topic).exists()


def test_a_schedule(tab: Tab, api: Api, queue: str) -> None:
    name = f"nightly-{queue}"[:60]
    tab.open("schedules")
    for field, value in (("name", name), ("cron", NEVER), ("queue", queue)):
        tab.page.fill(f"#define ~ form [name={field}]", value)
    tab.click("Define")
    did(tab, "The schedule is defined")
    row = tab.page.locator("tbody tr", has_text=name)
    row.get_by_role("button", name="Put now").click()
    did(tab, "Sent: 1")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    row.get_by_role("button", name="Pause").click()
    did(tab, "puts nothing until it is resumed")
    row.get_by_role("button", name="Resume").click()
    did(tab, "puts messages again")
    row.get_by_role("button", name="Delete").click()
    agree(tab)
    did(tab, "The schedule was deleted")
    assert row.count() == 0


# -- what scripts add ------------------------------------------------------------------------------


def test_a_dialog_begins_at_cancel_and_escape_ends_it(
    open_tab: OpenTab, suite: Suite, api: Api, queue: str
) -> None:
    tab = open_tab(suite)
    choose(tab, queue, "ready", stand(api, queue, "ready"))
    tab.click("Delete")
    question(tab)
    assert tab.page.evaluate("document.activeElement.textContent") == "Cancel"
    tab.page.keyboard.press("Escape")
    tab.page.locator("dialog").wait_for(state="hidden")
    eventually(lambda: api.counts(queue) == {"ready": 1})
