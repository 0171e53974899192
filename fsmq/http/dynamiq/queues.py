"""Handlers for queues and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool import Message, NewMessage, QueueSettings
from fsmq.spool.checks import check_id, check_queue
from fsmq.spool.errors import InvalidValue, NoSuchQueue

from ...wire import quote_id
from ..describe import MAX_SETTINGS_BYTES
from ..dialect import Handlers
from ..routing import bodies
from ..routing.body_reader import object_in
from ..routing.call import Call
from ..routing.headers import kept_headers
from ..service.service import MAX_COUNT
from ..service.wanted import Wanted
from .answers import CONTENT_TYPE, Refused, answer, answer_list, no_such_queue, plain

_whole = re.compile(r"[+-]?[0-9]{1,18}")


class Queues(Handlers):
    """Queues and their messages, in Dynamiq's form."""

    # -- queues ----------------------------------------------------------------------------------

    async def list(self, call: Call) -> StreamResponse:
        names = await self._service.names(call, self._spool.queues, call.sender.visible)
        return answer_list('{"queues":[', names, "]}")

    async def show(self, call: Call) -> StreamResponse:
        queue = call.queue
        try:
            settings = self._spool.settings(queue)
        except NoSuchQueue:
            raise Refused(404, no_such_queue(queue), bare=True) from None
        ready = self._spool.context.ready
        return answer(
            200,
            {
                "VisibilityTimeout": _short(settings.visibility_timeout),
                "MinPartitions": settings.min_partitions,
                "MaxPartitions": settings.max_partitions,
                "MaxPartitionAge": _short(settings.max_partition_age),
                "CompressedMessages": settings.compression is not None,
                "partitions": ready.partitions(settings),
            },
        )

    async def create(self, call: Call) -> StreamResponse:
        queue = call.queue
        await call.discard_body(self._service.read_timeout)
        if not await self._service.resources.create_queue(queue):
            raise Refused(422, "Queue already exists.")
        return answer(201, "created")

    async def configure(self, call: Call) -> StreamResponse:
        queue = call.queue
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)

        def change(now: QueueSettings, _: object) -> dict[str, Any]:
            return _changes(body, now)

        await self._service.resources.configure_queue(queue, change)
        return answer(200, "ok")

    async def delete(self, call: Call) -> StreamResponse:
        queue = call.queue
        try:
            await self._service.resources.delete_queue(queue)
        except NoSuchQueue:
            raise Refused(404, "Queue did not exist.") from None
        return answer(200, {"Deleted": True})

    # -- messages --------------------------------------------------------------------------------

    async def put(self, call: Call) -> StreamResponse:
        queue = call.queue
        try:
            settings = self._spool.settings(queue)
            body = await call.body(self._service.body_limit(settings), self._service.read_timeout)
            message = new_message(body, kept_headers(call.request.headers))
            [message_id] = await self._service.queues.put(queue, [message])
        except NoSuchQueue:
            await call.discard_body(self._service.read_timeout)
            return plain("")
        return plain(quote_id(message_id))

    async def fetch(self, call: Call) -> StreamResponse:
        queue = call.queue
        asked = call.names["number"]
        if not self._spool.has_queue(queue):
            raise Refused(404, no_such_queue(queue), bare=True)  # whatever the number is
        count = count_of(asked)
        try:
            messages = await self._service.queues.claim(call, Wanted((queue,), count))
        except NoSuchQueue:
            raise Refused(404, no_such_queue(queue), bare=True) from None
        return fetched(messages)

    async def look(self, call: Call) -> StreamResponse:
        queue, message_id = call.queue, call.names["id"]
        message = None
        if can_be(queue, message_id):
            message = await self._service.receiver.find(call, queue, message_id)
        if message is None:
            self._spool.settings(queue)  # raises NoSuchQueue
            raise Refused(404, f"Message {message_id[:200]} not found.")
        return bodies.in_json([message], _encode, (b'{"messages":[', b"", b"]}"), CONTENT_TYPE)

    async def remove(self, call: Call) -> StreamResponse:
        queue, message_id = call.queue, call.names["id"]
        if not can_be(queue, message_id):
            return answer(200, False)
        [outcome] = await self._service.queues.ack(queue, [message_id])
        return answer(200, outcome == "removed")

    async def remove_many(self, call: Call) -> StreamResponse:
        queue = call.queue
        self._spool.settings(queue)
        ids = ids_of(queue, call.names["number"])
        outcomes = await self._service.queues.ack(queue, ids)
        return answer(200, {"deleted": outcomes.count("removed")})


def new_message(body: bytes, kept: tuple[str | None, dict[str, str]]) -> NewMessage:
    """The message of a PUT. kept: its content type and attributes."""
    content_type, attributes = kept
    return NewMessage(body, content_type=content_type, attributes=attributes)


def count_of(asked: str) -> int:
    """How many messages a path asks for. Raises Refused."""
    if not _whole.fullmatch(asked) or int(asked) < 1:
        raise Refused(422, f"{asked[:50]!r} is not a batch size: a whole number from 1", bare=True)
    return min(int(asked), MAX_COUNT)


def ids_of(queue: str, names: str) -> list[str]:
    """The valid ids in a path, each once."""
    return [one for one in dict.fromkeys(names.split(",")) if can_be(queue, one)]


def fetched(messages: Sequence[Message]) -> Response:
    """The answer with messages."""
    return bodies.in_json(messages, _encode, (b"[", b",", b"]"), CONTENT_TYPE)


def _encode(message: Message) -> Iterator[bytes]:
    yield b'{"id":"%s","body":"' % quote_id(message.id).encode()
    yield from bodies.text_pieces(message.body, errors="replace", ensure_ascii=False)
    yield b'"}'


def can_be(queue: str, message_id: str) -> bool:
    """Whether an id is valid; Dynamiq does not report errors of ids."""
    try:
        check_id(check_queue(queue), message_id)
    except InvalidValue:
        return False
    return True


def _changes(body: bytes, settings: QueueSettings) -> dict[str, Any]:
    """The spool's settings for a PATCH; members that Dynamiq does not know are ignored."""
    members = object_in(body, "the settings are")
    given = {name: value for name, value in members.items() if value is not None}
    same = ("visibility_timeout", "min_partitions", "max_partitions", "max_partition_age")
    changes = {name: given[name] for name in same if name in given}
    compressed = given.get("compressed_messages")
    if compressed is not None:
        if not isinstance(compressed, bool):
            raise InvalidValue("compressed_messages", "must be true or false")
        changes["compression"] = (settings.compression or "zlib") if compressed else None
    return changes


def _short(seconds: float) -> float:
    """Whole seconds as Dynamiq writes them, without a fraction."""
    return int(seconds) if seconds.is_integer() else seconds
