"""What pages show, as they come over HTTP, and what they take."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import time
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

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
from tests.cli.helpers import taken
from tests.harness.suite import HOME, Suite, eventually

from .asked import Api, page

TEMPLATES = HOME / "fsmq/http/ui/templates"


def post(api: Api, suite: Suite, path: str, form: list[tuple[str, str]]) -> str:
    """What a form is answered with, behind its redirection."""
    headers = {"Content_Type": "application/x-www-form-urlencoded"}
    _, body = api.ask("POST", f"/_ui/{path}", urlencode(form).encode(), Origin=suite.url, **headers)
    return body.decode()


def test_a_queue_says_itself_from_when_on_it_is_late(api: Api, queue: str) -> None:
    api.put(queue)
    rows = f"?match={queue}&state=late"
    assert f"q/{queue}" not in page(api, rows)
    api.change(queue, alert_age=0.001)
    eventually(lambda: f"q/{queue}" in page(api, rows))


def test_where_nobody_is_expected_to_work_nothing_is_late(api: Api, queue: str) -> None:
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


def test_the_last_minutes_are_told_finer_once_one_looks(api: Api, queue: str) -> None:
    api.put(queue)
    path = f"q/{queue}/history?span=15min"
    page(api, path)
    found = re.search('data-recent="([^"]*)"', page(api, path))
    assert found
    [first] = json.loads(html.unescape(found[1]))
    assert len(first) == 11
    assert abs(first[0] - time.time()) < 60


def test_points_come_every_two_seconds_and_go_after_a_quarter_of_an_hour() -> None:
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


def test_points_are_kept_of_the_queues_that_were_looked_at_last() -> None:
    recent = Recent()
    for number in range(MOST_QUEUES):
        recent.add(str(number), 1.0, Counts(), None, None)
    recent.add("0", 3.0, Counts(), None, None)
    recent.add("another", 3.0, Counts(), None, None)
    assert [len(recent.of(queue, 0.0)) for queue in ("0", "1", "2", "another")] == [2, 0, 1, 1]


def test_a_staged_job_shows_until_it_is_there(api: Api, spool: Spool, queue: str) -> None:
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


def test_a_move_says_who_works_on_it(api: Api, spool: Spool, queue: str) -> None:
    api.make(f"{queue}.to")
    for _ in range(3):
        api.put(queue)
    eventually(lambda: api.counts(queue) == {"ready": 3})
    _, told = api.ask("POST", f"/{queue}/move?to={queue}.to&rate=0.01")
    ref = json.loads(told)["move"]
    by = re.compile(rf'id="move-{ref}".*?by {re.escape(host_name())}, process [0-9]+<', re.DOTALL)
    eventually(lambda: by.search(page(api, "work")))
    spool.stop_move(ref)
    [ended] = [move for move in spool.moves() if move.ref == ref]
    assert holders(spool.context, [ended]) == {}


def test_what_is_looked_for_may_be_gone_or_a_topic(api: Api, queue: str) -> None:
    message = api.put(queue)
    assert api.claim(queue) == message
    api.ask("DELETE", f"/{queue}/messages/{message}")

    def life() -> str:
        try:
            return page(api, f"?find={message}")
        except HTTPError as error:
            return error.read().decode()

    told = eventually(lambda: (found := life()) and "removed" in found and found)
    assert f"It is not in {queue} any more" in told
    assert "claimed" in told
    api.ask("PUT", f"/_topics/{queue}.news")
    assert f"topics/{queue}.news" in page(api, f"?find={queue}.n")


def test_a_message_of_a_paused_queue_says_so(api: Api, queue: str) -> None:
    message = api.put(queue)
    path = f"q/{queue}/m/{message}"
    assert "is paused" not in page(api, path)
    api.change(queue, paused=True)
    assert f"{queue} is paused until resumed" in page(api, path)
    api.change(queue, paused="2099-01-31T12:00:00Z")
    told = page(api, path)
    assert f"{queue} is paused until <time" in told
    assert "2099-01-31" in told


def sought(api: Api, text: str, sign: str) -> str:
    """What a search tells, once it has a text; the page of a message that is gone is an error."""

    def found() -> str:
        try:
            told = page(api, f"queues?find={text}")
        except HTTPError as error:
            told = error.read().decode()
        return told if sign in told else ""

    return eventually(found)


@pytest.mark.parametrize("priority", [0, 3])
def test_a_message_with_an_own_id_is_found_once_it_is_gone(
    api: Api, queue: str, priority: int
) -> None:
    own = f"order-{priority}-gone"
    message = api.put(queue, query=f"?id={own}&priority={priority}")
    assert api.claim(queue) == message
    api.ask("DELETE", f"/{queue}/messages/{message}")
    for text in {own, message}:
        told = sought(api, text, "removed")
        assert f"It is not in {queue} any more" in told


def test_all_messages_of_an_own_id_are_listed(api: Api, queue: str) -> None:
    own = f"twice.{queue}"[:60]
    ids = [api.put(queue, query=f"?id={own}&priority={n}") for n in (3, 5)]
    told = sought(api, own, "Messages of this id")
    for one in ids:
        assert f"q/{queue}/m/{quote(one, safe='')}" in told
    for _ in ids:
        api.ask("DELETE", f"/{queue}/messages/{api.claim(queue)}")
    told = sought(api, own, "Messages of this id")
    assert all(f"{one} in {queue}" in told for one in ids)
    assert "Nothing found" not in told


def test_the_journal_is_searched_for_a_part_of_a_name_if_one_asks(api: Api, queue: str) -> None:
    own = queue[:-1][:60]
    message = api.put(queue, query=f"?id={own}")
    assert api.claim(queue) == message
    api.ask("DELETE", f"/{queue}/messages/{message}")
    told = sought(api, own, "Search the journal for one that is gone")
    assert f"q/{queue}" in told
    assert f"It is not in {queue} any more" in sought(api, f"{own}&gone=yes", "removed")


def test_all_that_match_are_asked_about_and_done(
    api: Api, suite: Suite, spool: Spool, queue: str
) -> None:
    spool.queue(queue).put_many([b"good"] * 70 + [b"bad"] * 30)
    eventually(lambda: api.counts(queue) == {"ready": 100})
    assert "all that match" in page(api, f"q/{queue}?containing=good").lower()
    form = [("do", "remove"), ("all", "yes"), ("state", "ready"), ("containing", "good")]
    asked = post(api, suite, f"q/{queue}", form)
    assert "Delete 70 messages?" in asked
    ids = re.findall('name="message" value="([^"]+)"', asked)
    assert len(set(ids)) == 70
    put_meanwhile = api.put(queue, b"good")
    sure = [("do", "remove"), ("sure", "yes"), *(("message", one) for one in ids)]
    post(api, suite, f"q/{queue}", sure)
    eventually(lambda: api.counts(queue) == {"ready": 31})
    assert put_meanwhile in page(api, f"q/{queue}?containing=good")


def shell(asked: str) -> list[list[str]]:
    """The commands of a question, in words."""
    found = re.findall(r"<code>((?:fsmq|curl) .*?)</code>", asked)
    return [shlex.split(html.unescape(one)) for one in found]


def test_what_a_question_has_for_a_shell_does_the_same(api: Api, suite: Suite, queue: str) -> None:
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
        own, http = shell(post(api, suite, path, form))
        assert taken(*own), own
        method, address, *rest = http[2:]
        body = rest[rest.index("-d") + 1].encode() if "-d" in rest else None
        place = address.removeprefix(suite.url).replace("TARGET", f"{queue}.to")
        api.ask(method, place, body, Content_Type="application/json")


def test_a_form_of_settings_changes_back_nothing_of_another(
    api: Api, suite: Suite, queue: str
) -> None:
    shown = page(api, f"q/{queue}/settings").partition('id="configure"')[2]
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', shown)
    fields += re.findall(r'<input name="([^"]+)" value="([^"]*)"', shown)
    form = [(name, "45 s" if name == "visibility_timeout" else text) for name, text in fields]
    api.change(queue, max_depth=7)  # by another, meanwhile
    asked = post(api, suite, f"q/{queue}", form)
    assert "visibility_timeout: 30 seconds → 45 seconds" in asked
    assert "max_depth: 7" not in asked
    post(api, suite, f"q/{queue}", [*form, ("sure", "yes")])
    settings = api.look(queue)["settings"]
    assert (settings["visibility_timeout"], settings["max_depth"]) == (45, 7)


def test_pages_name_no_command_that_is_not_there() -> None:
    texts = "".join(file.read_text() for file in TEMPLATES.iterdir())
    named = set(re.findall(r"(?:<code>|\| |\n)fsmq ([a-z]+)", texts))
    assert len(named) > 8
    assert [n for n in sorted(named) if main.get_command(click.Context(main), n) is None] == []


def test_of_many_only_the_first_are_redriven(api: Api, suite: Suite, queue: str) -> None:
    dead = f"{queue}.dead"
    api.make(dead)
    api.change(queue, max_deliveries=5, dead_letter_queue=dead)
    ids = [api.put(dead) for _ in range(5)]
    eventually(lambda: api.counts(dead) == {"ready": 5})
    form = [("do", "redrive"), ("to", queue)]
    assert "Redrive all 5 messages" in post(api, suite, f"q/{dead}", form)
    asked = post(api, suite, f"q/{dead}", [*form, ("sure", "yes"), ("rate", "9"), ("count", "3")])
    assert "Redrive 3 messages" in asked
    assert 'name="rate" value="9"' in asked
    assert re.findall('name="message" value="([^"]+)"', asked) == sorted(ids)[:3]
    sure = [*form, ("sure", "yes"), ("count", ""), *(("message", one) for one in ids[:3])]
    post(api, suite, f"q/{dead}", sure)
    eventually(lambda: (api.counts(dead), api.counts(queue)) == ({"ready": 2}, {"ready": 3}))


def test_no_more_than_a_thousand_at_a_time(
    api: Api, suite: Suite, spool: Spool, queue: str
) -> None:
    spool.queue(queue).put_many([NewMessage(b"x", delay=3600)] * 1100)
    eventually(lambda: api.counts(queue) == {"delayed": 1100})
    form = [("do", "remove"), ("all", "yes"), ("state", "delayed")]
    assert "Delete 1\u202f000 messages?" in post(api, suite, f"q/{queue}", form)


def test_an_act_goes_on_where_some_are_gone(
    api: Api, suite: Suite, spool: Spool, queue: str
) -> None:
    ids = spool.queue(queue).put_many([NewMessage(b"x", delay=3600)] * 130)
    eventually(lambda: api.counts(queue) == {"delayed": 130})
    form = [("do", "release"), *(("message", one) for one in ("gone", *ids, "gone-too"))]
    assert "Released: 130" in post(api, suite, f"q/{queue}", form)
    eventually(lambda: api.counts(queue) == {"ready": 130})


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "100%41", "a&b'c"], ids=ascii)
def test_any_file_name_can_be_chosen(api: Api, suite: Suite, queue: str, name: str) -> None:
    for message in (name, "other"):
        (suite.root / "queues" / queue / message).write_bytes(b"x")
    eventually(lambda: api.counts(queue) == {"ready": 2})
    [value] = re.findall('name="message" value="((?!other)[^"]*)"', page(api, f"q/{queue}"))
    post(
        api,
        suite,
        f"q/{queue}",
        [("do", "remove"), ("sure", "y"), ("message", html.unescape(value))],
    )
    eventually(lambda: api.counts(queue) == {"ready": 1})
    assert sorted(os.listdir(suite.root / "queues" / queue)) == ["other"]


def test_a_body_that_is_no_text_is_sent_again_as_it_is(api: Api, suite: Suite, queue: str) -> None:
    body = bytes(range(256))
    message = api.put(queue, body)
    form = page(api, f"q/{queue}/send?again={quote(message)}")
    assert f'name="copied" value="{message}"' in form
    post(api, suite, f"q/{queue}", [("do", "send"), ("copied", message), ("body", "")])
    eventually(lambda: api.counts(queue) == {"ready": 2})
    api.ask("DELETE", f"/{queue}/messages/{message}")
    assert api.ask("GET", f"/{queue}/messages?wait=15")[1] == body


def test_a_message_of_a_fifo_queue_is_sent_with_its_group(
    api: Api, suite: Suite, spool: Spool, queue: str
) -> None:
    ordered = f"{queue}.ordered"
    spool.create_queue(ordered, fifo=True)
    for name in ("group", "dedup_id"):
        assert f'name="{name}"' in page(api, f"q/{ordered}/send")
    once = [("body", "x"), ("group", "ann & bob"), ("dedup_id", "1")]
    for _ in range(2):
        post(api, suite, f"q/{ordered}", [("do", "send"), *once])
    [message] = spool.queue(ordered).peek(9)
    assert (message.group, message.dedup_id) == ("ann & bob", "1")
    form = page(api, f"q/{ordered}/send?again={quote(message.id)}")
    assert 'value="ann &amp; bob"' in form
    assert "fsmq.dedup:" not in form  # sent again, it is another message
    spool.topic(queue, create=True).subscribe(ordered)
    for word in ("once", "once", "twice"):
        once[-1] = ("dedup_id", word)
        post(api, suite, f"topics/{queue}", [("do", "publish"), ("sure", "yes"), *once])
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


def test_a_form_with_a_file_is_read() -> None:
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
def test_a_form_that_makes_no_sense_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(UnreadableBody):
        with_files(body, kind)


def test_a_form_has_so_many_fields_at_most() -> None:
    assert plain(b"a=1&a=2&b=").texts == {"a": ["1", "2"], "b": [""]}
    with pytest.raises(UnreadableBody):
        plain(b"&".join([b"a=1"] * 5001))


def test_a_queue_that_somebody_forgot_to_resume_is_told(tmp_path: Path) -> None:
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
