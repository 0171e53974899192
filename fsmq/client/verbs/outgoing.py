"""Messages on their way to the server: with an id, checked, and written as headers or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.messages.message import NewMessage, pack_header
from fsmq.spool.layout.uuids import uuid7
from fsmq.wire import MAX_BATCH_BYTES

# Attributes that are more than this are too much for headers; JSON has no such limits.
_HEADER_BYTES, _HEADERS = 4096, 50
# Several times what a part usually has; the server's limit lies far behind.
_PART_BYTES = MAX_BATCH_BYTES // 2


def named(message: NewMessage) -> NewMessage:
    """The message with an id, checked as far as it has to be in order to be sent.

    Raises:
        InvalidValue
    """
    if not isinstance(message.body, bytes):
        raise InvalidValue("body", f"must be bytes, not {type(message.body).__name__}")
    pack_header(message.content_type, message.attributes)
    return NewMessage(
        message.body,
        message.delay,
        message.priority,
        message.ttl,
        # A fifo queue makes the ids of all its messages.
        message.id if message.id is not None or message.group is not None else uuid7(),
        message.content_type,
        message.attributes,
        message.group,
        message.dedup_id,
    )


def fits_headers(message: NewMessage) -> bool:
    block = pack_header(message.content_type, message.attributes)
    few = len(message.attributes) <= _HEADERS and len(block) <= _HEADER_BYTES
    # Libraries differ in how they write anything else into a header.
    return few and block.isascii()


def parameters_of(message: NewMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "delay": message.delay,
        "priority": message.priority or None,
        "ttl": message.ttl,
        "group": message.group,
        "dedup_id": message.dedup_id,
    }


def headers_of(message: NewMessage) -> dict[str, str]:
    headers = {f"X-Message-Attribute-{n}": value for n, value in message.attributes.items()}
    # The one that counts as none; some libraries would send one of their own otherwise.
    headers["Content-Type"] = message.content_type or "application/octet-stream"
    return headers


def as_json(message: NewMessage) -> bytes:
    members = {
        **parameters_of(message),
        "content_type": message.content_type,
        "attributes": dict(message.attributes) or None,
    }
    return described(members, message.body).encode()


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
_decode = json.JSONDecoder().decode


def described(members: Mapping[str, Any], body: bytes | str) -> str:
    """The JSON of a message: those of its members that are not None, and its body."""
    # Each for itself: the encoder writes a text at once, and for an object it is made ready anew,
    # which costs as much as the body of a small message.
    members_as_json = [
        f'"{name}": {_encode(value)}' for name, value in members.items() if value is not None
    ]
    members_as_json.append(_body_as_json(body))
    return f"{{{', '.join(members_as_json)}}}"


def _body_as_json(body: bytes | str) -> str:
    try:
        text = body.decode() if isinstance(body, bytes) else body
    except UnicodeDecodeError as error:
        return f'"body_base64": "{base64.b64encode(error.object).decode()}"'
    return f'"body": {_quoted(text)}'


def _quoted(text: str) -> str:
    """The text as JSON."""
    # To read a text is three times as quick as to write it: one that can be read with quotes around
    # it, and has neither of the two signs that mean something there, has nothing to be escaped.
    if '"' not in text and "\\" not in text:
        quoted = f'"{text}"'
        try:
            _decode(quoted)
        except ValueError:
            pass  # it has a control character
        else:
            return quoted
    return _encode(text)


def in_list(written: Iterable[bytes]) -> bytes:
    """The JSON of a list of what is written already; each byte of it is copied once."""
    parts: list[bytes] = []
    for one in written:
        parts += (b"," if parts else b"[", one)
    return b"".join([*parts, b"]"])


def batches(messages: list[NewMessage]) -> Iterable[list[tuple[NewMessage, bytes]]]:
    """Messages with their JSON, in groups of no more bytes than a batch may have."""
    batch: list[tuple[NewMessage, bytes]] = []
    size = 0
    for message in messages:
        written = as_json(message)
        if batch and size + len(written) > _PART_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((message, written))
        size += len(written) + 1
    if batch:
        yield batch
