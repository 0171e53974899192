"""Small forms that take long to unquote do not block the loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest

from fsmq.http.sqs.dialect import MAX_FORM_BYTES
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.test_loop import HELD_S, MIB, exchange, longest, watch_over
from tests.http.watched import Watch

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
JSON = {"Content-Type": "application/json"}
# A head has 128 KiB at most.
MANY = "&".join(["a=%41"] * 20_000)
SEND = urlencode({"Action": "SendMessage", "QueueUrl": "http://localhost/000000000000/q"})
PUBLISH = urlencode({"Action": "Publish", "TopicArn": "arn:aws:sns:us-east-1:000000000000:t"})
PURGE = "do=purge&sure=yes&typed=x"
DEFINE = "do=define&name=s&queue=q&cron=@daily"
CONFIGURE, LAG = "do=configure&retain_for=", "do=configure&max_lag="
ATTRIBUTES = "attributes=" + "a:\n" * 330_000
NUMBERS = '{"a":[' + "1," * 500_000 + "1]}"
# A subscription of SNS with a filter on bodies.
OF_BODIES = {"filter": '{"a": ["x"]}', "scope": "MessageBody", "raw": True, "kept": {}}
FORMS: tuple[tuple[str, str, str, Callable[[], str]], ...] = (
    ("a body of escapes", "POST", "/", lambda: f"{SEND}&MessageBody=" + "%41" * MIB),
    (
        "the longest body of escapes",
        "POST",
        "/000000000000/q",
        lambda: f"{SEND}&MessageBody=" + "%c3%a9" * ((MAX_FORM_BYTES - 200) // 6),
    ),
    ("a body that is too long", "POST", "/", lambda: f"{SEND}&MessageBody=" + "a" * 4 * MIB),
    ("a message of escapes", "POST", "/", lambda: f"{PUBLISH}&Message=" + "%41" * MIB),
    ("a name of escapes", "POST", "/", lambda: f"{SEND}&" + "%41" * MIB + "=x"),
    ("a name of dots", "POST", "/", lambda: f"{SEND}&" + "." * 4 * MIB + "=x"),
    ("many names", "POST", "/", lambda: f"{SEND}&" + "&".join(["Tag.1.Key=%41%42"] * 9_000)),
    ("too many names", "POST", "/", lambda: f"{SEND}&" + "&" * 3 * MIB),
    ("a query of many names", "POST", f"/?{MANY}", lambda: SEND),
    ("a query of escapes", "GET", "/?Action=ListQueues&x=" + "%41" * 40_000, lambda: ""),
    ("a login", "POST", "/_ui/login", lambda: "key=" + "%41" * 300_000),
    ("a page's form", "POST", "/_ui/q/q", lambda: f"{PURGE}&x=" + "%41" * 300_000),
    ("a new log", "POST", "/_ui/logs", lambda: "do=create&log=l&x=" + "%41" * 300_000),
    ("a log's form", "POST", "/_ui/logs/l", lambda: "do=delete&typed=x&x=" + "%41" * 300_000),
    ("a channel's form", "POST", "/_ui/logs/l/c/c", lambda: "do=pause&x=" + "%41" * 300_000),
    ("attributes of a page", "POST", "/_ui/q/q", lambda: f"do=send&body=x&{ATTRIBUTES}"),
    ("a schedule's attributes", "POST", "/_ui/schedules", lambda: f"{DEFINE}&{ATTRIBUTES}"),
    ("attributes of a topic", "POST", "/_ui/topics/t", lambda: f"do=publish&{ATTRIBUTES}"),
    ("a filtered message", "POST", "/_ui/topics/t", lambda: "do=publish&body=" + NUMBERS),
    ("a long pause", "POST", "/_ui/q/q", lambda: "do=pause&length=" + "1s" * 500_000),
    ("a log's long span", "POST", "/_ui/logs/l", lambda: CONFIGURE + "1s" * 500_000),
    ("a channel's long span", "POST", "/_ui/logs/l/c/c", lambda: LAG + "1s" * 500_000),
    ("many moments", "POST", "/_ui/q/q", lambda: "do=hide&until=" + "," * 1_000_000),
    ("a long span of an address", "GET", "/_ui/q/q?older_than=" + "1s" * 60_000, lambda: ""),
    ("an address of many ids", "GET", "/_ui/q/q?did=sent&of=" + "," * 120_000, lambda: ""),
    ("an address of many names", "GET", f"/_ui/?{MANY}", lambda: ""),
    ("a poll of many names", "GET", f"/queue/1/q/poll?{MANY}", lambda: ""),
    ("a claim of many names", "GET", f"/q/messages?{MANY}", lambda: ""),
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Watch]]:
    for suite, watch in watch_over(tmp_path_factory.mktemp("watched")):
        (suite.root / "queues" / "q").mkdir()
        (suite.root / "topics" / "t").mkdir()
        (suite.root / "topics" / "t" / "q").write_text(json.dumps({"sns": OF_BODIES}))
        with Wire(suite.url) as wire:
            for made in ("/_logs/l", "/_logs/l/channels/c"):
                assert wire.ask("PUT", made).status == 201
        yield suite, watch


@pytest.mark.parametrize(
    ("method", "target", "make"), [pytest.param(*rest, id=name) for name, *rest in FORMS]
)
def test_forms_do_not_block_the_loop(
    watched: tuple[Suite, Watch], method: str, target: str, make: Callable[[], str]
) -> None:
    suite, watch = watched
    body = make().encode()
    statuses = []
    held = longest(
        watch, lambda: statuses.append(exchange(suite, method, target, FORM if body else {}, body))
    )
    assert held <= HELD_S, statuses
    assert all(status < 500 or status == 503 for status in statuses), statuses
