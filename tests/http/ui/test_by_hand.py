"""Addresses and forms that no page produces, and limits of the size of pages."""

from __future__ import annotations

import http.client
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.test_limits import memory
from tests.http.test_memory import most_memory

from .asked import Api

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# What docs/security.md allows in addition to the memory for bodies.
BEYOND = 64 * 1024 * 1024
ADDRESS = re.compile(r'(?:href|action|hx-sse:connect)="([^"]*)"')


class Answer(NamedTuple):
    status: int
    text: str


def ask(suite: Suite, method: str, path: str, came_from: str = "", **form: str) -> Answer:
    """Request a page; its address is sent as it is. came_from: the Referer."""
    connection = http.client.HTTPConnection("127.0.0.1", suite.port, timeout=60)
    headers = {"Origin": suite.url, **(FORM if form else {})}
    headers |= {"Referer": came_from} if came_from else {}
    connection.request(method, f"/_ui/{path}", urlencode(form) or None, headers)
    answer = connection.getresponse()
    found = Answer(answer.status, answer.read().decode())
    connection.close()
    return found


@pytest.mark.parametrize(
    "place", ["", "queues", "topics", "logs", "schedules", "work", "dead", "cluster"]
)
def test_notices_of_other_pages_offer_no_undo(suite: Suite, place: str) -> None:
    for did in ("paused", "resumed", "held&of=1:x", "sent&of=x", "subscribed&of=x"):
        status, text = ask(suite, "GET", f"{place}?did={did}")
        assert (status, "Undo" in text) == (200, False), did


@pytest.mark.parametrize("value", ["[" * 100_000, "{" * 100_000, "9" * 100_000])
def test_absurd_settings_are_refused(suite: Suite, value: str) -> None:
    Api(suite).make("nested")
    asked = ask(suite, "POST", "q/nested", do="configure", max_deliveries=value)
    assert asked.status == 400
    assert "max_deliveries" in asked.text


@pytest.mark.parametrize("do", ["skip", "bury"])
def test_malformed_offsets_are_refused(suite: Suite, do: str) -> None:
    api = Api(suite)
    for made in ("/_logs/numbers", "/_logs/numbers/channels/c"):
        api.ask("PUT", made)
    for field in ("offset", "generation"):
        form = {"do": do, "sure": "yes", "offset": "0", "generation": "0"}
        asked = ask(suite, "POST", "logs/numbers/c/c", **form | {field: "0" * 20 + "9" * 5000})
        assert (asked.status, "is not a number of a page" in asked.text) == (400, True)


@pytest.mark.parametrize("page", ["q/a:b", "q/a:b?state=new", "topics/a:b"])
def test_no_link_begins_with_a_name(suite: Suite, page: str) -> None:
    """A browser would take the part before a colon for a scheme, as in javascript:."""
    Api(suite).make("a:b")
    Api(suite).ask("PUT", "/_topics/a:b")
    status, text = ask(suite, "GET", page)
    assert status == 200
    addresses = ADDRESS.findall(text)
    assert "./a:b" in " ".join(addresses)
    assert not [one for one in addresses if one.startswith("a:b")]
    asked = ask(suite, "POST", page.partition("?")[0], do="delete")
    assert 'action="./a:b"' in asked.text


def test_a_preview_of_subscribers_applies_filters_on_bodies(suite: Suite) -> None:
    api = Api(suite)
    api.make("takes-bodies")
    api.ask("PUT", "/_topics/bodies")
    policy = {"sns": {"filter": '{"kind": ["order"]}', "scope": "MessageBody", "raw": True}}
    (suite.root / "topics" / "bodies" / "takes-bodies").write_text(json.dumps(policy))
    for kind, number in (("order", 1), ("other", 0)):
        body = json.dumps({"kind": kind})
        asked = ask(suite, "POST", "topics/bodies", do="publish", body=body)
        assert f"By their filters {number} of 1 subscriptions take it" in asked.text


def test_a_deeply_nested_body_is_not_blown_up(suite: Suite) -> None:
    api = Api(suite)
    api.make("deep")
    deep, many = 900, 30_000
    body = b"[" * deep + b",".join([b"1"] * many) + b"]" * deep
    message = api.put("deep", body)
    status, text = ask(suite, "GET", f"q/deep/m/{message}")
    assert status == 200
    assert "[[[[" in text
    assert len(text) < 20 * len(body)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["q/large", "dead"])
def test_lists_do_not_hold_the_bodies_of_large_messages(suite: Suite, page: str) -> None:
    """They show only the beginnings, also to many viewers at once."""
    api = Api(suite)
    api.make("large")
    api.make("buries", max_deliveries=5, dead_letter_queue="large")
    for _ in range(50):
        api.put("large", b"x" * 1_000_000)
    assert "977 KiB" in ask(suite, "GET", "q/large").text or page == "dead"
    Path(f"/proc/{suite['mq'].pid}/clear_refs").write_text("5")  # reset the peak
    before = memory(suite)
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda _: ask(suite, "GET", page), range(24)))
    assert {answer.status for answer in answers} == {200}
    assert memory(suite, "VmHWM") - before < 4 * 50_000_000
    api.ask("DELETE", "/large/messages")


def test_forms_with_files_stay_within_the_body_memory(tmp_path: Path) -> None:
    limit, size = 128 * 1024 * 1024, 12 * 1024 * 1024
    file = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n' + b"x" * size
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    options = ["--sync=none", f"--max-body-memory={limit}"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:

        def send(_: int) -> int:
            with Wire(suite.url, 60) as wire:
                form = file + b"\r\n--b--"
                return wire.ask("POST", "/_ui/queues", headers | {"Origin": suite.url}, form).status

        assert most_memory(suite, send, (400, 503), 24, 24) < limit + BEYOND


def test_refused_forms_stay_within_the_body_memory(tmp_path: Path) -> None:
    """The page repeats the input with each quote as five characters, as text and as bytes."""
    limit, size = 32 * 1024 * 1024, 1000 * 1024
    form = b"do=send&delay=never&body=" + b'"' * size
    options = ["--sync=none", f"--max-body-memory={limit}"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        Api(suite).make("q")

        def send(_: int) -> int:
            with Wire(suite.url, 60) as wire:
                return wire.ask("POST", "/_ui/q/q", FORM | {"Origin": suite.url}, form).status

        assert send(0) == 400
        assert most_memory(suite, send, (400, 503), 96, 48) < limit + BEYOND


def test_errors_have_their_status_when_there_is_no_memory(tmp_path: Path) -> None:
    """Also those whose page would take memory."""
    with Inside(tmp_path / "root", ui=True) as inside, Wire(inside.url) as wire:
        admission = inside.service.admission
        inside.call(lambda: admission.hold(None, admission.limits.memory - 100, sure=True))
        form = FORM | {"Origin": inside.url}
        assert wire.ask("POST", "/_ui/q/none", form, b"do=send&body=" + b"x" * 50).status == 503
        inside.call(lambda: admission.hold(None, 200, sure=True))
        with Wire(inside.url) as another:
            assert another.ask("GET", "/_ui/q/none").status == 404
        inside.call(lambda: admission.free(None, admission.limits.memory + 100))


def test_a_long_text_is_sent_as_a_file(suite: Suite) -> None:
    api = Api(suite)
    api.make("texts")
    part = '--b\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Origin": suite.url}
    for size, more, status in (
        (1000 * 1024, "", 303),
        (1100 * 1024, "", 400),
        (1100 * 1024, '; filename="f"', 303),
    ):
        name = "file" if more else "body"
        form = part.format("do", "", "send") + part.format(name, more, "x" * size) + "--b--"
        with Wire(suite.url, 60) as wire:
            asked = wire.ask("POST", "/_ui/q/texts", headers, form.encode())
        assert asked.status == status
        assert (b"send a long text as a file" in asked.body) == (status == 400)


def test_links_do_not_repeat_a_long_address(suite: Suite) -> None:
    Api(suite).make("linked")
    for path in ("q/linked?did=sent&of={}", "queues?x={}", "q/linked?state={}", "none/{}"):
        for sign in (",", "(", "/"):
            assert ask(suite, "GET", path.format(sign * 120_000)).status == 400
            assert len(ask(suite, "GET", path.format(sign * 16_000)).text) < 1_500_000
    text = ask(suite, "GET", "q/linked?did=sent&of=" + "," * 15_000).text
    assert len(text) < 100_000
    text = ask(suite, "GET", "q/linked?did=sent&of=" + ",".join(map("m{}".format, range(50)))).text
    assert text.count('name="message"') == 50


def test_long_patterns_are_refused(suite: Suite) -> None:
    """A compiled pattern is cached and takes thirty times its size."""
    assert ask(suite, "GET", "queues?match=" + "*a" * 100).status == 200
    assert ask(suite, "GET", "queues?match=" + "*a" * 1000).status == 400


@pytest.mark.parametrize(
    ("came_from", "back"),
    [
        ("", "../../"),
        ("http://localhost/_ui/q/jobs?state=delayed&did=held&n=1", "../../q/jobs?state=delayed"),
        ("https://proxy/below/_ui/logs/visits", "../../logs/visits"),
        ("https://elsewhere/", "../../"),
        ("https://elsewhere/_ui//elsewhere/", "../../"),
        ("https://elsewhere/_ui/../_logs", "../../"),
        ("https://elsewhere/_ui/%2e%2e/_logs", "../../"),
        ("http://[", "../../"),
        ("http://localhost/_ui/q/jobs/none", "../../"),  # the page itself
    ],
)
def test_the_back_link_leads_to_the_previous_page(suite: Suite, came_from: str, back: str) -> None:
    status, text = ask(suite, "GET", "q/jobs/none", came_from)
    assert status == 404
    assert f'<a href="{back}" data-cancel' in text


def test_the_menu_marks_the_section_of_a_page(suite: Suite) -> None:
    Api(suite).make("marked")
    marks = re.compile(r'aria-current="(page|true)">([A-Z][a-z ]+)</a>')
    for path, mark in {
        "": ("page", "Overview"),
        "queues": ("page", "Queues"),
        "q/marked/send": ("true", "Queues"),
        "new-log": ("true", "Logs"),
        "schedules/new": ("true", "Schedules"),
    }.items():
        assert marks.findall(ask(suite, "GET", path).text)[0] == mark, path


def test_a_form_does_not_redirect_to_a_long_address(suite: Suite) -> None:
    api = Api(suite)
    api.make("led")
    gone = {"do": "remove", "message": api.put("led"), "containing": "x" * 300_000, "sure": "1"}
    with Wire(suite.url) as wire:
        headers = FORM | {"Origin": suite.url}
        answer = wire.ask("POST", "/_ui/q/led", headers, urlencode(gone).encode())
    assert answer.status == 303
    assert len(answer.headers["Location"]) < 16 * 1024
    long = ask(suite, "POST", "q/led", do="remove", message="x" * 300_000)
    assert long.status == 400
    assert "more than 765 characters" in long.text
