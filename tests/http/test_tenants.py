"""No operation of any dialect tells a key anything about other tenants.

The key of tenant a asks two servers the same. One spool has what tenant b has, too, and ties
between both: dead letters, subscriptions, moves, channels, schedules. In the other one everything
of b has been deleted. Every answer is the same, except for random values and times; and nothing of
b changes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from difflib import unified_diff
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from fsmq.http.emodb import references
from fsmq.http.ui.pages import overview_pages
from fsmq.spool import Spool
from fsmq.spool.moves.order import DONE, OPEN, Move
from fsmq.spool.schedules.putting import Putter
from fsmq.spool.schedules.schedule_files import ScheduleFiles
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.suite import eventually, eventually_on_loop
from tests.http.inside import alike
from tests.http.keyfile import add_key
from tests.http.served import SNS, SQS, Answer, Route, Served

# In a route with several names, each first one is combined with each other one.
OF_B = {
    "queue": ["bbb-q"],
    "topic": ["bbb-t"],
    "log": ["bbb-l"],
    "channel": ["bbb-c"],
    "schedule": ["bbb-s"],
    "id": ["m1", "letter-b"],
    "zone": ["z"],
    "offset": ["0"],
    "number": ["2", "m1,letter-b"],
    "digest": ["0"],
    "name": ["0"],
}
TIED = {**OF_B, "topic": ["aaa-t", "bbb-t"], "log": ["aaa-l", "bbb-l"], "queue": ["aaa-q", "bbb-q"]}
OF_A = {
    **OF_B,
    "queue": ["aaa-q", "aaa-dead", "aaa-src"],
    "topic": ["aaa-t"],
    "log": ["aaa-l"],
    "channel": ["aaa-c", "bbb-c"],
    "schedule": ["aaa-s"],
}
# Queries and bodies by route.
QUERIES = {
    "POST /{queue}/move": ["to=aaa-q", "to=bbb-q", "to=bbb-q&rate=1"],
    "POST /{queue}/redrive": ["", "to=aaa-q", "to=bbb-q"],
    "POST /{queue}/ids": ["", "ensure=true&among=bbb-q"],
    "POST /queue/1/_move": ["from=bbb-q&to=aaa-q", "from=aaa-q&to=bbb-q"],
    "POST /dedupq/1/_move": ["from=bbb-d&to=aaa-q", "from=aaa-q&to=bbb-d"],
    "GET /_claim": [f"queues={queues}" for queues in ("bbb-q", "aaa-q:2,bbb-q", "bbb-*", "b*:2")],
    "GET /_history": ["queue=bbb-q"],
    "GET /_cluster": ["", "health=true"],
    "GET /{queue}": ["", "shards=true"],
    "GET /{queue}/peek": [f"state={state}" for state in ("ready", "new", "in_flight", "delayed")],
    "GET /_ui/": ["", "find=bbb-q"],
    "GET /_ui/queues": ["", "menu=bbb-q", "find=bbb-q", "find=letter-b", "find=bbb-t"],
    "GET /_ui/logs/{log}": ["", "from=0"],
    "GET /_ui/cluster": ["", "health=yes"],
    "GET /_ui/q/{queue}/send": ["", "again=letter-b"],
}
CRON = {"cron": "@daily", "queue": "bbb-q"}
BODIES: dict[str, list[Any]] = {
    "POST /{queue}/batch": [[{"body": "x"}]],
    "POST /{queue}/ack": [{"ids": ["m1"]}],
    "POST /{queue}/move": [None, {"ids": ["m1"]}],
    "POST /{queue}/redrive": [None, {"ids": ["letter-b"]}],
    "POST /{queue}/ids": [[{"id": "given", "body": "x"}]],
    "POST /{queue}/by-id": [
        {"do": do, "ids": ["given"]} for do in ("find", "claim", "ack", "remove")
    ],
    "PATCH /{queue}": [{"max_deliveries": 3, "dead_letter_queue": "bbb-q"}, {"late_after": 5.0}],
    "PUT /_schedules/{schedule}": [CRON],
    "PATCH /_schedules/{schedule}": [{"paused": True}, {"queue": "bbb-q"}],
    "PUT /_logs/{log}/channels/{channel}": [None, {"dead_letter_queue": "bbb-q"}],
    "PATCH /_logs/{log}/channels/{channel}": [{"dead_letter_queue": "bbb-q", "max_deliveries": 2}],
    "POST /_logs/{log}/batch": [[{"body": "x"}]],
    "POST /_logs/{log}/channels/{channel}/done": [{"offsets": [0]}],
    "POST /queue/1/{queue}/send": ["x"],
    "POST /queue/1/{queue}/sendbatch": [["x"]],
    "POST /queue/1/_sendbatch": [{"bbb-q": ["x"]}, {"aaa-q": [], "bbb-q": ["x"]}],
    "POST /queue/1/{queue}/renew": [["00"]],
    "POST /queue/1/{queue}/ack": [["00"]],
    "PATCH /queues/{queue}": [{"visibility_timeout": 5}],
}
BODIES |= {
    name.replace("/queue/", "/dedupq/"): of for name, of in BODIES.items() if "/queue/1" in name
}
_FORM = {"message": "m1", "sure": "yes", "typed": "bbb-q", "to": "bbb-q", "queue": "bbb-q"}
FORMS = {
    "POST /_ui/queues": [{"do": "create", "queue": "bbb-q"}],
    "POST /_ui/q/{queue}": [
        {**_FORM, "do": do}
        for do in (
            "release",
            "hold",
            "bury",
            "remove",
            "pause",
            "resume",
            "send",
            "purge",
            "delete",
        )
    ]
    + [{**_FORM, "do": do, "to": to} for do in ("move", "redrive") for to in ("aaa-q", "bbb-q")]
    + [{**_FORM, "do": "configure", "max_deliveries": "2", "dead_letter_queue": "bbb-q"}],
    "POST /_ui/topics": [{"do": "create", "topic": "bbb-t"}],
    "POST /_ui/topics/{topic}": [
        {**_FORM, "do": do, "body": "x"} for do in ("subscribe", "unsubscribe", "publish", "delete")
    ],
    "POST /_ui/logs": [{"do": "create", "log": "bbb-l"}],
    "POST /_ui/logs/{log}": [
        {"do": "create_channel", "channel": "bbb-c"},
        {"do": "configure", "retain_for": "5", "sure": "yes"},
        {"do": "delete", "sure": "yes", "typed": "bbb-l"},
    ],
    "POST /_ui/logs/{log}/c/{channel}": [
        {"do": do, "sure": "yes", "to": "first", "offset": "0", "generation": "1", "typed": "bbb-c"}
        for do in ("pause", "resume", "seek", "skip", "bury", "delete")
    ]
    + [{"do": "configure", "sure": "yes", "dead_letter_queue": "bbb-q"}],
    "POST /_ui/schedules": [
        {"do": do, "name": "bbb-s", "sure": "yes"} for do in ("put_now", "stop", "start", "delete")
    ]
    + [{"do": "define", "name": "aaa-new", **CRON}],
}
# A claim changes counts that other requests show, sooner or later.
CLAIMS = (
    "GET /{queue}/messages",
    "GET /_logs/{log}/channels/{channel}/messages",
    "GET /queue/1/{queue}/poll",
    "GET /dedupq/1/{queue}/poll",
    "GET /queues/{queue}/messages/{number}",
)
# Where names are unique, a taken name is refused.
TAKEN = "PUT /_schedules/{schedule}"
# Parts that vary: ages, and reports of hosts and programs.
FIGURES = {
    "/_metrics": re.compile(r"(?<=_seconds)(\{.*\}) .*"),
    "/_cluster": re.compile(r'(": )(?:AGE|[0-9])[0-9.e+-]*'),
    "/_ui/cluster": re.compile(r"(>|, |of )[0-9][0-9\u202f.]*(?: [KMG]iB)?"),
}
_URL = "http://localhost/000000000000/"
_QUEUE, _DEAD = {"QueueUrl": f"{_URL}bbb-q"}, {"QueueUrl": f"{_URL}aaa-dead"}
_ARN, _TOPIC = "arn:aws:sqs:us-east-1:000000000000:", "arn:aws:sns:us-east-1:000000000000:"
_POLICY = json.dumps({"deadLetterTargetArn": f"{_ARN}bbb-q", "maxReceiveCount": 3})
_ENTRY = {"Id": "a", "ReceiptHandle": "x"}
ACTIONS: dict[str, list[dict[str, Any]]] = {
    "AddPermission": [{**_QUEUE, "Label": "x", "AWSAccountIds": ["1"], "Actions": ["*"]}],
    "ChangeMessageVisibility": [{**_QUEUE, "ReceiptHandle": "x", "VisibilityTimeout": 1}],
    "ChangeMessageVisibilityBatch": [{**_QUEUE, "Entries": [{**_ENTRY, "VisibilityTimeout": 1}]}],
    "CreateQueue": [
        {"QueueName": "bbb-q"},
        {"QueueName": "aaa-q", "Attributes": {"RedrivePolicy": _POLICY}},
    ],
    "DeleteMessage": [{**_QUEUE, "ReceiptHandle": "x"}],
    "DeleteMessageBatch": [{**_QUEUE, "Entries": [_ENTRY]}],
    "DeleteQueue": [_QUEUE],
    "GetCallerIdentity": [{}],
    "GetQueueAttributes": [{**one, "AttributeNames": ["All"]} for one in (_QUEUE, _DEAD)],
    "GetQueueUrl": [{"QueueName": "bbb-q"}],
    "ListDeadLetterSourceQueues": [_QUEUE, _DEAD],
    "ListMessageMoveTasks": [
        {"SourceArn": f"{_ARN}{queue}", "MaxResults": 10}
        for queue in ("bbb-q", "aaa-q", "aaa-dead", "bbb-dead", "aaa-alone")
    ],
    "ListQueueTags": [_QUEUE],
    "ListQueues": [{}, {"QueueNamePrefix": "bbb"}],
    "PurgeQueue": [_QUEUE],
    "ReceiveMessage": [
        {**one, "AttributeNames": ["All"], "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        for one in (_QUEUE, _DEAD)
    ],
    "RemovePermission": [{**_QUEUE, "Label": "x"}],
    "SendMessage": [{**_QUEUE, "MessageBody": "x"}],
    "SendMessageBatch": [{**_QUEUE, "Entries": [{"Id": "a", "MessageBody": "x"}]}],
    "SetQueueAttributes": [
        {**_QUEUE, "Attributes": {"VisibilityTimeout": "5"}},
        {"QueueUrl": f"{_URL}aaa-q", "Attributes": {"RedrivePolicy": _POLICY}},
    ],
    "StartMessageMoveTask": [
        {"SourceArn": f"{_ARN}bbb-dead"},
        {"SourceArn": f"{_ARN}aaa-alone"},
        {"SourceArn": f"{_ARN}bbb-dead", "DestinationArn": f"{_ARN}aaa-q"},
        {"SourceArn": f"{_ARN}aaa-dead", "DestinationArn": f"{_ARN}bbb-q"},
    ],
    "TagQueue": [{**_QUEUE, "Tags": {"a": "b"}}],
    "UntagQueue": [{**_QUEUE, "TagKeys": ["a"]}],
}
_OF_TOPIC = [{"TopicArn": f"{_TOPIC}{topic}"} for topic in ("bbb-t", "aaa-t")]
_TO_B = {"Protocol": "sqs", "Endpoint": f"{_ARN}bbb-q"}
_ATTRIBUTE = {"AttributeName": "RawMessageDelivery", "AttributeValue": "true"}
SNS_ACTIONS: dict[str, list[dict[str, Any]]] = {
    "CreateTopic": [{"Name": "bbb-t"}],
    "DeleteTopic": _OF_TOPIC[:1],
    "GetSubscriptionAttributes": [{}],
    "GetTopicAttributes": _OF_TOPIC,
    "ListSubscriptions": [{}],
    "ListSubscriptionsByTopic": _OF_TOPIC,
    "ListTagsForResource": [{"ResourceArn": f"{_TOPIC}bbb-t"}],
    "ListTopics": [{}],
    "Publish": [{**_OF_TOPIC[0], "Message": "x"}],
    "PublishBatch": [
        {
            **_OF_TOPIC[0],
            "PublishBatchRequestEntries.member.1.Id": "a",
            "PublishBatchRequestEntries.member.1.Message": "x",
        }
    ],
    "SetSubscriptionAttributes": [_ATTRIBUTE],
    "SetTopicAttributes": [{**_OF_TOPIC[0], "AttributeName": "DisplayName", "AttributeValue": "x"}],
    "Subscribe": [{**one, **_TO_B} for one in _OF_TOPIC],
    "TagResource": [
        {"ResourceArn": f"{_TOPIC}bbb-t", "Tags.member.1.Key": "a", "Tags.member.1.Value": "b"}
    ],
    "Unsubscribe": [{}],
    "UntagResource": [{"ResourceArn": f"{_TOPIC}bbb-t", "TagKeys.member.1": "a"}],
}
_OF_SUBSCRIPTION = ("GetSubscriptionAttributes", "SetSubscriptionAttributes", "Unsubscribe")
_OF_SQS = "01900000-0000-7000-8000-00000000000b"
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_AGE = re.compile(
    r'(?<="lag_seconds": )[0-9.e-]+|(?<="generation": )[0-9]+|(?<=Generation: )[0-9]+'
    r"|[0-9.]+ (?:ms|s|min|h|d)\b|[0-9]{13}|[0-9]{10}(?:\.[0-9]+)?|(?<=process )[0-9]+"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:]{8}Z| [0-9:]{8} UTC)|(?:under )?[0-9.]+ %(?=<)"
)
_POINTS = re.compile(
    r'data-point="[^"]*"|(?<="at": )[0-9]+|(?<="claim_ms": )[0-9]+|\[[0-9]{13}[^]]*\]'
    r'|<svg class="(?:bar|spark)".*?</svg>'
)
_RATE = re.compile(
    r"(<dt>(?:in/s|out/s|sent a second)</dt><dd>|<span>(?:in/s|out/s)</span> <strong>)[^<]*"
)
# Who claimed in the last ten seconds, and how many a second.
_CLAIMS = re.compile(
    r'<tr><th scope="row">[^<]*<span class="tag">claims</span>.*?</tr>|(?<=In/s">)[^<]*', re.DOTALL
)
_TASK = re.compile(r"eyJ0YXNr[A-Za-z0-9+/=]+|(?<=<ReceiptHandle>)[^<]+")
_NAME = re.compile(r"bbb-\w+")
_LENGTH = re.compile(r"(?m)^Content-Length: .*\n?")


class World(NamedTuple):
    """The random names of a spool: the moves with a queue of b, by purpose."""

    refs: dict[str, str]

    def alike(self, text: str) -> str:
        """A text without the parts that differ in each world."""
        for name, ref in self.refs.items():
            for is_dedup in (False, True):
                text = text.replace(references.encode(ref, is_dedup), f"EMO-{name}")
            text = text.replace(ref, f"REF-{name}")
        text = _CLAIMS.sub("", _POINTS.sub("POINT", _TASK.sub("TASK", text)))
        # Rates are not known before the second look.
        text = _RATE.sub(r"\1RATE", text.replace("\u2013", "0"))
        return _AGE.sub("AGE", _UUID.sub("ID", alike(text)))


def bury(spool: Spool, source: str, name: str) -> None:
    """Let a message of a queue become a dead letter of a."""
    queue = spool.queue(source, create=True)
    queue.configure(max_deliveries=9, dead_letter_queue="aaa-dead")
    queue.put(b"dead", id=name, attributes={"sqs.queue": source} if name == _OF_SQS else {})
    [claimed] = queue.claim(wait=20)
    claimed.bury("a reason of its own")


def _tick(spool: Spool, schedule: str, queue: str) -> None:
    """Define a schedule, and put its first message."""
    spool.schedule(schedule).define("* * * * * *", queue, "x")
    putter = Putter(spool.context, ScheduleFiles(spool.context))

    def has_put() -> bool:
        done = putter.put_due(schedule)
        return done is not None and done.put > 0

    eventually(has_put)
    spool.schedule(schedule).configure(paused=True, cron="@daily")


def make(spool: Spool) -> World:
    """Create what both tenants have, and their ties."""
    for tenant in ("aaa", "bbb"):
        queue = f"{tenant}-q"
        spool.create_queue(queue, index=True)
        _tick(spool, f"{tenant}-s", queue)
        spool.queue(queue).purge()  # whose ids would be other ones in each world
        spool.queue(queue).put(b"x", id="m1")
    for queue in ("aaa-src", "bbb-src", "aaa-dead", "bbb-dead", "aaa-alone"):
        spool.create_queue(queue)
    for side in (read_side("bbb-d"), write_side("bbb-d")):
        spool.create_queue(side)
    for source, dead in (("bbb-q", "bbb-dead"), ("bbb-dead", "aaa-alone")):
        spool.queue(source).configure(max_deliveries=9, dead_letter_queue=dead)
    for source, name in (("aaa-src", "letter-a"), ("bbb-src", "letter-b"), ("bbb-src", _OF_SQS)):
        bury(spool, source, name)
    spool.queue("bbb-q").configure(paused=True, visibility_timeout=0.5)
    for tenant in ("aaa", "bbb"):
        spool.create_topic(f"{tenant}-t")
        log = spool.log(f"{tenant}-l", create=True)
        log.publish(b"x")
        log.channel(f"{tenant}-c").create(from_="first")
    spool.log("aaa-l").channel("bbb-c").create(from_="first")
    for subscriber in ("aaa-q", "bbb-q", "logs/bbb-l", "logs/aaa-l"):
        for topic in ("aaa-t", "bbb-t"):
            spool.subscribe(topic, subscriber)
    moves = {
        "there": spool.begin_move("aaa-alone", "bbb-dead"),
        "here": spool.begin_move("bbb-dead", "aaa-alone"),
        "redrive": spool.begin_redrive("bbb-dead", to="bbb-q"),
        "dedup": spool.begin_move("bbb-d", "aaa-alone", dedup=True),
    }
    spool.make_moves()
    spool.deliver()
    return World({name: move.ref for name, move in moves.items()})


def forget(spool: Spool, world: World) -> None:
    """Delete everything of b."""
    for topic in ("aaa-t", "bbb-t"):
        for subscriber in ("bbb-q", "logs/bbb-l"):
            spool.unsubscribe(topic, subscriber)
    spool.delete_topic("bbb-t")
    for queue in [one for one in spool.queues() if "bbb" in one]:
        spool.delete_queue(queue)
    spool.log("bbb-l").delete()
    spool.log("aaa-l").channel("bbb-c").delete()
    spool.schedule("bbb-s").delete()
    for ref, suffix in product(world.refs.values(), (OPEN, DONE)):
        (spool.tree.root / "moves" / f"{ref}{suffix}").unlink(missing_ok=True)
    for queue in (read_side("aaa-alone"), write_side("aaa-alone")):
        spool.create_queue(queue)


def of_b(root: Path) -> dict[str, bytes]:
    """All files of b, except for reports."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "bbb" in str(path.relative_to(root)) and "journal" not in path.parts
    }


class Asked(NamedTuple):
    """A request, with its name in both worlds and its route."""

    name: str
    route: str
    head: str
    body: bytes = b""


def requests(served: Served, world: World, key: str) -> Iterator[Asked]:
    """Every operation, on objects of b and on objects of a that are tied to them."""
    for route in served.routes():
        if route.open:
            continue
        is_safe = route.method in ("GET", "HEAD")
        for names in (OF_B, TIED, *([OF_A] if is_safe else [])):
            yield from _of_route(route, names, world, key)
    yield from requests_of_actions(served, key)
    for name, ref in world.refs.items():
        for queue in ("bbb-dead", "aaa-alone"):
            said = json.dumps({"taskId": ref, "sourceArn": f"{_ARN}{queue}"})
            members = {"TaskHandle": base64.b64encode(said.encode()).decode()}
            for asked in _of_action(SQS, "CancelMessageMoveTask", key, [members]):
                kind = asked.name.partition(" ")[0]
                yield asked._replace(name=f"{kind} cancel {name} of {queue}")


def requests_of_actions(served: Served, key: str = "") -> Iterator[Asked]:
    """Every action of Amazon's but one, on objects of b."""
    for version, action in served.actions():
        if action != "CancelMessageMoveTask":
            yield from _of_action(version, action, key)


def _of_route(route: Route, names: dict[str, list[str]], world: World, key: str) -> Iterator[Asked]:
    called = f"{route.method.replace('HEAD', 'GET')} {route.pattern.removeprefix('/v1')}"
    fields = re.findall(r"\{(\w+)\}", route.pattern)
    if names is OF_A and called in CLAIMS:
        return
    if names is TIED and len({"queue", "topic", "log", "channel"} & {*fields}) < 2:
        return
    refs = {f"REF-{name}": ref for name, ref in world.refs.items()}
    emo = {
        f"EMO-{name}": references.encode(ref, route.pattern.startswith("/dedupq"))
        for name, ref in world.refs.items()
    }
    named = {**names, "ref": list(refs), "reference": list(emo)}
    queue = named["queue"] + (["bbb-d"] if route.pattern.startswith("/dedupq") else [])
    named["queue"] = queue
    for chosen in product(*(named[field] for field in fields)):
        if names is TIED and not any("bbb" in one for one in chosen):
            continue
        path = route.pattern
        for field, value in zip(fields, chosen, strict=True):
            path = path.replace(f"{{{field}}}", value)
        real = path
        for name, ref in {**refs, **emo}.items():
            real = real.replace(name, ref)
        for query, (head, body) in product(QUERIES.get(called, [""]), _contents(called, world)):
            target = "?".join(filter(None, (real, query)))
            name = f"{route.method} {path}?{query} {body.decode()}"
            yield Asked(
                world.alike(name),
                called,
                f"{route.method} {target} HTTP/1.1\r\n{head}{_who(route, key)}",
                body,
            )


def _who(route: Route, key: str) -> str:
    if route.dialect == "emodb":
        return f"X-BV-API-Key: {key}\r\n"
    origin = "Sec-Fetch-Site: same-origin\r\n" if route.dialect == "ui" else ""
    return f"{origin}Authorization: Bearer {key}\r\n"


def _contents(called: str, world: World) -> list[tuple[str, bytes]]:
    """Heads and bodies of requests of a route."""
    forms = FORMS.get(called, [])
    if called == "POST /_ui/work":
        forms = [{"do": "stop", "sure": "yes", "ref": ref} for ref in world.refs.values()]
    kind = "application/x-www-form-urlencoded" if forms else "application/json"
    bodies = [urlencode(form).encode() for form in forms] or [
        b"" if one is None else json.dumps(one).encode() for one in BODIES.get(called, [None])
    ]
    return [
        (f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n", body)
        if not called.startswith("GET")
        else ("", b"")
        for body in bodies
    ]


def _of_action(
    version: str, action: str, key: str, given: list[dict[str, Any]] | None = None
) -> Iterator[Asked]:
    signed = f"Authorization: AWS4-HMAC-SHA256 Credential={key}/20260101/x/sqs/aws4_request\r\n"
    if given is None:
        given = (SNS_ACTIONS if version == SNS else ACTIONS)[action]
    if action in _OF_SUBSCRIPTION:
        given = [{**given[0], "SubscriptionArn": arn} for arn in _SUBSCRIPTIONS]
    for members in given:
        if version == SQS and action != "GetCallerIdentity":
            body = json.dumps(members).encode()
            head = f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n"
            name = f"{action} {members}"
            yield Asked(name, action, f"POST / HTTP/1.1\r\n{head}{signed}", body)
        flat = {"Action": action, "Version": version, **dict(_flat(members))}
        body = urlencode(flat).encode()
        head = f"Content-Length: {len(body)}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        yield Asked(f"form {flat}", action, f"POST / HTTP/1.1\r\n{head}{signed}", body)


def _flat(members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        if name == "Attributes":
            for number, (key, one) in enumerate(value.items(), 1):
                yield f"Attribute.{number}.Name", key
                yield f"Attribute.{number}.Value", one
        elif not isinstance(value, list | dict):
            yield name, value
        elif name == "AttributeNames":
            yield "AttributeName.1", value[0]


def _subscription(topic: str, queue: str) -> str:
    from fsmq.http.sqs.names import SqsOptions
    from fsmq.http.sqs.sns.arns import subscription_arn

    return subscription_arn(SqsOptions(), topic, queue)


_SUBSCRIPTIONS = [_subscription(topic, "bbb-q") for topic in ("aaa-t", "bbb-t")]


def keys_of_a(file: Path) -> str:
    """A key with all rights on a's names."""
    names = ("aaa*", "topics/aaa*", "logs/aaa*", "logs/aaa*/aaa*")
    rights = ("send", "look", "receive", "admin")
    return add_key(file, "a", *(f"--{right}={name}" for right in rights for name in names))


async def ask_all(folder: Path, *, forgets: bool) -> dict[str, tuple[str, Answer]]:
    """The answers to all requests, by name; nothing of b may have changed."""
    folder.mkdir()
    root, file = folder / "root", folder / "keys.toml"
    key = keys_of_a(file)
    answers: dict[str, tuple[str, Answer]] = {}
    with Spool(root, sync="none", journal=True) as spool:
        world = make(spool)
        spool.context.journal.flush()
        if forgets:
            forget(spool, world)

        def going() -> list[Move]:
            return spool.moves()

        async with Served(spool, file) as served:
            before = of_b(root)
            for asked in requests(served, world, key):
                status, head, body = await served.ask(asked.head, asked.body)
                text = world.alike(body.decode())
                bare = _LENGTH.sub("", world.alike(head))
                answers[asked.name] = (asked.route, Answer(status, bare, text.encode()))
                assert of_b(root) == before, asked
            for source, name in (("aaa-src", "last-a"), ("bbb-src", "last-b")):
                await asyncio.to_thread(bury, spool, source, name)
            if forgets:
                spool.delete_queue("bbb-src")
            for asked in last_requests(key):
                status, _, body = await served.ask(asked.head, asked.body)
                text = world.alike(body.decode())
                answers[asked.name] = (asked.route, Answer(status, "", text.encode()))
                assert status < 400, asked
                await eventually_on_loop(lambda: all(m.status != "in_progress" for m in going()))
        assert {one.id for one in spool.queue("aaa-dead").peek()} == {
            "letter-b",
            f"{_OF_SQS}.h",
            "last-b",
        }
        assert {one.id for one in spool.queue("aaa-src").peek()} == {"letter-a", "last-a"}
        if not forgets:
            spool.deliver()
            assert spool.counts("bbb-src").total == 0
            assert {one.body for one in spool.queue("bbb-q").peek(99)} >= {b"published"}
    return answers


def last_requests(key: str) -> Iterator[Asked]:
    """Permitted requests that affect b, or would."""
    routes = [Route("native", "POST", "/_topics/aaa-t/messages", False)]
    routes += [Route("dynamiq", "PUT", "/topics/aaa-t/message", False)]
    for route in routes:
        yield from _of_last(route, key, b"published")
    form = {"do": "publish", "sure": "yes", "body": "published"}
    yield from _of_last(Route("ui", "POST", "/_ui/topics/aaa-t", False), key, form=form)
    yield from _of_action(SNS, "Publish", key, [{**_OF_TOPIC[1], "Message": "published"}])
    chosen = json.dumps({"ids": ["last-a", "last-b"]}).encode()
    redrive = Route("native", "POST", "/aaa-dead/redrive", False)
    for body in (chosen, b""):
        yield from _of_last(redrive, key, body)
    form = {"do": "redrive", "sure": "yes"}
    yield from _of_last(Route("ui", "POST", "/_ui/q/aaa-dead", False), key, form=form)
    yield from _of_action(SQS, "StartMessageMoveTask", key, [{"SourceArn": f"{_ARN}aaa-dead"}])
    yield from _of_last(Route("native", "GET", "/_moves", False), key)


def _of_last(
    route: Route, key: str, body: bytes = b"", form: dict[str, str] | None = None
) -> Iterator[Asked]:
    head = f"{route.method} {route.pattern} HTTP/1.1\r\n{_who(route, key)}"
    if form is not None:
        body = urlencode(form).encode()
        head += "Content-Type: application/x-www-form-urlencoded\r\n"
    head += f"Content-Length: {len(body)}\r\n" if route.method != "GET" else ""
    yield Asked(f"last {route} {body.decode()}", route.pattern, head, body)


async def test_answers_do_not_depend_on_another_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_pages, "PATIENCE_S", 60.0)  # however busy the machine is
    with_b = await ask_all(tmp_path / "with", forgets=False)
    without = await ask_all(tmp_path / "without", forgets=True)
    assert with_b.keys() == without.keys()
    assert len(with_b) > 550
    differ = []
    for name, (route, answer) in with_b.items():
        other = without[name][1]
        # Equal answers can still contain a name, as that of a deleted queue.
        assert {*_NAME.findall(answer.body.decode())} <= {*_NAME.findall(name)}, (name, answer)
        path = route.partition(" ")[2]
        if path in FIGURES:
            answer, other = (_without_figures(path, one) for one in (answer, other))
        if name.startswith("GET /_metrics"):
            assert b'schedule="aaa-s"' in answer.body
        if route == TAKEN and "/bbb-s?" in name:
            assert answer.status == 403
        elif answer != other:
            differ.append("\n".join([name, *_differences(answer, other)]))
    assert not differ, "\n\n".join([*differ[:20], f"{len(differ)} answers differ"])


def _without_figures(path: str, answer: Answer) -> Answer:
    return answer._replace(body=FIGURES[path].sub(r"\1N", answer.body.decode()).encode())


def _differences(one: Answer, other: Answer) -> Iterator[str]:
    texts = (f"{of.status}\n{of.head}\n\n{of.body.decode()}".splitlines() for of in (one, other))
    return unified_diff(*texts, "with b", "without", n=0, lineterm="")


async def test_a_hidden_queue_that_refuses_a_publish_is_not_named(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "keys.toml"
    key = keys_of_a(file)
    with Spool(root, sync="none") as spool:
        for queue in ("aaa-q", "bbb-q"):
            spool.create_queue(queue)
            spool.queue(queue).configure(max_depth=1)
            spool.queue(queue).put(b"x")
        for topic, queue in (("aaa-t", "bbb-q"), ("aaa-o", "aaa-q")):
            spool.create_topic(topic)
            spool.subscribe(topic, queue)
        async with Served(spool, file) as served:
            asked = 0
            for one in last_requests(key):
                if "publish" in one.name.lower():
                    status, head, body = await served.ask(one.head, one.body)
                    assert status == 503 or b"OverLimit" in body or b"Throttled" in body, one
                    assert b"bbb" not in body, one
                    head = one.head.replace("aaa-t/", "aaa-o/").replace("aaa-t ", "aaa-o ")
                    own = await served.ask(head, one.body.replace(b"aaa-t", b"aaa-o"))
                    assert b"aaa-q" in own.body, one
                    asked += 1
            assert asked == 4


async def test_a_taken_name_of_a_hidden_schedule_is_refused(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "keys.toml"
    key = keys_of_a(file)
    with Spool(root, sync="none") as spool:
        spool.create_queue("aaa-q")
        spool.schedule("taken").define("@daily", "bbb-q", "x")
        before = spool.schedule("taken").state()
        async with Served(spool, file) as served:
            form = {"do": "define", "name": "taken", "cron": "@hourly", "queue": "aaa-q"}
            body = json.dumps({"cron": "@hourly", "queue": "aaa-q"}).encode()
            asked = [
                *_of_last(Route("native", "PUT", "/_schedules/taken", False), key, body),
                *_of_last(Route("ui", "POST", "/_ui/schedules", False), key, form=form),
            ]
            for one in asked:
                answer = await served.ask(one.head, one.body)
                assert answer.status == 403, one
                assert b"schedules/taken" in answer.body
                assert b"bbb" not in answer.body
        assert spool.schedule("taken").state() == before
