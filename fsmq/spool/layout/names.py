"""Names: which are valid in the tree, and what a name says without opening the file.

A message id of ours is ``[pNN.]<uuid7>[.x<hex seconds>][.h][.z]``, so plain name order is delivery
order and expiry needs no look into the file. Any other legal file name is an id too (a shell user's
``mv``), and then it is plain: no prefix and no flag is read from it.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from ..errors import InvalidValue
from .digests import sha256
from .uuids import group_bits, later_uuid7, ticks_of, uuid7

MAX_QUEUE_BYTES = 180
MAX_OWN_ID_BYTES = 64
MAX_FILE_NAME_BYTES = 255
MAX_PRIORITY = 99
# The flag holds at most ten hex digits; the year 9999 needs nine.
MAX_EXPIRY_S = 253_402_300_799

UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

_queue_name = re.compile(r"(?!\.)(?!_(?!_))[A-Za-z0-9._:@-]{1,180}")
_shard_name = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_own_id = re.compile(r"(?!\.)[A-Za-z0-9._@+=~-]{1,64}")
_uuid7 = re.compile(UUID7)
_our_id = re.compile(
    rf"(?:p(?P<priority>0[1-9]|[1-9][0-9])\.)?(?P<uuid>{UUID7})"
    r"(?:\.x(?P<expires>[0-9a-f]{1,10}))?(?P<headed>\.h)?(?P<packed>\.z)?"
)
_UUID_LENGTH = 36
# What most longer names of ours have behind the UUID, and which flags of `Facts` that is.
_FLAGS = {".h": (True, False), ".z": (False, True), ".h.z": (True, True)}
_scratch_name = re.compile(rf"\.probe-{UUID7}")
_taken_name = re.compile(r"\.(?P<entry>.+:[^:]+):taken")
_dedup_name = re.compile(r"\.(?P<queue>.+)\.dedup")
_staged_name = re.compile(r"\.(?P<entry>.+:[^:]+):(?P<seal>[0-9a-f]{8})(?P<number>[0-9a-f]{8})?")


class Facts(NamedTuple):
    """What an id says about its message."""

    priority: int = 0
    created_ms: int | None = None  # Unix milliseconds; None for a plain name
    expires_s: int | None = None  # Unix seconds
    headed: bool = False  # a header block comes before the body
    packed: bool = False  # the body is compressed (zlib)


PLAIN = Facts()
# The queue of what asks whether programs live (`fsmq.spool.records.alive`). It does not have to
# exist: an expired message never gets there.
ALIVE = "__alive"


def check_queue(name: str, field: str = "queue") -> str:
    """Return ``name`` if it may name a queue or a topic.

    Raises:
        InvalidValue: with the rule that it breaks.
    """
    if _queue_name.fullmatch(name):
        return name
    raise InvalidValue(
        field,
        f"{name[:200]!r} is not a queue name: 1 to {MAX_QUEUE_BYTES} characters of"
        " A-Z a-z 0-9 - _ . : @, not starting with '.' or a single '_'",
    )


@lru_cache(4096)  # a listing asks for the same few queues a million times
def is_queue(name: str) -> bool:
    return _queue_name.fullmatch(name) is not None


def split_shard(queue: str) -> tuple[str, str] | None:
    """The queue and the shard of a name ``<queue>@<shard>``; None for a queue that is no shard."""
    name, at, shard = queue.rpartition("@")
    return (name, shard) if at and name and _shard_name.fullmatch(shard) else None


def is_id(name: str) -> bool:
    """Whether ``name`` can be a message's id: a visible file name without a colon."""
    if not name or name[0] == ".":
        return False
    return ":" not in name and "/" not in name and "\0" not in name


def check_id(queue: str, message_id: str) -> str:
    """Return an id with which a message may be looked up; raise InvalidValue otherwise."""
    if not is_id(message_id):
        raise InvalidValue(
            "id", f"{message_id[:200]!r} cannot be an id: no '/', ':' or NUL, no dot at the start"
        )
    try:
        fitting = fits(queue, message_id)
    except UnicodeEncodeError:  # a lone surrogate: no file can have such a name
        raise InvalidValue("id", f"{message_id[:200]!r} is not text") from None
    if not fitting:
        raise InvalidValue("id", f"queue and id are longer than {MAX_FILE_NAME_BYTES - 1} bytes")
    return message_id


def fits(queue: str, message_id: str) -> bool:
    """Whether queue and id fit into one file name, as ``delay/`` needs it."""
    name = entry(queue, message_id)
    return len(name if name.isascii() else os.fsencode(name)) <= MAX_FILE_NAME_BYTES


def new_id(
    *,
    own: str | None = None,
    priority: int = 0,
    ttl: float | None = None,
    headed: bool = False,
    packed: bool = False,
    due_ms: int | None = None,
) -> str:
    """Make the id of a new message: a fresh UUIDv7, or the caller's ``own``.

    due_ms: a fresh one sorts as if it were made so many milliseconds from now.
    The expiry counts ``ttl`` seconds from now, or from the time in the caller's UUID: a put that is
    tried again makes the same name.

    Raises:
        InvalidValue: an ``own`` id that is no legal id, or that cannot carry what is asked.
    """
    if own is None:
        uuid = later_uuid7(due_ms) if due_ms else uuid7()
    elif _uuid7.fullmatch(own):
        uuid = own
    else:
        return _plain_own_id(own, priority != 0 or ttl is not None or headed or packed)
    expiry = ""
    if ttl is not None:
        since_s = time.time() if own is None else created_ms(own) / 1000
        expires_s = -int(-(since_s + ttl) // 1)
        if not 0 < expires_s <= MAX_EXPIRY_S:
            raise InvalidValue("ttl", "ends after the year 9999, or before 1970")
        expiry = f".x{expires_s:x}"
    prefix = f"p{priority:02}." if priority else ""
    return f"{prefix}{uuid}{expiry}{'.h' if headed else ''}{'.z' if packed else ''}"


def can_carry(own: str | None) -> bool:
    """Whether a message with this own id, or None for one of ours, can have flags."""
    return own is None or _uuid7.fullmatch(own) is not None


def _plain_own_id(own: str, carries: bool) -> str:
    if not _own_id.fullmatch(own):
        raise InvalidValue(
            "id",
            f"{own[:200]!r} is not an id: 1 to {MAX_OWN_ID_BYTES} characters of"
            " A-Z a-z 0-9 - _ . @ + = ~, not starting with '.'",
        )
    if _our_id.fullmatch(own):
        raise InvalidValue("id", f"{own!r} has a prefix or flags: give the bare UUID")
    if carries:
        raise InvalidValue(
            "id",
            f"{own!r} is not a UUIDv7, and only a UUIDv7 can carry a priority, a time to live,"
            " a content type or attributes: send a UUIDv7, or leave those out",
        )
    return own


def created_ms(uuid: str) -> int:
    """The time in a UUIDv7, in Unix milliseconds."""
    return UUID(uuid).int >> 80


def is_made(message_id: str) -> bool:
    """Whether an id is one of ours, or a UUIDv7 as ours are: it tells when it was made."""
    return _our_id.fullmatch(message_id) is not None


def facts(message_id: str) -> Facts:
    """Read what an id says; a plain name says nothing."""
    # A listing asks for millions. Most are a bare UUID, and most others begin with one.
    if len(message_id) == _UUID_LENGTH:
        if _uuid7.fullmatch(message_id):
            return Facts(0, int(message_id[:8] + message_id[9:13], 16))
        return PLAIN
    flags = _FLAGS.get(message_id[_UUID_LENGTH:])
    if flags is not None and _uuid7.fullmatch(message_id, 0, _UUID_LENGTH):
        return Facts(0, int(message_id[:8] + message_id[9:13], 16), None, *flags)
    match = _our_id.fullmatch(message_id)
    if match is None:
        return PLAIN
    priority, uuid, expires, headed, packed = match.groups()
    return Facts(
        int(priority) if priority else 0,
        int(uuid[:8] + uuid[9:13], 16),
        int(expires, 16) if expires else None,
        headed is not None,
        packed is not None,
    )


def sequence_of(message_id: str) -> int | None:
    """The place of a message in the order of its queue, as its id tells it; None: a plain name."""
    match = _our_id.fullmatch(message_id)
    return None if match is None else ticks_of(match["uuid"])


def group_hash(message_id: str) -> str:
    """What the ids of one group have in common; a plain name is a group of its own."""
    # Ids of fifo queues have no priority: they begin with the UUID. A listing asks for millions, so
    # that a plain name that looks alike may share a group.
    if message_id[18:19] == "-" == message_id[23:24] and message_id[14] == "7":
        return message_id[19:36]
    match = _our_id.fullmatch(message_id)
    return message_id if match is None else match["uuid"][19:]


def with_group(message_id: str, group: str) -> str:
    """An id of ours that says of which group it is, where groups are claimed in turn.

    Of the random digits five are left, so that two of one moment differ.
    """
    at = _uuid_at(message_id)
    bits = group_bits("", group)
    return f"{message_id[: at + 19]}{bits[:4]}-{bits[4:11]}{message_id[at + 31 :]}"


def fair_group(message_id: str) -> str:
    """What ids of `with_group` have in common; any other is a group of its own."""
    at = _uuid_at(message_id)
    if message_id[at + 18 : at + 19] == "-" == message_id[at + 23] and message_id[at + 14] == "7":
        return message_id[at + 19 : at + 31]
    return message_id


def _uuid_at(message_id: str) -> int:
    return 4 if message_id[0] == "p" and message_id[3:4] == "." else 0


def renewed(message_id: str) -> str:
    """An id that says the same of another message; a fresh UUIDv7 for a plain name."""
    match = _our_id.fullmatch(message_id)
    if match is None:
        return uuid7()
    first, end = match.span("uuid")
    return f"{message_id[:first]}{uuid7()}{message_id[end:]}"


def with_priority(message_id: str, priority: int) -> str | None:
    """The id of the same message with another priority; None for one that carries none."""
    match = _our_id.fullmatch(message_id)
    if match is None:
        return None
    rest = message_id[match.start("uuid") :]
    return f"p{priority:02}.{rest}" if priority else rest


def siblings(message_id: str) -> list[str]:
    """The names that a put of the same id could have got: with a header block or without."""
    if not _our_id.fullmatch(message_id):
        return [message_id]
    bare = message_id.removesuffix(".z").removesuffix(".h")
    return [bare, bare + ".h", bare + ".z", bare + ".h.z"]


def entry(queue: str, message_id: str) -> str:
    """The file name of a message in ``new/``, ``delay/`` and ``remove/``."""
    return f"{queue}:{message_id}"


def split_entry(name: str) -> tuple[str, str] | None:
    """Split ``<queue>:<id>`` at the last colon; None for what is no message's name."""
    queue, colon, message_id = name.rpartition(":")
    if not colon or not message_id or message_id[0] == "." or not is_queue(queue):
        return None
    return queue, message_id


def seal_of(content: bytes, before: int = 0) -> int:
    """The CRC-32 of a file's bytes; ``before`` is that of the bytes in front of ``content``."""
    return zlib.crc32(content, before)


def staged_entry(queue: str, message_id: str, seal: int, number: int | None = None) -> str:
    """The dot-name under which a message is written.

    The seal shows if the file is complete. number: of the put, which is locked while it runs.
    """
    return f".{queue}:{message_id}:{seal:08x}{'' if number is None else f'{number:08x}'}"


def split_staged(name: str) -> tuple[str, int] | None:
    """Split a dot-name into the entry that it will become and the seal of its bytes."""
    match = _staged_name.fullmatch(name)
    if match is None or split_entry(match["entry"]) is None:
        return None
    return match["entry"], int(match["seal"], 16)


def taken_entry(queue: str, message_id: str) -> str | None:
    """The dot-name of a message that was taken away to be looked at; None if it is too long."""
    name = f".{queue}:{message_id}:taken"
    return name if len(os.fsencode(name)) <= MAX_FILE_NAME_BYTES else None


def split_taken(name: str) -> tuple[str, str] | None:
    """The queue and the id of a message that was taken away; None for any other name."""
    match = _taken_name.fullmatch(name)
    return None if match is None else split_entry(match["entry"])


def number_of(name: str) -> int | None:
    """The number of the put that a dot-name is of; None if it has none."""
    match = _staged_name.fullmatch(name)
    return None if match is None or match["number"] is None else int(match["number"], 16)


def reservation(queue: str, message_id: str) -> str:
    """The dot-name that keeps two puts of one own id apart. It has no seal: never complete."""
    name = f".{queue}:{message_id}:own"
    if len(os.fsencode(name)) <= MAX_FILE_NAME_BYTES:
        return name
    # For an id that is too long to be put, but can be restored.
    digest = sha256(os.fsencode(message_id)).hex()[:32]
    return f".{queue}:{digest}:own"


def scratch_name() -> str:
    """A name for a file of the probe, which is never a message."""
    return f".probe-{uuid7()}"


def is_scratch(name: str) -> bool:
    """Whether a name is one of the probe's own."""
    return _scratch_name.fullmatch(name) is not None


def sends_name(queue: str) -> str:
    """The file of ``config/`` that those share who put into a fifo queue."""
    return f".{queue}.sends"


def dedup_name(queue: str) -> str:
    """The folder of ``config/`` with the deduplication ids of a fifo queue."""
    return f".{queue}.dedup"


def queue_of_dedup(name: str) -> str | None:
    """The queue of such a folder; None for any other name."""
    match = _dedup_name.fullmatch(name)
    return None if match is None else match["queue"]


def claims_name(queue: str) -> str:
    """The file of ``config/`` that those share who claim from a fifo queue."""
    return f".{queue}.claims"


def limits_name(queue: str) -> str:
    """The file of ``config/`` that those share who keep a queue's limits."""
    return f".{queue}.limits"
