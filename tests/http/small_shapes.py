"""Requests of at most 2 MB that take long to process."""

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
    """Messages that all differ."""
    return list(islice(_fresh, number))


def _action(name: str) -> dict[str, str]:
    """The header that names an action of SQS."""
    return {"X-Amz-Target": f"AmazonSQS.{name}"}


def _settings() -> bytes:
    return _json({f"a{n}": 1 for n in range(5000)})


def _objects() -> bytes:
    return b"[" + b"{}," * 650_000 + b"1]"


def _members() -> bytes:
    """An archive of many members."""
    return gzip.compress(b"") * 65_536


def _attributes() -> bytes:
    return _json(_many(120_000))


def _ids_of_dedup() -> bytes:
    return _ids(read_side("q"))


_fresh = count(1_000_000)
FORM = "application/x-www-form-urlencoded"
SEND = _action("SendMessage")
GZIP = {"Content-Encoding": "gzip"}
IN_JSON = {"Content-Type": "application/json"}
NOBODY = "/none/ack"
NO_MOVE = "/_ui/work"
CHUNKED = {"Transfer-Encoding": "chunked"}
AS_FORM = {"Content-Type": FORM}
BY_BROWSER = AS_FORM | {"Sec-Fetch-Site": "same-origin"}
WITH_FILES = BY_BROWSER | {"Content-Type": "multipart/form-data; boundary=b"}
FIELD = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
FILTER = (
    b"Action=Subscribe&Version=2010-03-31&Protocol=sqs"
    b"&TopicArn=arn:aws:sns:us-east-1:000000000000:t"
    b"&Endpoint=arn:aws:sqs:us-east-1:000000000000:q"
    b"&Attributes.entry.1.key=FilterPolicy&Attributes.entry.1.value="
)
EVENTS = {"Content-Type": "application/cloudevents-batch+json"}
EVENT = {"specversion": "1.0", "id": "i", "source": "/s", "type": "t"}
OF_SQS = {"QueueUrl": "http://x/000000000000/q"}
PUBLISH_BATCH = (
    b"Action=PublishBatch&Version=2010-03-31&TopicArn=arn:aws:sns:us-east-1:000000000000:shaped&"
)


def _event(data: bytes) -> bytes:
    return b"[" + _json(EVENT)[:-1] + b', "data": ' + data + b"}]"


def _entries(*fields: str) -> bytes:
    """Ten entries of a batch of SNS, each of which has many of these fields."""
    text = "&".join(f"PublishBatchRequestEntries.member.{{n}}.{one}" for one in fields)
    made = (text.format(n=n, k=k) for n in range(1, 11) for k in range(1, 200))
    return PUBLISH_BATCH + "&".join(made).encode()


# Name, method and target, headers, and a function that makes the body.
_SHAPES: tuple[tuple[str, str, Mapping[str, str], Callable[[], bytes]], ...] = (
    ("members", "POST /q/messages", GZIP, _members),
    ("members for SQS", "POST /", GZIP | SEND, _members),
    ("members of a form", "POST /_ui/q/q", GZIP | BY_BROWSER, _members),
    ("chunks", "POST /q/messages", CHUNKED, lambda: b"1\r\nx\r\n" * 330_000 + b"0\r\n\r\n"),
    (
        "a header of CloudEvents with many escapes",
        "POST /q/messages",
        {"ce-id": '"' + '\\"' * 60_000 + '"'},
        lambda: b"x",
    ),
    ("chunks for JSON", "POST /q/batch", CHUNKED, lambda: b"1\r\n1\r\n" * 330_000 + b"0\r\n\r\n"),
    (
        "chunks for nobody",
        f"POST {NOBODY}",
        CHUNKED,
        lambda: b"1\r\nx\r\n" * 330_000 + b"0\r\n\r\n",
    ),
    (
        "ids",
        "POST /q/by-id",
        {},
        lambda: _json({"do": "ack", "ids": ["a"], "names": _many(99_000)}),
    ),
    ("messages by id", "POST /q/ids", {}, lambda: _json([{"body": "x", "id": "a"}] * 60_000)),
    ("percent", "POST /", AS_FORM, lambda: b"Action=SendMessage&MessageBody=" + b"%41" * 650_000),
    (
        "percent for SNS",
        "POST /",
        AS_FORM,
        lambda: b"Action=Publish&Message=" + b"%c3%a4" * 330_000,
    ),
    ("fields", "POST /", AS_FORM, lambda: b"Action=SendMessage&" + b"%41=%41&" * 9900),
    ("fields of a page", "POST /_ui/q/q", BY_BROWSER, lambda: b"%41=%41&" * 4990),
    (
        "names in names",
        "POST /",
        AS_FORM,
        lambda: b"Action=SendMessage&" + b"a." * 900_000 + b"b=1",
    ),
    ("parts", "POST /_ui/q/q", WITH_FILES, lambda: FIELD * 4990 + b"--b--"),
    ("parameters", "GET /q/messages?" + "%41=%41&" * 15_000, {}, bytes),
    ("parameters of EmoDB", "GET /queue/1/q/peek?" + "%41=%41&" * 15_000, {}, bytes),
    ("parameters of SQS", "GET /?Action=ListQueues&" + "%41=%41&" * 9000, {}, bytes),
    ("parameters of a page", "GET /_ui/?" + "%41=%41&" * 15_000, {}, bytes),
    ("a parameter of percent", "GET /q/messages?a=" + "%41" * 40_000, {}, bytes),
    ("a name of percent", f"GET /{'%41' * 40_000}/messages", {}, bytes),
    ("ids in a path", "DELETE /queues/q/messages/" + ",".join(map(str, range(15_000))), {}, bytes),
    ("values", "POST /", SEND, lambda: b'{"QueueUrl":[' + b"{}," * 650_000 + b"1]}"),
    ("numbers", "POST /", SEND, lambda: b'{"QueueUrl":[' + b"1," * 950_000 + b"1]}"),
    ("members of JSON", "POST /", SEND, _attributes),
    ("escapes", "POST /", SEND, lambda: b'{"QueueUrl":"' + b"\\u0041" * 330_000 + b'"}'),
    (
        "attributes of SQS",
        "POST /",
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
        "POST /q/batch",
        {},
        lambda: _json([{"body": "x", "attributes": _many(120_000)}]),
    ),
    ("a batch of nothing", "POST /q/batch", {}, _objects),
    ("values of EmoDB", "POST /queue/1/q/send", IN_JSON, _attributes),
    ("messages of EmoDB", "POST /queue/1/q/sendbatch", IN_JSON, _objects),
    ("nesting", "POST /q/batch", {}, lambda: b"[" * 2_000_000),
    ("nesting for SQS", "POST /", SEND, lambda: b'{"QueueUrl":' + b"[" * 1_900_000),
    ("claims of EmoDB", "POST /queue/1/q/renew?ttl=30", IN_JSON, lambda: _ids("q")),
    ("claims that end", "POST /queue/1/q/renew?ttl=0", IN_JSON, lambda: _ids("q")),
    ("acks of EmoDB", "POST /queue/1/q/ack", IN_JSON, lambda: _ids("q")),
    ("acks for dedup", "POST /dedupq/1/q/ack", IN_JSON, _ids_of_dedup),
    (
        "entries of SQS",
        "POST /",
        _action("SendMessageBatch"),
        lambda: _json(
            {
                "QueueUrl": "http://x/000000000000/q",
                "Entries": [{"Id": "a", "MessageBody": "x"}] * 60_000,
            }
        ),
    ),
    (
        "receipts of SQS",
        "POST /",
        _action("DeleteMessageBatch"),
        lambda: _json(
            {
                "QueueUrl": "http://x/000000000000/q",
                "Entries": [{"Id": "a", "ReceiptHandle": "x"}] * 50_000,
            }
        ),
    ),
    (
        "entries of SNS",
        "POST /",
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
    ("nesting for EmoDB", "POST /queue/1/q/send", IN_JSON, lambda: b'{"a":' * 400_000),
    ("a deep filter", "PUT /_topics/t/queues/q", {}, lambda: b'{"a":' * 2700 + b"1" + b"}" * 2700),
    ("a wide filter", "PUT /_topics/t/queues/q", {}, lambda: _json({"a": ["b"] * 3200})),
    ("a deep filter of SNS", "POST /", AS_FORM, lambda: FILTER + b"%7b%22a%22:" * 180_000),
    (
        "a wide filter of SNS",
        "POST /",
        AS_FORM,
        lambda: FILTER + b"%7b%22a%22:%5b" + b"%7b%22prefix%22:%22a%22%7d," * 60_000 + b"1%5d%7d",
    ),
    (
        "a crontab line",
        "PUT /_schedules/s",
        {},
        lambda: _json({"queue": "q", "cron": ",".join(["*/7"] * 20_000) + " * * * *", "body": "x"}),
    ),
    (
        "a timezone",
        "PUT /_schedules/s",
        {},
        lambda: _json({"queue": "q", "cron": "* * * * *", "timezone": "A/" * 200_000, "body": "x"}),
    ),
    ("ids to move", "POST /q/move?to=q2", {}, lambda: _json({"ids": ["a"] * 400_000})),
    ("offsets", "POST /_logs/l/channels/c/done", {}, lambda: _json({"offsets": [*range(8000)]})),
    ("events", "POST /q/batch", EVENTS, lambda: _json([EVENT] * 1000)),
    ("too many events", "POST /q/batch", EVENTS, lambda: _json([EVENT] * 25_000)),
    (
        "attributes of events",
        "POST /q/batch",
        EVENTS,
        lambda: _json([EVENT | {f"a{n}": "v" * 20 for n in range(60)}] * 900),
    ),
    (
        "whole numbers of an event",
        "POST /q/batch",
        EVENTS,
        lambda: _event(b"[" + b",".join([b"9" * 4300] * 440) + b"]"),
    ),
    (
        "numbers of an event",
        "POST /q/batch",
        EVENTS,
        lambda: _event(b"[" + b"1e300," * 240_000 + b"0]"),
    ),
    ("members of an event", "POST /q/batch", EVENTS, lambda: _event(_json(_many(120_000)))),
    ("nesting of an event", "POST /q/batch", EVENTS, lambda: _event(b"[" * 1_900_000)),
    (
        "nesting of events",
        "POST /q/batch",
        EVENTS,
        lambda: b"[" + b",".join([_event(b"[" * 900 + b"]" * 900)[1:-1]] * 1000) + b"]",
    ),
    (
        "names of queues",
        "GET /_claim?count=1000&queues=" + ",".join(map("subscribed-{}:9".format, range(100))),
        {},
        bytes,
    ),
    ("queues of a pattern", "GET /_claim?count=1000&queues=subscribed-1???", {}, bytes),
    (
        "patterns of queues",
        "GET /_claim?queues=" + ",".join(f"{'*s*u*b*d' * 12}{n}" for n in range(100)),
        {},
        bytes,
    ),
    ("queues that are waited for", "GET /_claim?wait=0.1&queues=subscribed-2???", {}, bytes),
    (
        "most tags",
        "POST /",
        _action("TagQueue"),
        lambda: _json(OF_SQS | {"Tags": {f"{n:0128}": "v" * 256 for n in range(50)}}),
    ),
    (
        "attributes of SNS",
        "POST /",
        AS_FORM,
        lambda: _entries(
            "Id=i{n}",
            "Message=x",
            "MessageAttributes.entry.{k}.Name=a{k}",
            "MessageAttributes.entry.{k}.Value.DataType=String",
            "MessageAttributes.entry.{k}.Value.StringValue=v",
        ),
    ),
    (
        "names of attributes",
        "POST /",
        _action("ReceiveMessage"),
        lambda: _json(OF_SQS | {"MessageAttributeNames": ["a.*"] * 200_000}),
    ),
    (
        "a part's head",
        "POST /_ui/q/q",
        WITH_FILES,
        lambda: (
            b"--b\r\nContent-Disposition: form-data" + b"; name=" * 280_000 + b"\r\n\r\n\r\n--b--"
        ),
    ),
    ("headers", "POST /q/messages", {f"ce-h{n}": "%c3%a4" * 160 for n in range(120)}, lambda: b"x"),
    ("too many headers", "GET /q/messages", {f"X-H{n}": "v" for n in range(12_000)}, bytes),
    ("a long key", "GET /q/messages", {"Authorization": "Basic " + "QQ" * 60_000}, bytes),
    (
        "a signature",
        "POST /",
        SEND
        | {
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/x/sqs/aws4_request"
            f", SignedHeaders={'host;' * 20_000}host, Signature=00"
        },
        lambda: _json(OF_SQS | {"MessageBody": "x"}),
    ),
    ("what is accepted", "GET /q/messages", {"Accept": "a/b;q=0.1," * 12_000}, bytes),
    ("encodings", "GET /_metrics", {"Accept-Encoding": "gzip;q=0.1," * 10_000}, bytes),
    ("settings that may be", "PATCH /q", {"If-Match": '"a",' * 30_000}, lambda: b"{}"),
    ("a content type", "POST /q/messages", {"Content-Type": "a/b" + ";a=b" * 30_000}, lambda: b"x"),
    (
        "a boundary",
        "POST /_ui/q/q",
        BY_BROWSER | {"Content-Type": "multipart/form-data; boundary=" + "b" * 100_000},
        lambda: b"--b" * 500_000,
    ),
    ("settings", "PATCH /q", IN_JSON, _settings),
    ("settings of Dynamiq", "PATCH /queues/q", IN_JSON, _settings),
    ("a message of Dynamiq", "PUT /queues/q/message", {}, lambda: b"x" * 2_000_000),
    ("a topic's message of Dynamiq", "PUT /topics/shaped/message", {}, lambda: b"x" * 2_000_000),
    ("a message for dedup", "POST /dedupq/1/q/send", IN_JSON, _attributes),
    ("renewals for dedup", "POST /dedupq/1/q/renew?ttl=30", IN_JSON, _ids_of_dedup),
    ("ids to redrive", "POST /q/redrive", IN_JSON, lambda: _json({"ids": ["a"] * 400_000})),
    ("settings of a log", "PUT /_logs/l", IN_JSON, _settings),
    ("a log's settings", "PATCH /_logs/l", IN_JSON, _settings),
    ("a log's message", "POST /_logs/l/messages", {}, lambda: b"x" * 2_000_000),
    (
        "a log's messages",
        "POST /_logs/l/batch",
        IN_JSON,
        lambda: _json([{"body": "x", "attributes": _many(130)}] * 1000),
    ),
    ("a channel", "PUT /_logs/l/channels/c", IN_JSON, _settings),
    ("a channel's settings", "PATCH /_logs/l/channels/c", IN_JSON, _settings),
    ("a filter of a log", "PUT /_topics/t/logs/l", {}, lambda: _json({"a": ["b"] * 3200})),
    (
        "a schedule",
        "PATCH /_schedules/s",
        IN_JSON,
        lambda: _json({"body": "x", "attributes": {f"a{n}": "v" for n in range(4000)}}),
    ),
    (
        "a schedule of a page",
        "POST /_ui/schedules",
        BY_BROWSER,
        lambda: b"do=define&name=s&queue=q&body=x&cron=" + b"*/7," * 20_000 + b"1 * * * *",
    ),
    (
        "a filter of a page",
        "POST /_ui/topics/t",
        BY_BROWSER,
        lambda: b"do=subscribe&queue=q&filter=" + b"%7b%22a%22:" * 50_000,
    ),
    (
        "a topic of a page",
        "POST /_ui/topics",
        BY_BROWSER,
        lambda: b"do=create&topic=" + b"%41" * 300_000,
    ),
    (
        "a queue of a page",
        "POST /_ui/queues",
        BY_BROWSER,
        lambda: b"do=create&queue=" + b"%41" * 300_000,
    ),
    ("a move of a page", f"POST {NO_MOVE}", BY_BROWSER, lambda: b"do=stop&ref=" + b"%41" * 300_000),
    ("an end of a session", "POST /_ui/logout", BY_BROWSER, lambda: b"%41=%41&" * 4000),
    (
        "digits of a number that is none",
        "POST /",
        SEND,
        lambda: _json(
            OF_SQS
            | {
                "MessageBody": "x",
                "MessageAttributes": {
                    "n": {"DataType": "Number", "StringValue": "1" * 20_000 + "x"}
                },
            }
        ),
    ),
    (
        "a long name of an attribute",
        "POST /q/batch",
        IN_JSON,
        lambda: _json([{"body": "x", "attributes": {"a" * 1_900_000: "v"}}]),
    ),
    (
        "a long name of a member",
        "POST /q/ack",
        IN_JSON,
        lambda: _json({"ids": [{"a" * 1_900_000: 1}]}),
    ),
    ("an id of escapes", "POST /q/ack", IN_JSON, lambda: _json({"ids": ["%41" * 600_000]})),
    ("an id to move", "POST /q/move?to=q2", IN_JSON, lambda: _json({"ids": ["%41" * 600_000]})),
    (
        "an id in a form",
        "POST /_ui/q/q",
        WITH_FILES,
        lambda: (
            FIELD.replace(b'"a"', b'"do"').replace(b"x", b"remove")
            + FIELD.replace(b'"a"', b'"message"').replace(b"x", b"%41" * 600_000)
            + b"--b--"
        ),
    ),
)
SHAPES = [(name, *asked.split(" ", 1), *rest) for name, asked, *rest in _SHAPES]
# Batches of the maximum length: their target, and a function that makes the next one.
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
