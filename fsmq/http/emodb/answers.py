"""Answers to successful requests, in EmoDB's form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from aiohttp.web import Response

from fsmq.spool import Message
from fsmq.spool.prepare import LARGE_BYTES

from ..routing import bodies
from ..service.service import Service
from . import ids
from .payloads import is_json, payload

JSON = {"Content-Type": "application/json"}
SUCCESS = b'{"success":true}'


def in_json(body: bytes) -> Response:
    return Response(body=body, headers=JSON)


async def answered(service: Service, channel: str, messages: Sequence[Message]) -> Response:
    """The answer with messages of the spool's queue, of any size."""
    large = [message for message in messages if len(message.body) > LARGE_BYTES]
    kinds = {m.id: await service.in_thread(is_json, m.body) for m in large}
    return polled(channel, messages, kinds)


def polled(
    channel: str, messages: Sequence[Message], kinds: Mapping[str, bool] = MappingProxyType({})
) -> Response:
    """The same if none is large, or ``kinds`` says by id which of the large ones are JSON."""

    def encode(message: Message) -> Iterator[bytes]:
        yield b'{"id":"%s","payload":' % ids.encode(channel, message.id).encode()
        yield from payload(message.body, kinds.get(message.id))
        yield b"}"

    return bodies.in_json(messages, encode, (b"[", b",", b"]"))
