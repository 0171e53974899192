"""Queues in the native dialect, at ``/{queue}``; docs/http.md is the specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.kinds import Choice, Flag, Number, Text, Until, Whole
from fsmq.spool import Counts, QueueSettings
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import NoSuchQueue, Unavailable
from fsmq.spool.on_disk import split_shard
from fsmq.spool.resources import REQUIRED, MessageBody, Setting, Texts, settings

from ..answers import json_answer, made
from ..connection.pieces import listed
from ..describe import (
    EXISTS,
    GONE,
    JSON,
    LOCATION,
    MAX_SETTINGS_BYTES,
    QUEUE,
    QUEUE_NAME,
    SAME,
    TRUE,
    Answer,
    Body,
    Component,
    Operation,
    Schema,
    array,
    integer,
    json_object,
    number,
    or_null,
    query,
    record,
    text,
)
from ..dialect import Handlers
from ..guard.access import Identity
from ..problem_answers import OF_BODIES, guarded, keyed
from ..problems import PreconditionFailed, SlowBody, UnreadableBody
from ..routing import needs
from ..routing.body_reader import object_in
from ..routing.call import Call
from ..routing.router import Router
from .forms import STATE
from .preconditions import ETAG, IF_MATCH, if_match, with_etag


def settings_schema(settings: Mapping[str, Setting]) -> dict[str, Schema]:
    """The schemas of settings."""
    return {name: _setting_schema(setting) for name, setting in settings.items()}


def _setting_schema(setting: Setting) -> Schema:
    default = setting.default
    match setting.kind:
        case Whole() as kind:
            schema = integer(kind.low, kind.high)
        case Number() as kind:
            schema = number(kind.low, kind.high)
        case Flag():
            schema = {"type": "boolean"}
        case Choice() as kind:
            schema = text(enum=[*kind.words, None] if setting.null else list(kind.words))
        case Until():
            return {
                "anyOf": [{"type": ["boolean", "null"]}, text(format="date-time")],
                "description": setting.means,
            }
        case Text() as kind:
            schema = text(kind.pattern)
        case Texts():
            schema = {"type": "object", "additionalProperties": text()}
        case MessageBody():
            schema, default = text(), default.decode()
        case _:
            schema = QUEUE_NAME
    schema = {**schema, "description": setting.means}
    if setting.null:
        return or_null(schema)
    return schema if default is REQUIRED else {**schema, "default": default}


QUEUE_SETTINGS = settings_schema(settings.SETTINGS)
SETTINGS = Component("QueueSettings", record(QUEUE_SETTINGS))
COUNTS = Component(
    "Counts",
    record(
        {
            **{state: integer(0) for state in STATE["enum"]},
            "unfinished": integer(0, description="ready and in flight"),
        },
        description="by state",
    ),
)
SHARDS = query("shards", "show the shards `<queue>@<shard>` of this queue", TRUE)
INDEX = query("index", "it gets an index of the ids that producers give", TRUE)
ADMIN_OF_DEAD = "`admin` on a `dead_letter_queue` that it names, too"
FIFO = query("fifo", "the messages of each group are claimed in their order", TRUE)
_CREATED = {JSON: record({"queue": QUEUE_NAME, "created": {"type": "boolean"}})}


class Queues(Handlers):
    """Whole queues: listed, shown, created, configured, deleted, purged."""

    def add_routes(self, router: Router) -> None:
        named = needs.queue("admin").then(ADMIN_OF_DEAD)
        for method in ("GET", "HEAD"):
            router.add(method, "/", self.list_queues, self.LIST, needs.anybody)
            router.add(method, "/{queue}", self.show, self.SHOW, _SIGHT)
        router.add("PUT", "/{queue}", self.create, self.CREATE, needs.queue("admin"))
        router.add("PATCH", "/{queue}", self.configure, self.CONFIGURE, named)
        router.add("DELETE", "/{queue}", self.delete, self.DELETE, needs.queue("admin"))
        router.add("DELETE", "/{queue}/messages", self.purge, self.PURGE, needs.queue("receive"))

    LIST = Operation(
        id="list_queues",
        tag="Queues",
        summary="The names of all queues, sorted",
        answers={
            200: json_object("The names", {"queues": array(QUEUE_NAME)}),
            **keyed(Unavailable),
        },
    )

    async def list_queues(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        names = await self._service.names(call, self._spool.queues, identity.visible)
        return listed('{"queues": [', names, "]}\n")

    SHOW = Operation(
        id="show_queue",
        tag="Queues",
        summary="A queue's counts and settings, or those of its shards",
        parameters=(QUEUE, SHARDS),
        answers={
            200: Answer(
                "Counts, which may be 0.2 seconds old, and settings; with `shards` the counts of"
                " all shards together and of each, instead of settings",
                {
                    JSON: record(
                        {
                            "queue": QUEUE_NAME,
                            "messages": COUNTS,
                            "settings": SETTINGS,
                            "shards": {"type": "object", "additionalProperties": COUNTS},
                        },
                        required=["queue", "messages"],
                    )
                },
                ETAG,
            ),
            **guarded(NoSuchQueue, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        if call.read()[SHARDS] is not None:
            return await self._show_shards(call)
        queue = call.queue
        settings = self._spool.settings(queue)
        counts = await self._service.sizes.counts(queue)
        shown = settings.as_dict()
        answer = json_answer(200, {"queue": queue, "messages": counts.as_dict(), "settings": shown})
        return with_etag(answer, shown)

    async def _show_shards(self, call: Call) -> StreamResponse:
        identity, queue = call.sender, call.queue
        names = await self._service.in_thread(self._spool.queues)
        shards = {
            name: shard
            for name in names
            if (found := split_shard(name)) and found[0] == queue and identity.may_see(name)
            for shard in found[1:]
        }
        if not shards:
            raise NoSuchQueue(queue)
        counts = {shard: await self._service.sizes.counts(name) for name, shard in shards.items()}
        total = Counts(*(sum(numbers) for numbers in zip(*counts.values(), strict=True)))
        shown = {shard: found.as_dict() for shard, found in counts.items()}
        return json_answer(200, {"queue": queue, "messages": total.as_dict(), "shards": shown})

    CREATE = Operation(
        id="create_queue",
        tag="Queues",
        summary="Create a queue",
        description="A body is ignored.",
        parameters=(QUEUE, INDEX, FIFO),
        again=EXISTS,
        answers={
            200: Answer("It existed already", _CREATED),
            201: Answer("It was created, durably", _CREATED, LOCATION),
            **guarded(UnreadableBody, SlowBody, Unavailable),
        },
    )

    async def create(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        await call.discard_body(self._service.read_timeout)
        members = {kind.name: True for kind in (INDEX, FIFO) if given[kind] is not None}
        created = await self._service.resources.create_queue(queue, members)
        return made(created, {"queue": queue, "created": created}, queue)

    CONFIGURE = Operation(
        id="configure_queue",
        tag="Queues",
        summary="Change settings of a queue",
        description="All changes are made, or none. `null` restores a default."
        " Set both of `max_deliveries` and `dead_letter_queue`, or neither.",
        parameters=(QUEUE, IF_MATCH),
        body=Body(
            f"the settings to be changed, at most {MAX_SETTINGS_BYTES} bytes",
            {
                JSON: Component(
                    "QueueSettingsChange",
                    record(QUEUE_SETTINGS, required=[], additionalProperties=False),
                )
            },
            required=True,
        ),
        again=SAME,
        answers={
            200: Answer(
                "All settings", {JSON: record({"queue": QUEUE_NAME, "settings": SETTINGS})}, ETAG
            ),
            **guarded(NoSuchQueue, PreconditionFailed, *OF_BODIES, Unavailable),
        },
    )

    async def configure(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        changes = changes_in(body)
        require_dead_letters(call, changes)
        change = if_match(call, changes, QueueSettings.as_dict)
        changed = await self._service.resources.configure_queue(queue, change)
        settings = changed.as_dict()
        return with_etag(json_answer(200, {"queue": queue, "settings": settings}), settings)

    DELETE = Operation(
        id="delete_queue",
        tag="Queues",
        summary="Delete a queue, its settings and all its messages",
        parameters=(QUEUE,),
        again=GONE,
        answers={
            200: json_object("It was deleted", {"queue": QUEUE_NAME, "deleted": {"const": True}}),
            **guarded(NoSuchQueue, Unavailable),
        },
    )

    async def delete(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        await self._service.resources.delete_queue(queue)
        return json_answer(200, {"queue": queue, "deleted": True})

    PURGE = Operation(
        id="purge",
        tag="Queues",
        summary="Remove all messages of a queue",
        parameters=(QUEUE,),
        again=SAME,
        answers={
            200: json_object("They were removed", {"queue": QUEUE_NAME, "purged": {"const": True}}),
            **guarded(NoSuchQueue, Unavailable),
        },
    )

    async def purge(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        await self._service.resources.purge(queue)
        return json_answer(200, {"queue": queue, "purged": True})


def _sight(call: Call, identity: Identity) -> None:
    if call.read()[SHARDS] is None:
        identity.require_sight(call.queue)
    else:
        identity.require_any()


# The shards of a queue are shown to identities that may see them, not the queue.
_SIGHT = needs.Need(_sight, needs.queue().rights)


def changes_in(body: bytes) -> dict[str, Any]:
    """The settings in a body. Raises UnreadableBody."""
    return object_in(body, "the settings are")


def require_dead_letters(call: Call, changes: Mapping[str, object]) -> None:
    """Check that the sender is an admin of the dead-letter queue that it names, if any."""
    # Otherwise an admin of one queue could put messages into any other.
    target = changes.get("dead_letter_queue")
    if isinstance(target, str):
        call.sender.require("admin", check_queue(target, "dead_letter_queue"))
