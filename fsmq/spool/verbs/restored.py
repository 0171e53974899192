"""Restored messages: put again under a name that one of them had before, exactly or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from ..context import Context
from ..errors import InvalidValue, MessageTooLarge
from ..layout.compression import compress
from ..layout.message import CONTENT_TYPE, NewMessage, unpack
from ..layout.names import check_id, facts, seal_of
from ..layout.settings import MAX_DELAY_S, QueueSettings, check_seconds
from .draft import Draft


def restored(context: Context, queue: str, message: NewMessage, settings: QueueSettings) -> Draft:
    """A draft of a message whose ``id`` is the whole name of its file.

    Priority, expiry, and whether there is a header block or the body is compressed: the name says
    so, and the message is not asked. Nor does the spool's own limit of a body hold, as it does not
    for files that are moved in; the queue's does.

    Raises:
        InvalidValue: no message can have that name, or not with such a content.
        MessageTooLarge
    """
    name = message.id
    if name is None:
        raise InvalidValue("id", "is null")
    check_id(queue, name)
    delay = check_seconds("delay", message.delay or 0.0, MAX_DELAY_S)
    limit = settings.max_message_bytes
    if limit is not None and len(message.body) > limit:
        raise MessageTooLarge(len(message.body), limit)
    known = facts(name)
    header = _header(message.content_type, message.attributes)
    wanted = message.body, message.content_type, dict(message.attributes)
    # Not every name with the flag of compression has a compressed body.
    bodies = [message.body]
    if known.packed:
        bodies.append(compress(message.body, settings.compression or "zlib"))
    for body in bodies:
        if unpack(header + body, known, context.max_plain_bytes) == wanted:
            seal = seal_of(body, seal_of(header))
            return Draft(name, header, body, round(delay * 1000) or None, True, seal)
    raise InvalidValue(
        "id", f"{name[:200]!r} is no name for a message with this content type and attributes"
    )


def _header(content_type: str | None, attributes: Mapping[str, str]) -> bytes:
    """A header block with whatever is in it: that it can be read is seen by reading it."""
    told = {} if content_type is None else {CONTENT_TYPE: content_type}
    lines = "".join(f"{name}: {value}\n" for name, value in (told | dict(attributes)).items())
    return lines.encode("utf-8", "replace") + b"\n" if lines else b""
