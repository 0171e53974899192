"""Pages of queues and messages over HTTP, and the forms that they take."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import click
import pytest

from fsmq.cli import main
from fsmq.http.problems import UnreadableBody
from fsmq.http.service.monitoring.rates import Rate
from fsmq.http.service.monitoring.recent import MOST_QUEUES, Recent
from fsmq.http.service.monitoring.spool_warnings import long_paused
from fsmq.http.ui.forms import File, plain, with_files
from fsmq.spool.index.counting import Counts
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.moves.order import holders
from fsmq.spool.records.peers import host_name
from fsmq.spool.spool import Spool
from fsmq.spool.staging.part import Job, Part
from tests.cli.helpers import parsed
from tests.harness.suite import HOME, Suite, eventually

from .asked import Api, page, page_or_error, post

TEMPLATES = HOME / "fsmq/http/ui/templates"


def test_alert_age_says_when_a_queue_is_late(api: Api, queue: str) -> None:
    api.put(queue)
    rows = f"?match={queue}&state=late"
    assert f"q/{queue}" not in page(api, rows)
    api.change(queue, alert_age=0.001)
    eventually(lambda: f"q/{queue}" in page(api, rows))


def test_paused_and_dead_letter_queues_are_not_late(api: Api, queue: str) -> None:
    dead, rows = f"{queue}-dead", f"?match={queue}&state=late"
    api.make(dead)
    for name in (queue, dead):
        api.put(name)
    api.change(queue, alert_age=0.001, dead_letter_queue=dead, max_deliveries=3)
    eventually(lambda: f"q/{queue}" in page(api, rows))
    assert f"q/{dead}" not in page(api, rows)
    api.change(queue, paused=True)
    eventually(lambda: f'q/{queue}"' not in page(api, rows))
    api.change(dead, alert_age=0.001)
    eventually(lambda: f"q/{dead}" in page(api, rows))


def test_the_history_of_a_viewed_queue_has_recent_points(api: Api, queue: str) -> None:
    api.put(queue)
    path = f"q/{queue}/history?span=15min"
    page(api, path)
    found = re.search('data-recent="([^"]*)"', page(api, path))
    assert found
    [first] = json.loads(html.unescape(found[1]))
    assert len(first) == 11
    assert abs(first[0] - time.time()) < 60


def test_points_are_two_seconds_apart_and_kept_for_15_minutes() -> None:
    recent = Recent()
    counts = Counts(new=1, ready=2, in_flight=3, delayed=4)
    for tenth in range(20_000):
        recent.add("jobs", tenth / 10, counts, -5.0, Rate(sent=0.5))
    points = recent.of("jobs", 0.0)
    assert len(points) == 450
    times = [point[0] or 0.0 for point in points]
    assert {round(later - earlier, 1) for earlier, later in pairwise(times)} <= {1.8, 1.9}
    assert points[-1][1:] == [1, 2, 3, 4, round(times[-1] + 5, 1), 30, 0, 0, 0, 0]
    late = [point for point, at in zip(points, times, strict=True) if at >= 1995.0]
    assert recent.of("jobs", 1995.0) == late
    recent.add("empty", 1.0, counts, None, None)
    assert recent.of("empty", 0.0) == [[1.0, 1, 2, 3, 4, *[None] * 6]]


def test_points_of_the_least_recently_viewed_queue_are_dropped() -> None:
    recent = Recent()
    for number in range(MOST_QUEUES):
        recent.add(str(number), 1.0, Counts(), None, None)
    recent.add("0", 3.0, Counts(), None, None)
    recent.add("another", 3.0, Counts(), None, None)
    assert [len(recent.of(queue, 0.0)) for queue in ("0", "1", "2", "another")] == [2, 0, 1, 1]


def test_a_staged_job_is_listed_with_its_progress(api: Api, spool: Spool, queue: str) -> None:
    part = Part(spool.context, spool.syncer.sync, Job(queue[:90], 7))
    for _ in range(3):
        part.write(queue, NewMessage(b"x"))
    part.finish()

    def row() -> str:
        found = re.search(rf"<tr><th[^>]*>{queue[:90]} .*?</tr>", page(api, "work"), re.DOTALL)
        return found[0] if found else ""

    shown = eventually(row)
    assert "being written" in shown
    assert '<td class="n">3</td>' in shown


def test_a_move_names_its_host_and_process(api: Api, spool: Spool, queue: str) -> None:
    api.make(f"{queue}.to")
    for _ in range(3):
        api.put(queue)
    eventually(lambda: api.counts(queue) == {"ready": 3})
    _, answer = api.ask("POST", f"/{queue}/move?to={queue}.to&rate=0.01")
    ref = json.loads(answer)["move"]
    by = re.compile(rf'id="move-{ref}".*?by {re.escape(host_name())}, process [0-9]+<', re.DOTALL)
    eventually(lambda: by.search(page(api, "work")))
    spool.stop_move(ref)
    [ended] = [move for move in spool.moves() if move.ref == ref]
    assert holders(spool.context, [ended]) == {}


def found_by(api: Api, text: str, expected: str) -> str:
    """Search until the page has an expected text; the page of a removed message is an error."""

    def found() -> str:
        shown = page_or_error(api, f"queues?find={text}")
        return shown if expected in shown else ""

    return str(eventually(found))


def test_search_finds_topics(api: Api, queue: str) -> None:
    api.ask("PUT", f"/_topics/{queue}.news")
    assert f"topics/{queue}.news" in page(api, f"?find={queue}.n")


def test_the_page_of_a_message_says_that_its_queue_is_paused(api: Api, queue: str) -> None:
    message = api.put(queue)
    path = f"q/{queue}/m/{message}"
    assert "is paused" not in page(api, path)
    api.change(queue, paused=True)
    assert f"{queue} is paused until resumed" in page(api, path)
    api.change(queue, paused="2099-01-31T12:00:00Z")
    shown = page(api, path)
    assert f"{queue} is paused until <time" in shown
    assert "2099-01-31" in shown


@pytest.mark.parametrize(
    "query",
    ["", "?id=order-0-gone&priority=0", "?id=order-3-gone&priority=3"],
    ids=["none", "0", "3"],
)
def test_a_message_that_is_gone_is_found_by_its_id(api: Api, queue: str, query: str) -> None:
    message = api.put(queue, query=query)
    assert api.claim(queue) == message
    api.ask("DELETE", f"/{queue}/messages/{message}")
    for text in {message, *re.findall("id=([^&]+)", query)}:
        found = found_by(api, text, "removed")
        assert f"It is not in {queue} any more" in found
        assert "claimed" in found


def test_search_lists_all_messages_with_an_own_id(api: Api, queue: str) -> None:
    own = f"twice.{queue}"[:60]
    ids = [api.put(queue, query=f"?id={own}&priority={n}") for n in (3, 5)]
    shown = found_by(api, own, "Messages of this id")
    for one in ids:
        assert f"q/{queue}/m/{quote(one, safe='')}" in shown
    for _ in ids:
        api.ask("DELETE", f"/{queue}/messages/{api.claim(queue)}")
    shown = found_by(api, own, "Messages of this id")
    assert all(f"{one} in {queue}" in shown for one in ids)
    assert "Nothing found" not in shown


def test_the_journal_is_searched_on_request(api: Api, queue: str) -> None:
    own = queue[:-1][:60]
    message = api.put(queue, query=f"?id={own}")
    assert api.claim(queue) == message
    api.ask("DELETE", f"/{queue}/messages/{message}")
    shown = found_by(api, own, "Search the journal for one that is gone")
    assert f"q/{queue}" in shown
    found_by(api, f"{own}&gone=yes", f"It is not in {queue} any more")


def test_an_action_on_all_matches_takes_those_that_were_confirmed(
    api: Api, spool: Spool, queue: str
) -> None:
    spool.queue(queue).put_many([b"good"] * 70 + [b"bad"] * 30)
    eventually(lambda: api.counts(queue) == {"ready": 100})
    assert "all that match" in page(api, f"q/{queue}?containing=good").lower()
    form = [("do", "remove"), ("all", "yes"), ("state", "ready"), ("containing", "good")]
    asked = post(api, f"q/{queue}", *form)
    assert "Remove 70 messages?" in asked
    ids = re.findall('name="message" value="([^"]+)"', asked)
    assert len(set(ids)) == 70
    put_later = api.put(queue, b"good")
    sure = [("do", "remove"), ("sure", "yes"), *(("message", one) for one in ids)]
    post(api, f"q/{queue}", *sure)
    eventually(lambda: api.counts(queue) == {"ready": 31})
    assert put_later in page(api, f"q/{queue}?containing=good")


def shell(asked: str) -> list[list[str]]:
    """The commands in a confirmation, split into words."""
    found = re.findall(r"<code>((?:fsmq|curl) .*?)</code>", asked)
    return [shlex.split(html.unescape(one)) for one in found]


def test_the_shell_commands_of_a_confirmation_work(api: Api, suite: Suite, queue: str) -> None:
    api.make(f"{queue}.to")
    moved, removed = api.put(queue), api.put(queue)
    eventually(lambda: api.counts(queue) == {"ready": 2})
    topic = f"{queue}.news"
    api.ask("PUT", f"/_topics/{topic}")
    asked = [
        (f"q/{queue}", [("do", "move"), ("message", moved)]),
        (f"q/{queue}", [("do", "remove"), ("message", removed)]),
        (f"q/{queue}", [("do", "redrive"), ("rate", "5")]),
        (f"q/{queue}", [("do", "configure"), ("retention", "60")]),
        (f"q/{queue}", [("do", "purge")]),
        (f"q/{queue}", [("do", "delete")]),
        (f"topics/{topic}", [("do", "delete")]),
    ]
    for path, form in asked:
        own, http = shell(post(api, path, *form))
        assert parsed(*own), own
        method, address, *rest = http[2:]
        body = rest[rest.index("-d") + 1].encode() if "-d" in rest else None
        place = address.removeprefix(suite.url).replace("TARGET", f"{queue}.to")
        api.ask(method, place, body, Content_Type="application/json")


def test_a_settings_form_keeps_concurrent_changes(api: Api, queue: str) -> None:
    shown = page(api, f"q/{queue}/settings").partition('id="configure"')[2]
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', shown)
    fields += re.findall(r'<input name="([^"]+)" value="([^"]*)"', shown)
    form = [(name, "45 s" if name == "visibility_timeout" else text) for name, text in fields]
    api.change(queue, max_depth=7)  # by another client
    asked = post(api, f"q/{queue}", *form)
    assert "visibility_timeout: 30 seconds → 45 seconds" in asked
    assert "max_depth: 7" not in asked
    post(api, f"q/{queue}", *form, ("sure", "yes"))
    settings = api.look(queue)["settings"]
    assert (settings["visibility_timeout"], settings["max_depth"]) == (45, 7)


def test_every_command_named_on_a_page_exists() -> None:
    texts = "".join(file.read_text() for file in TEMPLATES.iterdir())
    named = set(re.findall(r"(?:<code>|\| |\n)fsmq ([a-z]+)", texts))
    assert len(named) > 8
    assert [n for n in sorted(named) if main.get_command(click.Context(main), n) is None] == []


def test_a_redrive_can_be_limited_to_the_first_messages(api: Api, queue: str) -> None:
    dead = f"{queue}.dead"
    api.make(dead)
    api.change(queue, max_deliveries=5, dead_letter_queue=dead)
    ids = [api.put(dead) for _ in range(5)]
    eventually(lambda: api.counts(dead) == {"ready": 5})
    form = [("do", "redrive"), ("to", queue)]
    assert "Redrive all 5 messages" in post(api, f"q/{dead}", *form)
    asked = post(api, f"q/{dead}", *form, ("sure", "yes"), ("rate", "9"), ("count", "3"))
    assert "Redrive 3 messages" in asked
    assert 'name="rate" value="9"' in asked
    assert re.findall('name="message" value="([^"]+)"', asked) == sorted(ids)[:3]
    sure = [*form, ("sure", "yes"), ("count", ""), *(("message", one) for one in ids[:3])]
    post(api, f"q/{dead}", *sure)
    eventually(lambda: (api.counts(dead), api.counts(queue)) == ({"ready": 2}, {"ready": 3}))


def test_an_action_takes_at_most_a_thousand_messages(api: Api, spool: Spool, queue: str) -> None:
    spool.queue(queue).put_many([NewMessage(b"x", delay=3600)] * 1100)
    eventually(lambda: api.counts(queue) == {"delayed": 1100})
    form = [("do", "remove"), ("all", "yes"), ("state", "delayed")]
    assert "Remove 1\u202f000 messages?" in post(api, f"q/{queue}", *form)


def test_an_action_skips_missing_messages(api: Api, spool: Spool, queue: str) -> None:
    ids = spool.queue(queue).put_many([NewMessage(b"x", delay=3600)] * 130)
    eventually(lambda: api.counts(queue) == {"delayed": 130})
    form = [("do", "release"), *(("message", one) for one in ("gone", *ids, "gone-too"))]
    assert "Released: 130" in post(api, f"q/{queue}", *form)
    eventually(lambda: api.counts(queue) == {"ready": 130})


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "100%41", "a&b'c"], ids=ascii)
def test_a_message_with_any_file_name_can_be_selected(
    api: Api, suite: Suite, queue: str, name: str
) -> None:
    for message in (name, "other"):
        (suite.root / "queues" / queue / message).write_bytes(b"x")
    eventually(lambda: api.counts(queue) == {"ready": 2})
    [value] = re.findall('name="message" value="((?!other)[^"]*)"', page(api, f"q/{queue}"))
    form = [("do", "remove"), ("sure", "y"), ("message", html.unescape(value))]
    post(api, f"q/{queue}", *form)
    eventually(lambda: api.counts(queue) == {"ready": 1})
    assert sorted(os.listdir(suite.root / "queues" / queue)) == ["other"]


def test_a_binary_body_is_sent_again_unchanged(api: Api, queue: str) -> None:
    body = bytes(range(256))
    message = api.put(queue, body)
    form = page(api, f"q/{queue}/send?again={quote(message)}")
    assert f'name="copied" value="{message}"' in form
    post(api, f"q/{queue}", ("do", "send"), ("copied", message), ("body", ""))
    eventually(lambda: api.counts(queue) == {"ready": 2})
    api.ask("DELETE", f"/{queue}/messages/{message}")
    assert api.ask("GET", f"/{queue}/messages?wait=15")[1] == body


def test_the_send_form_of_a_fifo_queue_takes_a_group(api: Api, spool: Spool, queue: str) -> None:
    ordered = f"{queue}.ordered"
    spool.create_queue(ordered, fifo=True)
    for name in ("group", "dedup_id"):
        assert f'name="{name}"' in page(api, f"q/{ordered}/send")
    once = [("body", "x"), ("group", "ann & bob"), ("dedup_id", "1")]
    for _ in range(2):
        post(api, f"q/{ordered}", ("do", "send"), *once)
    [message] = spool.queue(ordered).peek(9)
    assert (message.group, message.dedup_id) == ("ann & bob", "1")
    form = page(api, f"q/{ordered}/send?again={quote(message.id)}")
    assert 'value="ann &amp; bob"' in form
    assert "fsmq.dedup:" not in form  # a copy is another message
    spool.topic(queue, create=True).subscribe(ordered)
    for word in ("once", "once", "twice"):
        once[-1] = ("dedup_id", word)
        post(api, f"topics/{queue}", ("do", "publish"), ("sure", "yes"), *once)
    assert len(spool.queue(ordered).peek(9)) == 3


# -- forms with files ------------------------------------------------------------------------------

KIND = "multipart/form-data; boundary=----x"


def multipart(*parts: tuple[str, bytes]) -> bytes:
    found = [
        b"------x\r\nContent-Disposition: form-data; "
        + head.encode()
        + b"\r\n\r\n"
        + body
        + b"\r\n"
        for head, body in parts
    ]
    return b"".join(found) + b"------x--\r\n"


def test_a_multipart_form_with_a_file_is_read() -> None:
    raw = b"\x00\r\n--\r\n----x\r\n\xff"
    body = multipart(
        ('name="do"', b"send"),
        ('name="empty"', b""),
        ('name="file"; filename="a%22b.png"\r\nContent-Type: image/png', raw),
        ('name="none"; filename=""\r\nContent-Type: application/octet-stream', b""),
        ('name="do"', "grün".encode()),
    )
    texts, files = with_files(body, KIND)
    assert texts == {"do": ["send", "grün"], "empty": [""]}
    assert files == {"file": File(raw, "image/png")}
    assert with_files(body, 'Multipart/Form-Data; Boundary="----x"').texts == texts


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (multipart(("name=do", b"send")), KIND),
        (multipart(('name="do"', b"send")), "multipart/form-data"),
        (multipart(('name="do"', b"send"))[:-6], KIND),
        (b"", KIND),
        (b"------x\r\n\r\n\r\n------x--", KIND),
        (multipart((f'name="do"; x="{"x" * 20_000}"', b"send")), KIND),
    ],
)
def test_malformed_multipart_forms_are_refused(body: bytes, kind: str) -> None:
    with pytest.raises(UnreadableBody):
        with_files(body, kind)


def test_the_number_of_fields_is_limited() -> None:
    assert plain(b"a=1&a=2&b=").texts == {"a": ["1", "2"], "b": [""]}
    with pytest.raises(UnreadableBody):
        plain(b"&".join([b"a=1"] * 5001))


def test_queues_paused_for_long_are_reported(tmp_path: Path) -> None:
    paused: dict[str, bool | str] = {
        "forgotten": True,
        "late": True,
        "ends": "2999-01-01T00:00:00Z",
    }
    with Spool(tmp_path / "root", sync="none") as spool:
        spool.create_queue("open")
        for queue, until in paused.items():
            spool.create_queue(queue)
            spool.configure(queue, {"paused": until})
        for queue in ("forgotten", "ends"):
            os.utime(tmp_path / "root" / "config" / f"{queue}.json", (1.0, 1.0))
        assert long_paused(spool) == ["forgotten"]
