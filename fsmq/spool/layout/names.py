"""Names: which are valid in the tree, and what they tell without opening the file.

A message id of ours is ``[pNN.]<uuid7>[.x<hex seconds>][.h][.z]``, so plain name order is delivery
order and expiry needs no look into the file. A caller's own id is the whole name, or, if the name
has to tell more, ``[pNN.]@<own>@[.x<hex seconds>-<ttl>][.h][.z]``. Any other legal file name is an
id too (a shell user's ``mv``), and then it is plain: no prefix and no flag is read from it.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from functools import lru_cache
from typing import NamedTuple

from ..errors import InvalidValue
from .digests import sha256
from .uuids import created_ms, group_bits, later_uuid7, ticks_of, uuid7

MAX_QUEUE_BYTES = 180
MAX_OWN_ID_BYTES = 64
MAX_FILE_NAME_BYTES = 255
MAX_PRIORITY = 99
# The flag holds at most ten hex digits; the year 9999 needs nine.
MAX_EXPIRY_S = 253_402_300_799

UUID7 = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

_queue_name = re.compile(r"(?!\.)(?!_(?!_))[A-Za-z0-9._:@-]{1,180}")
_shard_name = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_OWN = r"(?!\.)[A-Za-z0-9._@+=~-]{1,64}"
_own_id = re.compile(_OWN)
_uuid7 = re.compile(UUID7)
_PRIORITY = r"(?:p(?P<priority>0[1-9]|[1-9][0-9])\.)?"
_EXPIRES = r"\.x(?P<expires>[0-9a-f]{1,10})"
_FORM = r"(?P<headed>\.h)?(?P<packed>\.z)?"
_our_id = re.compile(rf"{_PRIORITY}(?P<uuid>{UUID7})(?:{_EXPIRES})?{_FORM}")
# An own id between marks. The last mark ends it: an own id may contain marks, what follows may not.
_marked_id = re.compile(
    rf"{_PRIORITY}@(?P<own>{_OWN})@(?:{_EXPIRES}-(?P<ttl>[1-9a-f][0-9a-f]{{0,7}}))?{_FORM}"
)
_UUID_LENGTH = 36
# What most longer names of ours have after the UUID, and the flags of `Facts` that it means.
_FLAGS = {".h": (True, False), ".z": (False, True), ".h.z": (True, True)}
# The expiry of an own id is a multiple of this part of its time to live: then a retry knows the few
# names that an earlier try can have got, also one whose clock was some seconds ahead.
_EXPIRIES, _AHEAD_S = 16, 5
_FORMS = ("", ".h", ".z", ".h.z")
_scratch_name = re.compile(rf"\.probe-{UUID7}")
_taken_name = re.compile(r"\.(?P<entry>.+:[^:]+):taken")
_staged_name = re.compile(r"\.(?P<entry>.+:[^:]+):(?P<seal>[0-9a-f]{8})(?P<number>[0-9a-f]{8})?")


class Facts(NamedTuple):
    """What an id says about its message."""

    priority: int = 0
    created_ms: int | None = None  # Unix milliseconds; None for a plain name
    expires_s: int | None = None  # Unix seconds
    headed: bool = False  # a header block comes before the body
    packed: bool = False  # the body is compressed (zlib)


PLAIN = Facts()
# What is named by the same rules as queues.
_NAMED = ("topic", "log", "channel", "schedule", "consumer", "job", "writer")
# The queue of messages that probe whether programs are alive (`fsmq.spool.records.alive`). It need
# not exist: these messages have expired and never get there.
ALIVE = "__alive"


def check_queue(name: str, field: str = "queue") -> str:
    """Return ``name`` if it may name a queue, or what ``field`` says. Raises InvalidValue."""
    if _queue_name.fullmatch(name):
        return name
    kind = field.removeprefix("option ")
    named = kind if kind in _NAMED else "queue"
    raise InvalidValue(
        field,
        f"{name[:200]!r} is not a {named} name: 1 to {MAX_QUEUE_BYTES} characters of"
        " A-Z a-z 0-9 - _ . : @, not starting with '.' or a single '_'",
    )


@lru_cache(4096)  # a listing asks about the same few queues a million times
def is_queue(name: str) -> bool:
    return _queue_name.fullmatch(name) is not None


def split_shard(queue: str) -> tuple[str, str] | None:
    """The queue and the shard of a name ``<queue>@<shard>``; None if it has no shard."""
    name, at, shard = queue.rpartition("@")
    return (name, shard) if at and name and _shard_name.fullmatch(shard) else None


def is_id(name: str) -> bool:
    """Whether ``name`` can be a message's id: a visible file name without a colon."""
    if not name or name[0] == ".":
        return False
    return ":" not in name and "/" not in name and "\0" not in name


def check_id(queue: str, message_id: str) -> str:
    """Return an id if a message can be looked up by it; raise InvalidValue otherwise."""
    if not is_id(message_id):
        raise InvalidValue(
            "id", f"{message_id[:200]!r} cannot be an id: no '/', ':' or NUL, no dot at the start"
        )
    try:
        fitting = fits(queue, message_id)
    except UnicodeEncodeError:  # a lone surrogate: no file has such a name
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

    due_ms: a fresh id sorts as if it were made this many milliseconds from now. The expiry is
    ``ttl`` seconds from now, or from the time in the caller's UUID, so that a retry makes the same
    name. For any other ``own`` id it is up to a sixteenth later, or a second; see `siblings`.

    Raises:
        InvalidValue: an ``own`` id that is invalid.
    """
    if own is None:
        uuid = later_uuid7(due_ms) if due_ms else uuid7()
    elif _uuid7.fullmatch(own):
        uuid = own
    else:
        return _own_name(_checked_own_id(own), priority, ttl, _form(headed, packed))
    expiry = ""
    if ttl is not None:
        since_s = time.time() if own is None else created_ms(own) / 1000
        expiry = f".x{_expiry(since_s + ttl):x}"
    return f"{_prefix(priority)}{uuid}{expiry}{_form(headed, packed)}"


def _prefix(priority: int) -> str:
    return f"p{priority:02}." if priority else ""


def _form(headed: bool, packed: bool) -> str:
    return f"{'.h' if headed else ''}{'.z' if packed else ''}"


def _expiry(ends_s: float, step_s: int = 1) -> int:
    """The end of a time to live, rounded up to a multiple of ``step_s``. Raises InvalidValue."""
    expires_s = -int(-ends_s // step_s) * step_s
    if not 0 < expires_s <= MAX_EXPIRY_S:
        raise InvalidValue("ttl", "ends after the year 9999, or before 1970")
    return expires_s


def _checked_own_id(own: str) -> str:
    if not _own_id.fullmatch(own):
        raise InvalidValue(
            "id",
            f"{own[:200]!r} is not an id: 1 to {MAX_OWN_ID_BYTES} characters of"
            " A-Z a-z 0-9 - _ . @ + = ~, not starting with '.'",
        )
    if _our_id.fullmatch(own) or _marked_id.fullmatch(own):
        raise InvalidValue("id", f"{own!r} has a prefix, marks or flags: give the bare id")
    return own


def _own_name(own: str, priority: int, ttl: float | None, form: str) -> str:
    expiry = ""
    if ttl is not None:
        ttl_s = max(1, -int(-ttl // 1))
        expiry = f".x{_expiry(time.time() + ttl, _step(ttl_s)):x}-{ttl_s:x}"
    elif not priority and not form:
        return own
    return f"{_prefix(priority)}@{own}@{expiry}{form}"


def _step(ttl_s: int) -> int:
    return -(-ttl_s // _EXPIRIES)


def is_uuid7(text: str) -> bool:
    return _uuid7.fullmatch(text) is not None


def is_made(message_id: str) -> bool:
    """Whether an id is a UUIDv7 of our form, which tells when it was made."""
    return _our_id.fullmatch(message_id) is not None


def facts(message_id: str) -> Facts:
    """What an id tells about its message; a plain name tells nothing."""
    # A listing asks for millions. Most are a bare UUID, and most others begin with one.
    if len(message_id) == _UUID_LENGTH and _uuid7.fullmatch(message_id):
        return Facts(0, int(message_id[:8] + message_id[9:13], 16))
    flags = _FLAGS.get(message_id[_UUID_LENGTH:])
    if flags is not None and _uuid7.fullmatch(message_id, 0, _UUID_LENGTH):
        return Facts(0, int(message_id[:8] + message_id[9:13], 16), None, *flags)
    match = _parsed(message_id)
    if match is None:
        return PLAIN
    found = match.groupdict()
    priority, uuid, expires = found["priority"], found.get("uuid"), found["expires"]
    return Facts(
        int(priority) if priority else 0,
        int(uuid[:8] + uuid[9:13], 16) if uuid else None,
        int(expires, 16) if expires else None,
        found["headed"] is not None,
        found["packed"] is not None,
    )


def _parsed(message_id: str) -> re.Match[str] | None:
    """The parts of a name of ours, or of an own id between marks; None for any other name."""
    found = _our_id.fullmatch(message_id)
    return _marked_id.fullmatch(message_id) if found is None and "@" in message_id else found


def sequence_of(message_id: str) -> int | None:
    """The place of a message in the order of its queue, from its id; None for a plain name."""
    match = _our_id.fullmatch(message_id)
    return None if match is None else ticks_of(match["uuid"])


def group_hash(message_id: str) -> str:
    """What the ids of one group have in common; a plain name is a group of its own."""
    # Ids of fifo queues have no priority: they begin with the UUID. For the speed of listings this
    # accepts that a similar plain name can share a group.
    if message_id[18:19] == "-" == message_id[23:24] and message_id[14] == "7":
        return message_id[19:36]
    match = _our_id.fullmatch(message_id)
    return message_id if match is None else match["uuid"][19:]


def with_group(message_id: str, group: str) -> str:
    """An id of ours that contains its group, for queues that serve groups in turn.

    Five random digits are left, so that two ids of one moment differ.
    """
    at = _uuid_at(message_id)
    bits = group_bits("", group)
    return f"{message_id[: at + 19]}{bits[:4]}-{bits[4:11]}{message_id[at + 31 :]}"


def fair_group(message_id: str) -> str:
    """The group in an id of `with_group`; any other id is a group of its own."""
    at = _uuid_at(message_id)
    if message_id[at + 18 : at + 19] == "-" == message_id[at + 23] and message_id[at + 14] == "7":
        return message_id[at + 19 : at + 31]
    return message_id


def _uuid_at(message_id: str) -> int:
    return 4 if message_id[0] == "p" and message_id[3:4] == "." else 0


def renewed(message_id: str) -> str:
    """An id with the same facts for another message; a fresh UUIDv7 for a plain name."""
    known = facts(message_id)
    expiry = "" if known.expires_s is None else f".x{known.expires_s:x}"
    return f"{_prefix(known.priority)}{uuid7()}{expiry}{_form(known.headed, known.packed)}"


def with_priority(message_id: str, priority: int) -> str | None:
    """The id of the same message with another priority; None for a name that can carry none."""
    match = _parsed(message_id)
    if match is None:
        return _own_name(message_id, priority, None, "") if _own_id.fullmatch(message_id) else None
    rest = message_id[4:] if match["priority"] else message_id
    own = match.groupdict().get("own")
    return (
        own if own is not None and not priority and rest == f"@{own}@" else _prefix(priority) + rest
    )


def siblings(message_id: str) -> list[str]:
    """The names that a put of the same id can have got; the bare id comes first.

    They differ in whether there is a header block or compression, and for an own id with a time to
    live in the expiry: it counts from the time of each try, so that the names are those of now.
    """
    if _our_id.fullmatch(message_id):
        bare = message_id.removesuffix(".z").removesuffix(".h")
        return [bare + form for form in _FORMS]
    match = _parsed(message_id)
    if match is not None:
        own, prefix = match["own"], message_id[: match.start("own")]
        expiries = (
            [""] if match["ttl"] is None else _expiries(int(match["expires"], 16), match["ttl"])
        )
    elif _own_id.fullmatch(message_id):
        own, prefix, expiries = message_id, "@", [""]
    else:
        return [message_id]
    return [own, *[f"{prefix}{own}@{expiry}{form}" for expiry in expiries for form in _FORMS]]


def own_id(message_id: str) -> str:
    """The part of an id that a repeated put has too: the one that a client gave, or a UUIDv7."""
    match = _parsed(message_id)
    return message_id if match is None else match[match.re.groupindex.get("own") or "uuid"]


def _expiries(known_s: int, ttl: str) -> list[str]:
    """This expiry, and those that other tries can have given to what has not expired yet."""
    ttl_s = int(ttl, 16)
    step, now_s = _step(ttl_s), int(time.time())
    others = range(now_s // step * step, now_s + 1 + ttl_s + _AHEAD_S + step, step)
    return [f".x{at:x}-{ttl}" for at in sorted({known_s, *others})]


def entry(queue: str, message_id: str) -> str:
    """The file name of a message in ``new/``, ``delay/`` and ``remove/``."""
    return f"{queue}:{message_id}"


def split_entry(name: str) -> tuple[str, str] | None:
    """Split ``<queue>:<id>`` at the last colon; None if it is no message's name."""
    queue, colon, message_id = name.rpartition(":")
    if not colon or not message_id or message_id[0] == "." or not is_queue(queue):
        return None
    return queue, message_id


def seal_of(content: bytes, before: int = 0) -> int:
    """The CRC-32 of a file's bytes; ``before`` is that of the bytes in front of ``content``."""
    return zlib.crc32(content, before)


def staged_entry(queue: str, message_id: str, seal: int, number: int | None = None) -> str:
    """The dot-name under which a message is written.

    The seal shows whether the file is complete. number: that of the put, locked while it runs.
    """
    return f".{queue}:{message_id}:{seal:08x}{'' if number is None else f'{number:08x}'}"


def split_staged(name: str) -> tuple[str, int] | None:
    """Split a dot-name into the entry that it will become and the seal of its bytes."""
    match = _staged_name.fullmatch(name)
    if match is None or split_entry(match["entry"]) is None:
        return None
    return match["entry"], int(match["seal"], 16)


def taken_entry(queue: str, message_id: str) -> str | None:
    """The dot-name of a message that was taken away for inspection; None if it is too long."""
    name = f".{queue}:{message_id}:taken"
    return name if len(os.fsencode(name)) <= MAX_FILE_NAME_BYTES else None


def split_taken(name: str) -> tuple[str, str] | None:
    """The queue and the id of a message that was taken away; None for any other name."""
    match = _taken_name.fullmatch(name)
    return None if match is None else split_entry(match["entry"])


def number_of(name: str) -> int | None:
    """The number of the put in a dot-name; None if it has none."""
    match = _staged_name.fullmatch(name)
    return None if match is None or match["number"] is None else int(match["number"], 16)


def reservation(queue: str, message_id: str) -> str:
    """The dot-name that keeps two puts of one own id apart. It has no seal: never complete."""
    name = f".{queue}:{message_id}:own"
    if len(os.fsencode(name)) <= MAX_FILE_NAME_BYTES:
        return name
    # For an id that is too long for a put, but can be restored.
    digest = sha256(os.fsencode(message_id)).hex()[:32]
    return f".{queue}:{digest}:own"


def scratch_name() -> str:
    """A name for a file of the probe, which is never a message."""
    return f".probe-{uuid7()}"


def is_scratch(name: str) -> bool:
    """Whether a name is one of the probe's own."""
    return _scratch_name.fullmatch(name) is not None
