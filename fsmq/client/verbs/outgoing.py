"""Messages for the server: given an id, checked, and written as headers or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.messages.message import NewMessage, pack_header
from fsmq.spool.layout.uuids import uuid7
from fsmq.wire import MAX_BATCH_BYTES

# Larger or more attributes are sent as JSON, because they are too much for headers.
_HEADER_BYTES, _HEADERS = 4096, 50
# Several times the usual size of a part, and well below the server's limit.
_PART_BYTES = MAX_BATCH_BYTES // 2


def named(message: NewMessage) -> NewMessage:
    """The message with an id, checked as far as is needed to send it.

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
    # The server takes this one as none; without it some libraries send a default of their own.
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
    """The JSON of a message: its members that are not None, and its body."""
    # Value by value, because encoding a dict has a fixed cost as high as for a small message.
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
    # Decoding is three times as fast as encoding: a text without quotes and backslashes that can be
    # decoded within quotes needs no escapes.
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
    """The JSON of a list of items that are JSON already; each byte is copied once."""
    parts: list[bytes] = []
    for one in written:
        parts += (b"," if parts else b"[", one)
    return b"".join([*parts, b"]"])


def batches(messages: list[NewMessage]) -> Iterable[list[tuple[NewMessage, bytes]]]:
    """Messages with their JSON, in groups that are not too large for one batch."""
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
