"""Answers with the bodies of messages, made piece by piece if they are large."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from aiohttp.web import Response

from fsmq.spool import Message
from fsmq.spool.prepare import FEW, LARGE_BYTES

from ...wire import as_json
from ..connection.pieces import PIECE_BYTES, Pieces

# A stored message can be a page with a script, which must not run as if it were one of our pages.
INERT: Mapping[str, str] = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    # Nor as a script that another page includes.
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_JSON = "application/json"


class HasBody(Protocol):
    """A message of a queue or of a log."""

    @property
    def body(self) -> bytes: ...


M = TypeVar("M", bound=HasBody)


def raw(message: HasBody, headers: Mapping[str, str]) -> Response:
    """A message as it was posted."""
    body = message.body
    if len(body) <= LARGE_BYTES:
        return Response(body=body, headers={**INERT, **headers})
    return Response(body=Pieces(split(body), len(body)), headers={**INERT, **headers})


def in_json(
    messages: Sequence[M],
    encode: Callable[[M], Iterator[bytes]],
    around: tuple[bytes, bytes, bytes],
    content_type: str = _JSON,
) -> Response:
    """Messages as ``encode`` writes each; around: the texts before, between and after them."""
    pieces = _encoded(messages, encode, around)
    headers = {**INERT, "Content-Type": content_type}
    if len(messages) <= FEW and sum(len(message.body) for message in messages) <= PIECE_BYTES:
        return Response(body=b"".join(pieces), headers=headers)
    return Response(body=Pieces(pieces), headers=headers)


def _encoded(
    messages: Sequence[M],
    encode: Callable[[M], Iterator[bytes]],
    around: tuple[bytes, bytes, bytes],
) -> Iterator[bytes]:
    before, between, behind = around
    for message in messages:
        yield before
        yield from encode(message)
        before = between
    if not messages:
        yield before
    yield behind


def encode(message: Message, *, with_queue: bool = False) -> Iterator[bytes]:
    """A message as the native dialect writes it: :func:`fsmq.wire.as_json`."""
    if len(message.body) <= PIECE_BYTES:
        yield json.dumps(as_json(message, with_queue=with_queue)).encode()
        return
    empty = json.dumps(as_json(replace(message, body=b""), with_queue=with_queue))
    before, _, behind = empty.partition('"body": "')
    is_text = yield from find_out_if_text(message.body)
    name = "body" if is_text else "body_base64"
    yield f'{before}"{name}": "'.encode()
    yield from text_pieces(message.body) if is_text else base64_pieces(message.body)
    yield behind.encode()


def encode_facts(facts: Mapping[str, Any], body: bytes) -> Iterator[bytes]:
    """A JSON object with these facts and, as its last member, a body."""
    text = json.dumps(facts).encode()[:-1]
    is_text = yield from find_out_if_text(body)
    yield text + (b', "body": "' if is_text else b', "body_base64": "')
    yield from text_pieces(body) if is_text else base64_pieces(body)
    yield b'"}'


def find_out_if_text(body: bytes) -> Generator[bytes, None, bool]:
    """Whether a body is UTF-8; yields empty pieces, so that others have their turn."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for part in split(body):
            decoder.decode(part)
            yield b""
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def text_pieces(
    body: bytes, *, errors: str = "strict", ensure_ascii: bool = True
) -> Iterator[bytes]:
    """A text as the content of a JSON string."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    for part in split(body):
        yield json.dumps(decoder.decode(part), ensure_ascii=ensure_ascii).encode()[1:-1]
    yield json.dumps(decoder.decode(b"", final=True), ensure_ascii=ensure_ascii).encode()[1:-1]


def base64_pieces(body: bytes) -> Iterator[bytes]:
    """Bytes in base64."""
    return map(base64.b64encode, split(body))


def split(body: bytes) -> Iterator[bytes]:
    """A body's bytes, piece by piece."""
    return (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))
