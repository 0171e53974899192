"""Drafts: messages that were checked against their queue's settings, ready to be written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..context import Context
from ..durability.dedup_records import key_of
from ..durability.drafts import Draft
from ..errors import InvalidValue, MessageTooLarge
from ..layout.digests import sha256
from ..layout.messages.compression import compress
from ..layout.messages.given_ids import check_given, given_lines
from ..layout.messages.message import (
    ARRIVED,
    CONTENT_TYPE,
    DEDUP,
    DEDUP_OF,
    GROUP,
    MAX_DEDUP_BYTES,
    MAX_GROUP_BYTES,
    MAX_HEADER_BYTES,
    NewMessage,
    pack_header,
    unpack,
)
from ..layout.names import (
    MAX_FILE_NAME_BYTES,
    MAX_PRIORITY,
    check_id,
    facts,
    is_uuid7,
    new_id,
    seal_of,
    with_group,
)
from ..layout.settings import MAX_DELAY_S, MAX_TTL_S, QueueSettings, check_number, check_seconds
from ..layout.steps import giving_way

# A given id may be this old without needing a line that tells when its message came.
_LATE_MS = 1000


def drafts(
    context: Context,
    queue: str,
    messages: Sequence[NewMessage],
    settings: QueueSettings,
    letter_of: str | None = None,
) -> list[Draft]:
    """Drafts of several messages; an error's ``index`` is the position of the faulty one.

    letter_of: the subscription whose dead letters they are.

    Raises:
        InvalidValue, MessageTooLarge
    """
    found: list[Draft] = []
    for message in giving_way(messages):  # each asks the kernel for random bytes
        try:
            found.append(draft(context, message, settings, letter_of=letter_of))
            check_room(queue, found[-1])
        except (InvalidValue, MessageTooLarge) as error:
            error.index = None if len(messages) == 1 else len(found)
            raise
    return found


def check_room(queue: str, one: Draft) -> None:
    """Raise InvalidValue if an own id, with what its name tells, is too long for the queue."""
    if one.own and len(one.dot_name(queue)) > MAX_FILE_NAME_BYTES:
        text = f"is too long for queue {queue!r}, with what its file's name has to tell"
        raise InvalidValue("id", f"{text}: more than {MAX_FILE_NAME_BYTES} bytes")


def draft(
    context: Context,
    message: NewMessage,
    settings: QueueSettings,
    *,
    is_indexed: bool = False,
    letter_of: str | None = None,
) -> Draft:
    """A draft of one message. Raises InvalidValue, MessageTooLarge.

    is_indexed: its id is any text, given by the producer and kept in the header block; its name is
        generated, and sorts by when it is due.
    letter_of: the subscription whose dead letter it is.
    """
    given = check_given(message.id or "") if is_indexed else None
    own = None if is_indexed else message.id
    priority = check_number("priority", message.priority, 0, MAX_PRIORITY)
    ttl = None if message.ttl is None else check_seconds("ttl", message.ttl, MAX_TTL_S)
    delay = settings.default_delay if message.delay is None else message.delay
    check_seconds("delay", delay, MAX_DELAY_S)
    limit = context.max_message_bytes
    if settings.max_message_bytes is not None:
        limit = min(limit, settings.max_message_bytes)
    if len(message.body) > limit:
        raise MessageTooLarge(len(message.body), limit)
    group, own_lines, key = message.group, None, None
    if group is not None or message.dedup_id is not None or settings.fifo:
        own_lines, key = _own_lines(message, settings, letter_of)
    if own is not None and settings.retention is not None:
        own_lines = {**(own_lines or {}), **_late_line(own, context.now_ms())}
    header = pack_header(message.content_type, message.attributes, own_lines)
    body, packed = message.body, False
    # A plain own id stays the name of its file: it is not marked for the sake of a smaller body.
    can_pack = own is None or is_uuid7(own) or bool(priority or header) or ttl is not None
    if settings.compression is not None and body and can_pack:
        smaller = compress(body, settings.compression)
        if len(smaller) < len(body):
            body, packed = smaller, True
    delay_ms = round(delay * 1000) if delay else None
    message_id = new_id(
        own=own,
        priority=priority,
        ttl=ttl,
        headed=is_indexed or bool(header),
        packed=packed,
        due_ms=delay_ms if is_indexed else None,
    )
    if group is not None and own is None and settings.fetch_order == "fair":
        message_id = with_group(message_id, group)
    if given is not None:
        header = given_lines(given, message_id) + (header or b"\n")
        if len(header) > MAX_HEADER_BYTES:
            raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes with the id")
    seal = seal_of(body, seal_of(header))
    return Draft(message_id, header, body, delay_ms, message.id is not None, seal, group, key)


def _late_line(own: str, now_ms: int) -> dict[str, str]:
    """The line of a message whose given id contains an old time: retention counts from now."""
    made_ms = facts(own).created_ms
    is_late = made_ms is not None and made_ms < now_ms - _LATE_MS
    return {ARRIVED: str(now_ms)} if is_late else {}


def _own_lines(
    message: NewMessage, settings: QueueSettings, letter_of: str | None
) -> tuple[dict[str, str], bytes | None]:
    """The lines of group and deduplication id, and the key of the latter. Raises InvalidValue."""
    group = message.group
    if group is None and settings.fifo:
        raise InvalidValue("group", "is missing: a fifo queue keeps the order within groups")
    lines = {}
    if group is not None:
        _check_group(message, group, settings)
        lines[GROUP] = group
    if message.dedup_id is None and not settings.dedup_by_content:
        return lines, None
    lines[DEDUP] = dedup_id = _dedup_id(message, settings)
    if letter_of is not None:
        # Several subscriptions can share a dead-letter queue: each has its own copy there.
        lines[DEDUP_OF] = letter_of
    return lines, key_of(dedup_id, group if settings.dedup_scope == "group" else None, letter_of)


def _dedup_id(message: NewMessage, settings: QueueSettings) -> str:
    """The deduplication id of a message. Raises InvalidValue."""
    given = message.dedup_id
    if given is None:
        return sha256(message.body).hex()
    if not settings.fifo:
        raise InvalidValue("dedup_id", "is for fifo queues")
    if not isinstance(given, str) or not 1 <= _bytes(given) <= MAX_DEDUP_BYTES:
        raise InvalidValue("dedup_id", f"must be a text of 1 to {MAX_DEDUP_BYTES} bytes")
    return given


def _check_group(message: NewMessage, group: str, settings: QueueSettings) -> None:
    """Raise InvalidValue if a message cannot have this group."""
    if not isinstance(group, str) or not 1 <= _bytes(group) <= MAX_GROUP_BYTES:
        raise InvalidValue("group", f"must be a text of 1 to {MAX_GROUP_BYTES} bytes")
    if settings.fifo:
        for field, is_given in (
            ("id", message.id is not None),
            ("priority", message.priority != 0),
            ("delay", bool(message.delay)),
        ):
            if is_given:
                raise InvalidValue(field, "cannot be given in a fifo queue: the order decides")


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))  # the header refuses invalid text


def restored(context: Context, queue: str, message: NewMessage, settings: QueueSettings) -> Draft:
    """A draft of a message whose ``id`` is the whole name of its file.

    Priority, expiry, and whether there is a header block or a compressed body come from the name,
    not from the message. The spool's own limit of a body does not apply, as it does not for files
    that are moved in; the queue's does.

    Raises:
        InvalidValue: no message can have that name, or none with this content.
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
    own_lines = {} if message.group is None else {GROUP: message.group}
    pack_header(None, {}, own_lines)  # checks the group
    header = _header(message.content_type, {**message.attributes, **own_lines})
    wanted = message.body, message.content_type, dict(message.attributes)
    # A name with the flag of compression does not always have a compressed body.
    bodies = [message.body]
    if known.packed:
        bodies.append(compress(message.body, settings.compression or "zlib"))
        bodies.sort(key=len)  # compressed first if that is smaller, possibly a hundredth
    for body in bodies:
        if unpack(header + body, known, context.max_plain_bytes) == wanted:
            seal = seal_of(body, seal_of(header))
            return Draft(name, header, body, round(delay * 1000) or None, True, seal)
    raise InvalidValue(
        "id", f"{name[:200]!r} is not a name for a message with this content type and attributes"
    )


def _header(content_type: str | None, attributes: Mapping[str, str]) -> bytes:
    """A header block, unchecked: the caller reads it back."""
    described = {} if content_type is None else {CONTENT_TYPE: content_type}
    lines = "".join(f"{name}: {value}\n" for name, value in (described | dict(attributes)).items())
    return lines.encode("utf-8", "replace") + b"\n" if lines else b""
