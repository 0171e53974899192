"""Requests that are small to send and long to take: 2 MB at most."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from itertools import count, islice

from fsmq.http.emodb.ids import encode
from fsmq.spool.verbs.dedup import read_side


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _many(number: int) -> dict[str, str]:
    return {f"a{n}": "v" for n in range(number)}


def _ids(channel: str) -> bytes:
    return _json([encode(channel, f"{n:x}") for n in range(80_000)])


def _bodies(number: int) -> list[int]:
    """Messages that are equal to none of those before."""
    return list(islice(_fresh, number))


_fresh = count(1_000_000)
FORM = "application/x-www-form-urlencoded"
SEND = {"X-Amz-Target": "AmazonSQS.SendMessage"}
GZIP = {"Content-Encoding": "gzip"}
IN_JSON = {"Content-Type": "application/json"}
CHUNKED = {"Transfer-Encoding": "chunked"}
AS_FORM = {"Content-Type": FORM}
BY_BROWSER = AS_FORM | {"Origin": "http://localhost"}
WITH_FILES = BY_BROWSER | {"Content-Type": "multipart/form-data; boundary=b"}
FIELD = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
FILTER = (
    b"Action=Subscribe&Version=2010-03-31&Protocol=sqs"
    b"&TopicArn=arn:aws:sns:us-east-1:000000000000:t"
    b"&Endpoint=arn:aws:sqs:us-east-1:000000000000:q"
    b"&Attributes.entry.1.key=FilterPolicy&Attributes.entry.1.value="
)
# What each is, and what makes its body, when its test runs.
SHAPES: tuple[tuple[str, str, str, Mapping[str, str], Callable[[], bytes]], ...] = (
    ("members", "POST", "/q/messages", GZIP, lambda: gzip.compress(b"") * 65_536),
    ("members for SQS", "POST", "/", GZIP | SEND, lambda: gzip.compress(b"") * 65_536),
    (
        "members of a form",
        "POST",
        "/_ui/q/q",
        GZIP | BY_BROWSER,
        lambda: gzip.compress(b"") * 65_536,
    ),
    ("chunks", "POST", "/q/messages", CHUNKED, lambda: b"1\r\nx\r\n" * 330_000 + b"0\r\n\r\n"),
    (
        "chunks for JSON",
        "POST",
        "/q/batch",
        CHUNKED,
        lambda: b"1\r\n1\r\n" * 330_000 + b"0\r\n\r\n",
    ),
    (
        "chunks for nobody",
        "POST",
        "/none/ack",
        CHUNKED,
        lambda: b"1\r\nx\r\n" * 330_000 + b"0\r\n\r\n",
    ),
    (
        "ids",
        "POST",
        "/q/by-id",
        {},
        lambda: _json({"do": "ack", "ids": ["a"], "names": _many(99_000)}),
    ),
    ("messages by id", "POST", "/q/ids", {}, lambda: _json([{"body": "x", "id": "a"}] * 60_000)),
    (
        "percent",
        "POST",
        "/",
        AS_FORM,
        lambda: b"Action=SendMessage&MessageBody=" + b"%41" * 650_000,
    ),
    (
        "percent for SNS",
        "POST",
        "/",
        AS_FORM,
        lambda: b"Action=Publish&Message=" + b"%c3%a4" * 330_000,
    ),
    ("fields", "POST", "/", AS_FORM, lambda: b"Action=SendMessage&" + b"%41=%41&" * 9900),
    ("fields of a page", "POST", "/_ui/q/q", BY_BROWSER, lambda: b"%41=%41&" * 4990),
    (
        "names in names",
        "POST",
        "/",
        AS_FORM,
        lambda: b"Action=SendMessage&" + b"a." * 900_000 + b"b=1",
    ),
    ("parts", "POST", "/_ui/q/q", WITH_FILES, lambda: FIELD * 4990 + b"--b--"),
    (
        "a part's head",
        "POST",
        "/_ui/q/q",
        WITH_FILES,
        lambda: (
            b"--b\r\nContent-Disposition: form-data" + b"; name=" * 250_000 + b"\r\n\r\n\r\n--b--"
        ),
    ),
    ("parameters", "GET", "/q/messages?" + "%41=%41&" * 15_000, {}, bytes),
    ("parameters of EmoDB", "GET", "/queue/1/q/peek?" + "%41=%41&" * 15_000, {}, bytes),
    ("parameters of SQS", "GET", "/?Action=ListQueues&" + "%41=%41&" * 9000, {}, bytes),
    ("parameters of a page", "GET", "/_ui/?" + "%41=%41&" * 15_000, {}, bytes),
    ("a parameter of percent", "GET", "/q/messages?a=" + "%41" * 40_000, {}, bytes),
    ("a name of percent", "GET", f"/{'%41' * 40_000}/messages", {}, bytes),
    (
        "ids in a path",
        "DELETE",
        "/queues/q/messages/" + ",".join(map(str, range(15_000))),
        {},
        bytes,
    ),
    ("values", "POST", "/", SEND, lambda: b'{"QueueUrl":[' + b"{}," * 650_000 + b"1]}"),
    ("numbers", "POST", "/", SEND, lambda: b'{"QueueUrl":[' + b"1," * 950_000 + b"1]}"),
    ("members of JSON", "POST", "/", SEND, lambda: _json(_many(120_000))),
    ("escapes", "POST", "/", SEND, lambda: b'{"QueueUrl":"' + b"\\u0041" * 330_000 + b'"}'),
    (
        "attributes of SQS",
        "POST",
        "/",
        SEND,
        lambda: _json(
            {
                "QueueUrl": "http://x/000000000000/q",
                "MessageBody": "x",
                "MessageAttributes": {
                    key: {"DataType": "String", "StringValue": "v"}
                    for key in map(str, range(30000))
                },
            }
        ),
    ),
    (
        "attributes",
        "POST",
        "/q/batch",
        {},
        lambda: _json([{"body": "x", "attributes": _many(120_000)}]),
    ),
    ("a batch of nothing", "POST", "/q/batch", {}, lambda: b"[" + b"{}," * 650_000 + b"1]"),
    (
        "values of EmoDB",
        "POST",
        "/queue/1/q/send",
        IN_JSON,
        lambda: _json(_many(120_000)),
    ),
    (
        "messages of EmoDB",
        "POST",
        "/queue/1/q/sendbatch",
        IN_JSON,
        lambda: b"[" + b"{}," * 650_000 + b"1]",
    ),
    ("nesting", "POST", "/q/batch", {}, lambda: b"[" * 2_000_000),
    ("nesting for SQS", "POST", "/", SEND, lambda: b'{"QueueUrl":' + b"[" * 1_900_000),
    ("claims of EmoDB", "POST", "/queue/1/q/renew?ttl=30", IN_JSON, lambda: _ids("q")),
    ("claims that end", "POST", "/queue/1/q/renew?ttl=0", IN_JSON, lambda: _ids("q")),
    ("acks of EmoDB", "POST", "/queue/1/q/ack", IN_JSON, lambda: _ids("q")),
    ("acks for dedup", "POST", "/dedupq/1/q/ack", IN_JSON, lambda: _ids(read_side("q"))),
    (
        "entries of SQS",
        "POST",
        "/",
        {"X-Amz-Target": "AmazonSQS.SendMessageBatch"},
        lambda: _json(
            {
                "QueueUrl": "http://x/000000000000/q",
                "Entries": [{"Id": "a", "MessageBody": "x"}] * 60_000,
            }
        ),
    ),
    (
        "receipts of SQS",
        "POST",
        "/",
        {"X-Amz-Target": "AmazonSQS.DeleteMessageBatch"},
        lambda: _json(
            {
                "QueueUrl": "http://x/000000000000/q",
                "Entries": [{"Id": "a", "ReceiptHandle": "x"}] * 50_000,
            }
        ),
    ),
    (
        "entries of SNS",
        "POST",
        "/",
        AS_FORM,
        lambda: (
            b"Action=PublishBatch&TopicArn=arn:aws:sns:us-east-1:000000000000:t&"
            + b"".join(
                b"PublishBatchRequestEntries.member.%d.%s=x&" % (number, name)
                for number in range(1, 4900)
                for name in (b"Id", b"Message")
            )
        ),
    ),
    (
        "nesting for EmoDB",
        "POST",
        "/queue/1/q/send",
        IN_JSON,
        lambda: b'{"a":' * 400_000,
    ),
    (
        "a deep filter",
        "PUT",
        "/_topics/t/queues/q",
        {},
        lambda: b'{"a":' * 2700 + b"1" + b"}" * 2700,
    ),
    ("a wide filter", "PUT", "/_topics/t/queues/q", {}, lambda: _json({"a": ["b"] * 3200})),
    ("a deep filter of SNS", "POST", "/", AS_FORM, lambda: FILTER + b"%7b%22a%22:" * 180_000),
    (
        "a wide filter of SNS",
        "POST",
        "/",
        AS_FORM,
        lambda: FILTER + b"%7b%22a%22:%5b" + b"%7b%22prefix%22:%22a%22%7d," * 60_000 + b"1%5d%7d",
    ),
    (
        "a crontab line",
        "PUT",
        "/_schedules/s",
        {},
        lambda: _json({"queue": "q", "cron": ",".join(["*/7"] * 20_000) + " * * * *", "body": "x"}),
    ),
    (
        "a timezone",
        "PUT",
        "/_schedules/s",
        {},
        lambda: _json({"queue": "q", "cron": "* * * * *", "timezone": "A/" * 200_000, "body": "x"}),
    ),
    ("ids to move", "POST", "/q/move?to=q2", {}, lambda: _json({"ids": ["a"] * 400_000})),
    ("offsets", "POST", "/_logs/l/channels/c/done", {}, lambda: _json({"offsets": [*range(8000)]})),
)
# Batches of as many messages as one request may have: where they go, and what makes the next one.
BATCHES: tuple[tuple[str, str, Callable[[], bytes]], ...] = (
    ("messages", "/queue/1/q/sendbatch", lambda: _json(_bodies(99_000))),
    ("messages for dedup", "/dedupq/1/q/sendbatch", lambda: _json(_bodies(99_000))),
    (
        "messages for some queues",
        "/dedupq/1/_sendbatch",
        lambda: _json({f"q{n}": _bodies(4900) for n in range(20)}),
    ),
    (
        "messages for many queues",
        "/queue/1/_sendbatch",
        lambda: _json({f"q{n}": _bodies(1) for n in _bodies(5000)}),
    ),
)
