"""The routes of the native dialect, and the methods and commands that do the same.

Tables of the docs are generated from routes (`doc_tables.py`), and tests compare the methods of the
library and the clients, and the options of the command, with them. A new route needs a row in
`METHODS` and one in `COMMANDS`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from threading import Thread
from typing import Any, NamedTuple

from fsmq.http.describe import JSON, Component, Operation
from fsmq.http.native.dialect import NativeDialect
from fsmq.http.routing.router import Route
from fsmq.http.service.service import Service
from fsmq.spool import Spool


@cache
def native_routes() -> Sequence[Route]:
    """Every route; each ``GET`` has a second one for ``HEAD``."""
    found: list[Route] = []

    async def look() -> None:
        with tempfile.TemporaryDirectory() as folder, Spool(f"{folder}/mq", sync="none") as spool:
            found.extend(NativeDialect(Service(spool)).router.routes())

    # In a thread, because a test may run on an event loop.
    thread = Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    return found


@cache
def routes_by_id() -> Mapping[str, Route]:
    """The routes by the ids of their operations."""
    return {route.operation.id: route for route in native_routes() if route.method != "HEAD"}


def json_body(operation: Operation) -> Mapping[str, Any]:
    """The schema of the JSON body of a request; empty without a body."""
    schema = {} if operation.body is None else operation.body.content.get(JSON, {})
    return schema.schema if isinstance(schema, Component) else schema


def ranges_of(schema: Any) -> Iterator[tuple[float, float]]:
    """All ranges in a schema: of numbers, lengths and sizes."""
    if isinstance(schema, Component):
        schema = schema.schema
    if isinstance(schema, Mapping):
        for low, high in _RANGES:
            if high in schema:
                yield schema.get(low, 0), schema[high]
        schema = list(schema.values())
    if isinstance(schema, list | tuple):
        for one in schema:
            yield from ranges_of(one)


_RANGES = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


class Method(NamedTuple):
    """A method of the library and the clients.

    name: with its class. takes: the parameters of the query and head that it has, with their names
    in the method; None: all. more: other parameters. never: errors that it does not raise.
    """

    name: str
    takes: Mapping[str, str] | None = None
    more: str = ""
    never: str = ""


_CLAIM = {"X-Message-Claim": "claim"}
_GONE, _TAKEN = "NoSuchMessage", "DuplicateMessage"
METHODS: Mapping[str, Sequence[Method]] = {
    "list_queues": [Method("Spool.queues")],
    "show_queue": [Method("Queue.counts", {}), Method("Queue.settings", {})],
    "create_queue": [
        Method("Spool.create_queue", more="name"),
        Method("Queue.create", {}),
    ],
    "configure_queue": [Method("Queue.configure", {}, "changes")],
    "delete_queue": [Method("Spool.delete_queue", more="name"), Method("Queue.delete")],
    "purge": [Method("Queue.purge", more="progress")],
    "post": [
        Method(
            "Queue.put",
            dict.fromkeys(("delay", "priority", "ttl", "id", "group", "dedup_id"), ""),
            "body content_type attributes",
        ),
        Method(
            "Queue.put_json",
            dict.fromkeys(("delay", "priority", "ttl", "id", "group", "dedup_id"), ""),
            "value attributes",
        ),
    ],
    "batch": [Method("Queue.put_many", more="messages")],
    "claim": [
        Method("Queue.claim"),
        Method("Queue.claim_one", {"visibility": "", "wait": ""}),
    ],
    "claim_several": [
        Method("Selection.claim", {"visibility": "", "wait": "", "count": ""}),
        Method("Selection.claim_one", {"visibility": "", "wait": ""}),
    ],
    "change": [
        Method("Queue.renew", {"visibility": "", **_CLAIM}, "message", _TAKEN),
        Method("Queue.release", {"release": "delay", "reason": "", **_CLAIM}, "message", _TAKEN),
        Method("Queue.bury", {"reason": "", **_CLAIM}, "message", _TAKEN),
        Method("Queue.set_priority", {"priority": ""}, "message", "ClaimEnded"),
    ],
    "remove": [Method("Queue.ack", _CLAIM, "messages", never=_GONE)],
    "ack": [
        Method("Queue.ack_each", more="messages claims"),
        Method("Queue.remove", more="messages"),
        Method("Queue.remove_each", more="messages"),
    ],
    "peek": [
        Method("Queue.peek", {"state": "", "count": "", "after": ""}),
        Method(
            "Queue.search",
            {
                **dict.fromkeys(("state", "count", "after", "contains", "older_than"), ""),
                "budget": "",
                "attribute.NAME": "attributes",
            },
        ),
    ],
    "show_message": [Method("Queue.find", {}, "message_id", never=_GONE)],
    "find": [Method("Spool.find", more="message_id")],
    "life": [Method("Queue.life", more="message_id")],
    "history": [Method("Spool.history", {"queue": "", "from": "since", "step": ""})],
    "cluster": [Method("Spool.cluster", {})],
    "move": [
        Method("Queue.move_to", {"to": "target", "in_flight": "", "rate": ""}, more="only progress")
    ],
    "redrive": [
        Method("Queue.redrive", more="only progress"),
        Method("Spool.begin_redrive", more="dead only"),
    ],
    "list_moves": [Method("Spool.moves")],
    "show_move": [Method("Spool.find_move", more="ref")],
    "stop_move": [Method("Spool.stop_move", more="ref")],
    "list_topics": [Method("Spool.topics")],
    "show_topic": [Method("Topic.subscriptions")],
    "create_topic": [Method("Spool.create_topic", more="name"), Method("Topic.create")],
    "delete_topic": [Method("Spool.delete_topic", more="name"), Method("Topic.delete")],
    "subscribe": [Method("Topic.subscribe", more="queue filter")],
    "subscribe_log": [Method("Topic.subscribe", more="queue filter")],
    "unsubscribe": [Method("Topic.unsubscribe", more="queue", never="NoSuchSubscription")],
    "unsubscribe_log": [Method("Topic.unsubscribe", more="queue", never="NoSuchSubscription")],
    "publish": [Method("Topic.publish", more="body content_type attributes")],
    "list_logs": [Method("Spool.logs")],
    "show_log": [Method("Log.stats")],
    "create_log": [Method("Log.create", more="settings")],
    "configure_log": [Method("Log.configure", {}, "changes")],
    "delete_log": [Method("Log.delete")],
    "publish_to_log": [
        Method("Log.publish", {"id": "", "X-Message-Key": "key"}, "body content_type attributes")
    ],
    "publish_many_to_log": [Method("Log.publish_many", more="messages")],
    "read_log": [Method("Log.page", {"from": "from_", "count": ""}, "max_bytes")],
    "show_channel": [Method("Channel.state")],
    "create_channel": [Method("Channel.create", {"from": "from_"}, "settings")],
    "configure_channel": [Method("Channel.configure", {}, "changes")],
    "delete_channel": [Method("Channel.delete")],
    "seek": [Method("Channel.seek")],
    "claim_from_channel": [
        Method("Channel.claim"),
        Method("Channel.claim_one", {"visibility": "", "wait": ""}),
    ],
    "done": [
        Method("Channel.ack", more="messages claim"),
        Method("Channel.done", more="messages", never="NotInFlight ClaimVoid"),
        Method("Channel.ack_each", more="messages claims", never="NotInFlight ClaimVoid"),
        Method("Channel.done_ranges", more="ranges generation"),
        Method("Channel.done_through", more="last"),
    ],
    "change_of_channel": [
        Method("Channel.renew", {"visibility": ""}, "messages claim"),
        Method("Channel.release", {"release": "delay", "reason": ""}, "messages claim"),
        Method("Channel.bury", {"reason": ""}, "messages claim"),
    ],
    "done_one": [Method("Channel.ack", {}, "messages claim")],
    "list_schedules": [Method("Spool.schedules")],
    "show_schedule": [Method("Schedule.state")],
    "define_schedule": [
        Method(
            "Schedule.define",
            more="cron queue body timezone catch_up paused delay priority ttl content_type"
            " attributes",
        )
    ],
    "configure_schedule": [Method("Schedule.configure", {}, "changes")],
    "delete_schedule": [Method("Schedule.delete")],
    "next_of_schedule": [Method("Schedule.next")],
    "run_schedule": [Method("Schedule.put_now")],
    "put_by_id": [
        Method("Indexed.upsert", {}, "messages"),
        Method("Indexed.ensure", {"among": ""}, "message"),
    ],
    "act_by_id": [
        Method("Indexed.find", more="given_id"),
        Method("Indexed.claim", more="given_id visibility"),
        Method("Indexed.ack", more="given_ids names"),
        Method("Indexed.remove", more="given_ids"),
        Method("Indexed.renew", more="given_id visibility"),
        Method("Indexed.postpone", more="given_id delay attributes"),
    ],
    "zones": [],
    "beat_zone": [],
}
# Defaults of methods that differ from those of the route, and why.
OTHER_DEFAULTS = {
    "Queue.claim": {"count": "a list of one is no other form"},
    "Selection.claim": {"count": "a list of one is no other form"},
    "Channel.claim": {"count": "a list of one is no other form"},
    "Log.page": {"count": "a list of one is no other form", "from_": "`Log.read` begins there"},
}
# Parameters that no method takes, and why.
OVER_HTTP_ONLY = {
    "show_queue": {"shards": "dyno-queues adds up itself"},
    "post": {"Idempotency-Key": "as `id`"},
    "claim_several": {"queues": "a selection has them"},
    "change": {"bury": "is what the method is for"},
    "show_message": {"json": "the client asks for it"},
    "cluster": {"health": "as `fsmq doctor`"},
    "move": {"delayed": "of the SQS dialect", "count": "of the SQS dialect"},
    "read_log": {"wait": "`Log.wait`, and `follow` of a read"},
    "change_of_channel": {
        "bury": "is what the method is for",
        "generation": "the message knows it",
        "deliveries": "the message knows them",
    },
    "done_one": {"generation": "the message knows it"},
    "put_by_id": {"ensure": "is what the method is for"},
    **{
        f"configure_{what}": {"If-Match": "of those who edit settings by hand"}
        for what in ("queue", "log", "channel", "schedule")
    },
}


class Command(NamedTuple):
    """A command that does what a route does.

    takes: the parameters of the query and head that it has, with their options or arguments; None:
    all. others: parameters whose defaults are not those of the route.
    """

    name: str
    takes: Mapping[str, str] | None = None
    others: str = ""


_CLAIM_OPTION = {"X-Message-Claim": "--claim"}
_OF_PUT = dict.fromkeys(("delay", "priority", "ttl", "group", "dedup_id"), "")
COMMANDS: Mapping[str, Sequence[Command]] = {
    "list_queues": [Command("queue list")],
    "show_queue": [Command("queue show")],
    "create_queue": [Command("queue create", {})],  # the settings index=true, fifo=true
    "configure_queue": [
        Command("queue config", {}),
        Command("queue pause", {}),
        Command("queue resume", {}),
    ],
    "delete_queue": [Command("queue delete")],
    "purge": [Command("queue purge")],
    "post": [Command("put", {**_OF_PUT, "id": ""})],
    "batch": [Command("put")],
    "claim": [Command("get", others="count")],
    "claim_several": [
        Command(
            "get", {"queues": "queue", "visibility": "", "wait": "", "count": ""}, others="count"
        )
    ],
    "change": [
        Command("renew", {"visibility": "", **_CLAIM_OPTION}),
        Command("release", {"release": "--delay", "reason": "", **_CLAIM_OPTION}, others="release"),
        Command("bury", {"reason": "", **_CLAIM_OPTION}),
        Command("priority", {"priority": "priority"}),
    ],
    "remove": [Command("ack", _CLAIM_OPTION)],
    "ack": [Command("ack"), Command("remove")],
    "peek": [
        # It requests page after page.
        Command(
            "peek",
            {
                **dict.fromkeys(("state", "count", "after", "contains", "older_than"), ""),
                "budget": "",
                "attribute.NAME": "--attribute",
            },
            others="budget",
        )
    ],
    "show_message": [Command("peek", {})],
    "find": [Command("find")],
    "life": [Command("life", {})],  # it reads to the end
    "history": [Command("queue history", {"queue": "queue", "step": ""}, others="step")],
    "cluster": [Command("cluster", {})],
    "move": [Command("mv", {"to": "target", "in_flight": "", "rate": ""})],
    "redrive": [Command("redrive")],
    "list_moves": [Command("move list")],
    "show_move": [Command("move list", {})],
    "stop_move": [Command("move stop", {})],
    "list_topics": [Command("topic list")],
    "show_topic": [Command("topic show")],
    "create_topic": [Command("topic create")],
    "delete_topic": [Command("topic delete")],
    "subscribe": [Command("topic subscribe")],
    "unsubscribe": [Command("topic unsubscribe")],
    "subscribe_log": [Command("topic subscribe")],
    "unsubscribe_log": [Command("topic unsubscribe")],
    "publish": [Command("topic publish", _OF_PUT, others="delay")],  # of several queues
    "list_logs": [Command("log list")],
    "show_log": [Command("log show")],
    "create_log": [Command("log create")],
    "configure_log": [Command("log config", {})],
    "delete_log": [Command("log delete")],
    "publish_to_log": [Command("log publish", {"id": "", "X-Message-Key": "--key"})],
    "publish_many_to_log": [Command("log publish")],
    "read_log": [Command("log read", {"from": "", "count": ""}, others="count")],
    "show_channel": [Command("channel show")],
    "create_channel": [Command("channel create", {"from": ""})],
    "configure_channel": [
        Command("channel config", {}),
        Command("channel pause", {}),
        Command("channel resume", {}),
    ],
    "delete_channel": [Command("channel delete")],
    "seek": [Command("channel seek", {"to": "place"})],
    "claim_from_channel": [Command("get", others="count")],
    "done": [Command("ack")],
    "change_of_channel": [
        Command("renew", {"visibility": ""}),
        Command("release", {"release": "--delay", "reason": ""}, others="release"),
        Command("bury", {"reason": ""}),
    ],
    "done_one": [Command("ack", {})],
    "list_schedules": [Command("schedule list")],
    "show_schedule": [Command("schedule show")],
    "define_schedule": [Command("schedule create")],
    "configure_schedule": [Command("schedule pause", {}), Command("schedule resume", {})],
    "delete_schedule": [Command("schedule delete")],
    "next_of_schedule": [Command("schedule next")],
    "run_schedule": [Command("schedule run")],
    # For dyno-queues only.
    "put_by_id": [],
    "act_by_id": [],
    "zones": [],
    "beat_zone": [],
}
