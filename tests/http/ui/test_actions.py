"""Every action of the pages, in a browser with and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from fsmq.spool.log.log import Log
from fsmq.spool.spool import Spool
from tests.harness.rounds import ALL, part_of
from tests.harness.suite import Suite, eventually

from .asked import Api
from .browser import OpenTab, Tab, needs_chromium

pytestmark = needs_chromium
NEVER = "0 3 29 2 *"  # too rare to happen during a test

WAYS = {"scripts": True, "plain": False}
# Tests that run without scripts, too: one for each kind of form.
SENT_PLAIN = {
    "test_release",  # selected rows, and undo
    "test_bury",  # a confirmation
    "test_move",  # a confirmation with fields
    "test_redrive",  # a form beside a heading
    "test_send_a_file_and_take_it_back",  # a file
    "test_pause_and_resume",  # a menu, and a form without confirmation
    "test_change_settings",  # many fields
    "test_purge",  # a confirmation by typing the name
    "test_a_topic",  # two forms on one page
    "test_a_schedule",  # forms in rows
    "test_a_new_schedule_does_not_replace_an_existing_one",  # a link in a form
    "test_a_channel",  # forms in rows, and confirmations
    "test_a_form_keeps_what_was_typed",
    "test_invalid_settings_of_a_queue_are_refused_before_the_question",
    "test_a_question_keeps_what_was_typed",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run all tests with scripts, and some without them; in `make soak` all without them, too."""
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
def scripted(open_tab: OpenTab, suite: Suite) -> Tab:
    """A tab that always runs scripts."""
    return open_tab(suite)


@pytest.fixture
def dead(api: Api, queue: str) -> str:
    """The dead-letter queue of ``queue``."""
    name = f"{queue}.dead"
    api.make(name)
    api.change(queue, max_deliveries=5, dead_letter_queue=name)
    return name


def question(tab: Tab) -> Any:
    """The confirmation: a page, or a dialog."""
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


def refused(tab: Tab, field: str, typed: str, problem: str) -> None:
    """Wait until a form is shown again with its value and an error beside the field."""
    box = tab.page.locator(f"[name={field}][aria-invalid=true]")
    box.wait_for()
    assert box.input_value() == typed
    about = str(box.get_attribute("aria-describedby")).split()
    texts = [tab.page.locator(f"[id='{one}']").inner_text() for one in about]
    assert [text for text in texts if problem in text], texts


def refuse(tab: Tab) -> None:
    question(tab).locator("[data-cancel]").click()
    tab.page.locator("#question").wait_for(state="hidden")


def did(tab: Tab, text: str) -> None:
    """Wait for the notice of an action."""
    tab.page.locator(".notice", has_text=text).wait_for()


def open_when_ready(tab: Tab, api: Api, path: str, button: Any, words: bytes) -> None:
    """Open a page when it has a button, which may take until the counts are renewed.

    The API polls first, as each page costs a browser much more.
    """
    eventually(lambda: words in api.ask("GET", f"/_ui/{path}")[1])
    eventually(lambda: tab.open(path) and button.count())  # another process of mq may answer


def open_menu(tab: Tab, api: Api, queue: str) -> None:
    name = f"Actions of {queue}"
    button = tab.page.get_by_role("button", name=name, exact=True)
    open_when_ready(tab, api, f"queues?match={queue}", button, name.encode())
    button.click()


def choose(tab: Tab, queue: str, state: str, message: str) -> None:
    tab.open(f"q/{queue}?state={state}")
    # The whole id is in the page, also the part that is cut off on the screen.
    tab.page.locator(".messages th code", has_text=message).wait_for()
    tab.page.locator(f"input[value='{message}']").check()


def put_in_state(api: Api, queue: str, state: str) -> str:
    """Put a message into a state; its id."""
    found = api.put(queue, query="?delay=3600" if state == "delayed" else "")
    if state == "in_flight":
        api.claim(queue, "?wait=15&visibility=7200")
    # A page without scripts is not updated.
    path = f"/_ui/q/{queue}?state={state}"
    eventually(lambda: found.encode() in api.ask("GET", path)[1])
    return found


# -- messages --------------------------------------------------------------------------------------


def test_release(tab: Tab, api: Api, queue: str, state: str) -> None:
    choose(tab, queue, state, put_in_state(api, queue, state))
    tab.click("Release")
    did(tab, "Released: 1")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    tab.click("Undo")
    did(tab, "Hidden again: 1")
    eventually(lambda: api.counts(queue) == {"in_flight": 1})


def test_release_later(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/m/{put_in_state(api, queue, 'in_flight')}")
    tab.page.locator("[name=delay]").select_option("3600")
    tab.click("Release")
    did(tab, "Released: 1")
    ends = tab.page.locator(".messages tbody").inner_html()
    assert re.search(r">\s*(1 h<|59 min)", ends)


def test_hold(tab: Tab, api: Api, queue: str) -> None:
    message = put_in_state(api, queue, "in_flight")
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
    message = put_in_state(api, queue, "in_flight")
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
    message = put_in_state(api, queue, "ready")
    choose(tab, queue, "ready", message)
    tab.click("Remove")
    assert "1 message" in question(tab).inner_text()
    refuse(tab)
    eventually(lambda: api.counts(queue) == {"ready": 1})
    choose(tab, queue, "ready", message)
    tab.click("Remove")
    agree(tab)
    did(tab, "Removed: 1")
    eventually(lambda: api.counts(queue) == {})


def test_move(tab: Tab, api: Api, queue: str) -> None:
    message = put_in_state(api, queue, "ready")
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
    agree(tab, to=queue, rate="5")  # only the selected message
    did(tab, "goes on in the background")
    eventually(lambda: api.counts(queue) == {"ready": 1})


def test_move_all_by_the_menu_of_a_row(tab: Tab, api: Api, queue: str) -> None:
    put_in_state(api, queue, "ready")
    api.make(f"{queue}.to")
    open_menu(tab, api, queue)
    tab.click("Move all")
    tab.page.locator("#question [name=to]").wait_for()
    agree(tab, to=f"{queue}.to")
    did(tab, "goes on in the background")
    eventually(lambda: api.counts(f"{queue}.to") == {"ready": 1})


def test_redrive(tab: Tab, api: Api, queue: str, dead: str) -> None:
    choose(tab, queue, "in_flight", put_in_state(api, queue, "in_flight"))
    tab.click("Bury")
    agree(tab)
    did(tab, "Buried: 1")
    eventually(lambda: api.counts(dead) == {"ready": 1})
    section = tab.page.locator("section", has_text=dead)
    button = section.get_by_role("button", name="Redrive all")
    open_when_ready(tab, api, "dead", button, f">{dead}</a> <span".encode())
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
    did(tab, "Removed: 1")
    eventually(lambda: api.counts(queue) == {})


def test_send_again(tab: Tab, api: Api, queue: str) -> None:
    message = put_in_state(api, queue, "ready")
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
    tab.open("queues")
    tab.click("New queue")
    tab.page.fill("input[name=queue]", f"{queue}.made")
    tab.click("Create queue")
    did(tab, "was created")
    eventually(lambda: api.counts(f"{queue}.made") == {})


def test_pause_and_resume(tab: Tab, api: Api, queue: str) -> None:
    open_menu(tab, api, queue)
    question(tab).get_by_role("button", name="Pause until tomorrow").click()
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
    tab.click("Pause ▾")
    tab.click("Pause until resumed")
    did(tab, "Paused")
    tab.sees("Paused until resumed")
    assert api.look(queue)["settings"]["paused"] is True


def test_a_pause_ends_in_the_zone_of_the_reader(
    open_tab: OpenTab, suite: Suite, api: Api, queue: str
) -> None:
    tab = open_tab(suite, timezone_id="Asia/Tokyo")
    tab.open(f"q/{queue}")
    tab.click("Pause ▾")
    tab.click("Pause until tomorrow, 06:00 +09:00")
    did(tab, "Paused")
    assert str(api.look(queue)["settings"]["paused"])[10:19] == "T21:00:00"
    tab.click("Pause ▾")
    tab.page.fill("#pause [name=length]", "soon")
    tab.page.locator("#pause-for button").click()
    refused(tab, "length", "soon", "is not a span of time")
    tab.page.fill("#pause [name=length]", "3d")
    assert tab.page.locator("[aria-invalid], .problem").count() == 0
    tab.page.locator("#pause-for button").click()
    did(tab, "The pause has a new end")


def test_a_new_schedule_does_not_replace_an_existing_one(
    tab: Tab, suite: Suite, queue: str
) -> None:
    name, body = f"nightly-{queue}"[:60], "first\nsecond "
    with Spool(suite.root, sync="none") as spool:
        schedule = spool.schedule(name)
        schedule.define(NEVER, queue, body, delay=7, paused=True, attributes={"tenant": "7"})
        tab.open("schedules/new")
        values = {"name": name, "cron": "0 4 29 2 *", "queue": queue, "body": "other"}
        for field, value in values.items():
            tab.page.fill(f"#new [name={field}]", value)
        tab.click("Define schedule")
        refused(tab, "name", name, "there is a schedule of this name; change it")
        assert {one: tab.page.input_value(f"#new [name={one}]") for one in values} == values
        assert schedule.state().settings.body == body.encode()
        tab.click(f"Change {name}")
        tab.page.locator("h1", has_text=f"Change {name}").wait_for()
        assert tab.page.input_value("[name=body]") == body
        tab.page.fill("#new [name=cron]", "61 4 29 2 *")
        tab.click("Change schedule")
        refused(tab, "cron", "61 4 29 2 *", "61")
        tab.page.fill("#new [name=cron]", "0 4 29 2 *")
        tab.click("Change schedule")
        did(tab, "The schedule was changed")
        now = schedule.state().settings
        assert (now.cron, now.body, now.delay, now.paused) == (
            "0 4 29 2 *", body.encode(), 7, True,
        )  # fmt: skip
        assert now.attributes == {"tenant": "7"}
        schedule.delete()
    tab.open("work")
    tab.sees(f"schedules/{name} → {queue}")


@pytest.mark.parametrize("width", [390, 800, 1000, 1280])
def test_a_time_zone_stays_in_one_line(scripted: Tab, suite: Suite, queue: str, width: int) -> None:
    size = scripted.page.viewport_size
    with Spool(suite.root, sync="none") as spool:
        spool.schedule(f"zone-{width}").define("30 3 * * *", queue, timezone="Europe/Berlin")
        scripted.page.set_viewport_size({"width": width, "height": 800})
        scripted.open("schedules")
        lines = """cells => cells.map(cell => {
            const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (!texts.nextNode().data.includes("Europe/Berlin")) {}
            const range = new Range();
            const at = texts.currentNode.data.indexOf("Europe/Berlin");
            range.setStart(texts.currentNode, at);
            range.setEnd(texts.currentNode, at + "Europe/Berlin".length);
            return range.getClientRects().length;
        })"""
        row = scripted.page.locator("tr", has_text=f"zone-{width}")
        assert row.locator("[data-l=When], [data-l=Next]").evaluate_all(lines) == [1, 1]
        spool.schedule(f"zone-{width}").delete()
    scripted.page.set_viewport_size(size)


def test_change_settings(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=visibility_timeout]", "1m 15s")
    tab.click("Show the changes")
    assert "visibility_timeout: 30 seconds → 1 minute 15 seconds" in question(tab).inner_text()
    refuse(tab)
    assert api.look(queue)["settings"]["visibility_timeout"] == 30
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=visibility_timeout]", "1m 15s")
    tab.click("Show the changes")
    agree(tab)
    did(tab, "Settings changed: 1")
    assert api.look(queue)["settings"]["visibility_timeout"] == 75


def test_invalid_settings_of_a_queue_are_refused_before_the_question(
    tab: Tab, api: Api, queue: str
) -> None:
    tab.open(f"q/{queue}/settings")
    tab.page.fill("[name=max_deliveries]", "5")
    tab.page.fill("[name=dead_letter_queue]", queue)
    tab.click("Show the changes")
    refused(tab, "dead_letter_queue", queue, "is the queue itself")
    assert api.look(queue)["settings"]["dead_letter_queue"] is None


def test_invalid_settings_of_a_channel_are_refused_before_the_question(
    tab: Tab, queue: str, log: Log
) -> None:
    with Spool(log.spool.context.tree.root, sync="none") as spool:
        spool.create_queue(f"{queue}.fifo", fifo=True)
    tab.open(f"logs/{log.name}/c/stuck/settings")
    tab.page.fill("[name=dead_letter_queue]", f"{queue}.fifo")
    tab.click("Show the changes")
    refused(tab, "dead_letter_queue", f"{queue}.fifo", "is a fifo queue")


# Answers with an error: of the API, of a proxy, or without a cause.
ERRORS = {
    "a problem": (503, "application/problem+json", '{"title": "Busy", "detail": "try later"}'),
    "a page of a proxy": (502, "text/html", "<h1>Bad</h1><p>try later</p>"),
    "a text": (500, "text/plain", "try later"),
    "bad JSON": (500, "application/json", "{try later"),
    "nothing": (500, "text/plain", ""),
    "a form": (400, "text/html", "<main><form id=x><b class=problem>try later</b></form></main>"),
}  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("is_asked", [False, True])
def test_every_kind_of_error_is_shown(
    scripted: Tab, queue: str, error: str, is_asked: bool
) -> None:
    scripted.open(f"q/{queue}/settings")
    scripted.page.fill("[name=visibility_timeout]", "1m")
    if is_asked:
        scripted.click("Show the changes")
        question(scripted)
    status, kind, body = ERRORS[error]

    def answer(route: Any) -> None:
        if route.request.method == "POST":
            route.fulfill(status=status, content_type=kind, body=body)
        else:
            route.continue_()

    scripted.page.route("**/q/*", answer)
    scripted.click("Change settings" if is_asked else "Show the changes")
    shown = scripted.page.locator("dialog[open] #question", has_text="It could not be done")
    shown.wait_for()
    assert (str(status) if error == "nothing" else "try later") in shown.inner_text()
    refuse(scripted)
    assert scripted.page.input_value("[name=visibility_timeout]") == "1m"


def test_a_form_refused_after_its_question_is_shown_again(scripted: Tab, queue: str) -> None:
    scripted.open(f"q/{queue}/settings")
    scripted.page.fill("[name=max_deliveries]", "5")
    scripted.page.fill("[name=dead_letter_queue]", f"{queue}.dead")
    scripted.click("Show the changes")
    value = question(scripted).locator("[name=dead_letter_queue]")
    value.evaluate("(field, queue) => { field.value = queue; }", queue)
    agree(scripted)
    refused(scripted, "dead_letter_queue", queue, "is the queue itself")
    assert not scripted.page.locator("dialog[open]").count()


def test_purge(tab: Tab, api: Api, queue: str) -> None:
    put_in_state(api, queue, "ready")
    tab.open(f"q/{queue}/settings")
    tab.click("Purge")
    agree(tab, typed=f"{queue}x")
    refused(tab, "typed", f"{queue}x", "That is not its name. Nothing was done.")
    box = tab.page.locator("[name=typed]").bounding_box()
    error = tab.page.locator("#q-typed-problem").bounding_box()
    assert box is not None
    assert error is not None
    assert error["y"] >= box["y"] + box["height"]  # the error is below its field
    eventually(lambda: api.counts(queue) == {"ready": 1})
    agree(tab, typed=queue)
    did(tab, "Purged: about 1")
    eventually(lambda: api.counts(queue) == {})


def test_delete_a_queue(tab: Tab, suite: Suite, queue: str) -> None:
    tab.open(f"q/{queue}/settings")
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
    tab.click("New topic")
    tab.page.fill("input[name=topic]", topic)
    tab.click("Create topic")
    did(tab, "The topic exists now")
    tab.page.locator("summary").first.click()
    tab.page.fill("[name=queue]", queue)
    tab.page.fill("[name=filter]", '{"type": ["order"]}')
    tab.click("Subscribe")
    did(tab, "Subscribed")
    for kind, takers in (("order", 1), ("mail", 0)):
        tab.page.fill("#publishing [name=body]", "x")
        tab.page.locator("#publishing [name=attributes]").fill(f"type: {kind}")
        tab.click("Show who gets it")
        agree(tab)
        did(tab, f"Published to {takers}")
    eventually(lambda: api.counts(queue) == {"ready": 1})
    tab.click("Unsubscribe")
    refuse(tab)
    tab.open(f"topics/{topic}")
    tab.click("Unsubscribe")
    agree(tab)
    did(tab, "The subscription has ended")
    tab.click("Delete the topic")
    agree(tab, typed=topic)
    did(tab, "The topic was deleted")
    assert not (suite.root / "topics" / topic).exists()


def test_a_schedule(tab: Tab, api: Api, queue: str) -> None:
    name = f"nightly-{queue}"[:60]
    tab.open("schedules")
    tab.click("New schedule")
    for field, value in (("name", name), ("cron", NEVER), ("queue", queue)):
        tab.page.fill(f"#new [name={field}]", value)
    tab.click("Define schedule")
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


# -- dialogs ---------------------------------------------------------------------------------------


def test_a_dialog_focuses_cancel_and_escape_closes_it(scripted: Tab, api: Api, queue: str) -> None:
    choose(scripted, queue, "ready", put_in_state(api, queue, "ready"))
    scripted.click("Remove")
    question(scripted)
    assert scripted.page.evaluate("document.activeElement.textContent") == "Cancel"
    scripted.page.keyboard.press("Escape")
    scripted.page.locator("dialog").wait_for(state="hidden")
    eventually(lambda: api.counts(queue) == {"ready": 1})


# -- logs and channels -----------------------------------------------------------------------------


@pytest.fixture
def log(suite: Suite, queue: str) -> Iterator[Log]:
    """A log with twelve messages and a channel that is blocked by the first one."""
    with Spool(suite.root, sync="none") as spool:
        log = spool.log(f"{queue}.log", create=True)
        log.publish_many([f"message {number}" for number in range(12)])
        settings = {"order": "strict", "max_deliveries": 1, "on_poison": "block"}
        log.channel("stuck").create("first", dead_letter_queue=f"{queue}.dead", **settings)
        [message] = log.channel("stuck").claim()
        message.release()
        yield log


def test_a_log(tab: Tab, queue: str, log: Log) -> None:
    tab.open("logs")
    tab.click("New log")
    tab.page.fill("[name=log]", f"{queue}.made")
    tab.page.fill("[name=retain_for]", "2 moons")
    tab.click("Create log")
    refused(tab, "retain_for", "2 moons", "must be 0 seconds to")
    tab.page.fill("[name=retain_for]", "2d")
    tab.click("Create log")
    did(tab, "The log was created")
    assert "No message from here on" in tab.page.locator("main").inner_text()
    tab.open(f"logs/{log.name}")
    tab.click("New channel")
    tab.page.fill("[name=channel]", "reader")
    tab.page.fill("[name=from]", "then")
    tab.page.locator("[name=order]").select_option("none")
    tab.click("Create channel")
    refused(tab, "from", "then", "expected an offset")
    assert tab.page.input_value("[name=order]") == "none"
    tab.page.fill("[name=from]", "5")
    tab.click("Create channel")
    did(tab, "The channel was created")
    state = log.channel("reader").state()
    assert (state.position, state.settings.order) == (5, "none")
    tab.open(f"logs/{log.name}/settings")
    tab.page.fill("[name=retain_for]", "1d")
    tab.click("Show the changes")
    assert "retain_for: 7 days → 1 day" in question(tab).inner_text()
    agree(tab)
    did(tab, "Settings changed: 1")
    assert log.stats().settings.retain_for == 86400
    tab.click("Delete the log")
    agree(tab, typed=log.name)
    did(tab, "The log was deleted")
    eventually(lambda: tab.page.url.partition("?")[0].endswith("/_ui/logs"))


def test_a_channel(tab: Tab, log: Log) -> None:
    stuck = log.channel("stuck")
    tab.open(f"logs/{log.name}")
    tab.click("Pause stuck")
    did(tab, "Paused")
    assert stuck.state().paused
    tab.click("Resume stuck")
    did(tab, "Resumed")
    assert not stuck.state().paused
    tab.open(f"logs/{log.name}/c/stuck")
    tab.page.fill("[name=to]", "yesterday")
    tab.page.locator("main form button", has_text="Move").click()
    refused(tab, "to", "yesterday", "expected an offset")
    tab.page.fill("[name=to]", "last")
    tab.page.locator("main form button", has_text="Move").click()
    assert "from offset 0 to 12" in question(tab).inner_text()
    refuse(tab)
    assert stuck.state().position == 0
    tab.open(f"logs/{log.name}/c/stuck")
    tab.click("Skip it")
    agree(tab)
    did(tab, "Skipped: 1")
    assert (stuck.state().position, stuck.state().blocked_at) == (1, None)
    tab.page.fill("[name=to]", "4")
    tab.page.locator("main form button", has_text="Move").click()
    agree(tab)
    did(tab, "The channel is at offset 4")
    assert stuck.state().position == 4
    tab.click("Settings")
    tab.page.fill("[name=visibility_timeout]", "45")
    tab.click("Show the changes")
    agree(tab)
    did(tab, "Settings changed: 1")
    assert stuck.state().settings.visibility_timeout == 45
    tab.click("Delete the channel")
    agree(tab, typed="stuck")
    did(tab, "The channel was deleted")
    assert log.channels() == []


def test_a_blocking_message_can_be_buried(tab: Tab, api: Api, queue: str, log: Log) -> None:
    tab.open(f"logs/{log.name}/c/stuck")
    tab.click("Bury it")
    agree(tab, reason="no address")
    did(tab, "Buried: 1")
    assert log.channel("stuck").state().buried == 1
    eventually(lambda: api.counts(f"{queue}.dead") == {"ready": 1})


def test_a_skip_is_refused_when_the_channel_has_moved(tab: Tab, log: Log) -> None:
    tab.open(f"logs/{log.name}/c/stuck")
    log.channel("stuck").seek("last")
    tab.click("Skip it")
    agree(tab)
    tab.sees("went to another position")
    assert log.channel("stuck").state().position == 12


def test_a_menu_opens_below_its_button(scripted: Tab, api: Api, queue: str) -> None:
    open_menu(scripted, api, queue)
    menu = scripted.page.locator("#menu")
    menu.get_by_role("link", name="Open").wait_for()
    box, button = menu.bounding_box(), scripted.page.locator("[name=menu]").bounding_box()
    assert box is not None
    assert button is not None
    assert abs(box["y"] - button["y"] - button["height"]) < 20
    assert not scripted.page.locator("dialog[open]").count()
    focused = "document.activeElement.textContent"
    assert scripted.page.evaluate(focused) == "Open"
    scripted.page.keyboard.press("ArrowDown")
    assert scripted.page.evaluate(focused) == "Send"
    scripted.page.keyboard.press("Escape")
    menu.wait_for(state="hidden")
    assert scripted.page.evaluate("document.activeElement.name") == "menu"


# -- forms that are refused ------------------------------------------------------------------------


def test_a_form_keeps_what_was_typed(tab: Tab, api: Api, queue: str) -> None:
    tab.open(f"q/{queue}/send")
    tab.page.fill("[name=body]", "\nfirst\n")
    tab.page.locator("summary").click()
    tab.page.fill("[name=priority]", "300")
    tab.page.fill("[name=delay]", "5m")
    file = {"name": "x.txt", "mimeType": "text/plain", "buffer": b"of a file"}
    if tab.page.evaluate("document.getElementById('slash').hidden") is False:
        tab.page.set_input_files("[name=file]", [file])  # lost without scripts
    tab.page.locator("#send button").click()
    refused(tab, "priority", "300", "0 to 99")
    assert tab.page.input_value("[name=body]") == "\nfirst\n"
    assert tab.page.input_value("[name=delay]") == "5m"
    tab.page.fill("[name=priority]", "3")
    tab.page.locator("#send button").click()
    did(tab, "Sent: 1")
    eventually(lambda: api.counts(queue) == {"delayed": 1})


def test_a_schedule_form_keeps_a_wrong_crontab_line(tab: Tab, queue: str) -> None:
    tab.open("schedules/new")
    values = {"name": "x y", "cron": "61 * * * *", "queue": queue, "body": "run", "timezone": "UTC"}
    for field, value in values.items():
        tab.page.fill(f"#new [name={field}]", value)
    tab.click("Define schedule")
    refused(tab, "cron", "61 * * * *", "61")
    assert {name: tab.page.input_value(f"#new [name={name}]") for name in values} == values
    tab.page.fill("#new [name=cron]", NEVER)
    tab.click("Define schedule")
    refused(tab, "name", "x y", "is not a schedule name")


def test_a_question_keeps_what_was_typed(tab: Tab, api: Api, queue: str) -> None:
    message = put_in_state(api, queue, "ready")
    choose(tab, queue, "ready", message)
    tab.click("Move")
    agree(tab, to=f"{queue}.nowhere", rate="5")
    refused(tab, "to", f"{queue}.nowhere", "there is no queue")
    assert question(tab).locator("[name=rate]").input_value() == "5"
    api.make(f"{queue}.to")
    agree(tab, to=f"{queue}.to", rate="often")
    refused(tab, "rate", "often", "is not a number")


def test_the_next_runs_are_shown_while_typing(scripted: Tab) -> None:
    scripted.open("schedules/new")
    scripted.page.fill("[name=timezone]", "Europe/Berlin")
    scripted.page.fill("[name=cron]", "30 3 * * *")
    runs = scripted.page.locator("#runs li")
    runs.first.wait_for()
    assert runs.count() == 3
    assert re.fullmatch(r"\w{3} \d{4}-\d\d-\d\d 03:30:00 Europe/Berlin", runs.first.inner_text())
    scripted.page.fill("[name=cron]", "99 3 * * *")
    scripted.page.locator("#runs .problem").wait_for()


def test_health_is_shown_at_once_and_problems_first(scripted: Tab) -> None:
    scripted.open("cluster")
    scripted.page.locator("[data-health]").first.wait_for()  # without pressing a button
    scripted.open("cluster")
    found = scripted.page.locator("[data-health]")
    worst = ["error", "warning", "note", "ok"]
    levels = [worst.index(str(one.get_attribute("data-health"))) for one in found.all()]
    assert levels == sorted(levels)
