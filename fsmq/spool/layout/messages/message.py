"""Messages: what a put takes, what a claim returns, and the header block of a file.

A message with a content type or attributes has the flag ``.h`` in its id and a header block before
its body: ``Name: value`` lines in UTF-8, each ended by a line feed, then an empty line. All other
files are just the body's bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from ...errors import InvalidValue
from ..names import Facts, own_id, sequence_of
from .compression import MAX_PLAIN_BYTES, decompress
from .dead_letter import DeadLetter

CONTENT_TYPE = "Content-Type"
# Lines of fsmq itself begin with this, in upper or lower case. They are no attributes: a put cannot
# set them as such, and a reader does not get them among the attributes.
OWN = "fsmq."
# The line that has a message's group.
GROUP = "fsmq.group"
MAX_GROUP_BYTES = 256
# The line that has a message's deduplication id.
DEDUP = "fsmq.dedup"
# For a dead letter with a deduplication id, the line with its subscription: the id counts only
# among the dead letters of this subscription.
DEDUP_OF = "fsmq.dedup-of"
_dedup_of = re.compile(rb"(?:^|\n)fsmq\.dedup-of: ([^\n]+)\n")
# The line with the id that its producer gave, in a queue with an index.
GIVEN_ID = "fsmq.id"
# The line with the time of the put, in Unix milliseconds, if the id contains an earlier one.
ARRIVED = "fsmq.arrived"
_arrived = re.compile(rb"(?:^|\n)fsmq\.arrived: ([0-9]{1,15})\n")
# The line with the queue to which a client of SQS sent a message, wherever it is now.
SENT_TO = "sqs.queue"
MAX_DEDUP_BYTES = 256
MAX_HEADER_BYTES = 64 * 1024
_attribute_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# Lines of names and values, as a header block has them.
_block = re.compile(rf"{_attribute_name.pattern}: [^\n]*(?:\n{_attribute_name.pattern}: [^\n]*)*")
_unprintable = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be put.

    delay: seconds until it can be claimed; None takes the queue's default delay.
    priority: 0 (most urgent) to 99.
    ttl: seconds until it expires; None: never (but see the queue's retention).
    id: the caller's own id; None makes a UUIDv7.
    group: a fifo queue keeps the order within each group; other queues just store it.
    dedup_id: a fifo queue stores nothing if it got this id less than 300 seconds ago.
    """

    body: bytes
    delay: float | None = None
    priority: int = 0
    ttl: float | None = None
    id: str | None = None
    content_type: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    dedup_id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was claimed or peeked at. Times are Unix seconds.

    deliveries: how often it was claimed, this time included; 99 means "99 or more"; None where the
        filesystem cannot keep the count.
    deadline: when the claim ends (or the delay, for a peeked message); None if no timer runs.
    created_at, expires_at: None if the id does not tell.
    dead_letter: how it became a dead letter the last time; set by a look, not by a claim.
    claim: the name of the claim, which renewals do not change; None if it was only looked at.
    group, dedup_id: those with which it was put; None if it has none.
    given_id: the id that its producer gave, in a queue with an index.
    """

    queue: str
    id: str
    body: bytes
    deliveries: int | None
    deadline: float | None
    content_type: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    created_at: float | None = None
    expires_at: float | None = None
    state: str = "ready"
    dead_letter: DeadLetter | None = None
    claim: str | None = field(default=None, compare=False)
    group: str | None = None
    dedup_id: str | None = None
    given_id: str | None = None

    def __repr__(self) -> str:
        known = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        if self.own_id != self.id:
            known = {
                "queue": known.pop("queue"),
                "id": known.pop("id"),
                "own_id": self.own_id,
            } | known
        shown = ", ".join(f"{n}={v!r}" for n, v in known.items() if v is not None)
        return f"{type(self).__qualname__}({shown})"

    @property
    def own_id(self) -> str:
        """What its producer called it, or the UUIDv7 that fsmq made: the same whenever a put is
        repeated, while ``id`` may also tell a priority, an expiry and whether there is a header."""
        return self.given_id or own_id(self.id)

    @property
    def sequence(self) -> int | None:
        """Its place in the order of a fifo queue, which rises; None if its id does not tell."""
        return sequence_of(self.id)


_Open = make_dataclass(
    "_Open",
    [
        (one.name, object, field(default=one.default, default_factory=one.default_factory))
        for one in fields(Message)
    ],
    slots=True,
)


def found_message(*values: Any) -> Message:
    """A message from its fields, in their order.

    Setting the fields of a frozen dataclass costs as much as two system calls. So an unfrozen class
    with the same slots is filled, and its class changed.
    """
    message: Any = _Open(*values)
    message.__class__ = Message
    return message  # type: ignore[no-any-return]


_BAD_VALUE = "has control characters, or space at an end"
# Names of attributes that were found valid: the same names recur.
_good_names: set[str] = set()
_MOST_NAMES = 1000


class Header(NamedTuple):
    """A header block: where it ends, and what it contains."""

    end: int
    content_type: str | None
    attributes: dict[str, str]
    own: OwnLines


class OwnLines(NamedTuple):
    """The content of fsmq's own lines: the group and two ids."""

    group: str | None = None
    dedup_id: str | None = None
    given_id: str | None = None


NO_LINES = OwnLines()
NO_HEADER = Header(0, None, {}, NO_LINES)


def is_attribute_name(name: str) -> bool:
    """Whether an attribute may have this name."""
    return _attribute_name.fullmatch(name) is not None and name.lower() != CONTENT_TYPE.lower()


def public(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes without those that the SQS dialect uses internally."""
    return {name: value for name, value in attributes.items() if name[:4] != "sqs."}


def pack_header(
    content_type: str | None, attributes: Mapping[str, str], own: Mapping[str, str] | None = None
) -> bytes:
    """The header block; empty if there is nothing to write.

    own: lines of fsmq itself, which no attribute may imitate.

    Raises:
        InvalidValue: a name, a value or the whole block breaks a rule.
    """
    if content_type is None and not attributes and not own:
        return b""
    lines = []
    if content_type is not None:
        if _unprintable.search(content_type) or content_type != content_type.strip():
            raise InvalidValue("content_type", _BAD_VALUE)
        lines.append(f"{CONTENT_TYPE}: {content_type}\n")
    for name, value in attributes.items():
        if name not in _good_names:
            _check_name(name)
        lines.append(_line(name, value))
    if own:
        lines.extend([_line(name, value) for name, value in own.items()])
    block = "".join(lines).encode() + b"\n"
    if len(block) > MAX_HEADER_BYTES:
        raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes in all")
    return block


def _line(name: str, value: str) -> str:
    if _unprintable.search(value) or value != value.strip():
        raise InvalidValue(f"attribute {name}", _BAD_VALUE)
    return f"{name}: {value}\n"


def is_own(name: str) -> bool:
    """Whether a name is that of fsmq's own lines, and so of no attribute."""
    return name[: len(OWN)].lower() == OWN


def _check_name(name: str) -> None:
    if is_own(name):
        raise InvalidValue("attributes", f"{name[:200]!r} begins with {OWN}, which is reserved")
    if not is_attribute_name(name):
        raise InvalidValue(
            "attributes",
            f"{name[:200]!r} is not an attribute name: 1 to 128 of A-Z a-z 0-9 _ . -",
        )
    if len(_good_names) >= _MOST_NAMES:
        _good_names.clear()
    _good_names.add(name)


def unpack(
    raw: bytes, facts: Facts, limit: int = MAX_PLAIN_BYTES
) -> tuple[bytes, str | None, dict[str, str]]:
    """Split a file's bytes into body, content type and attributes, as its id announces them.

    An invalid header block (of a file written by hand) is left in the body, and a body that is not
    compressed, or would have more than ``limit`` bytes, is left as it is: no message is lost over
    its form.
    """
    start, content_type, attributes, _ = header(raw) if facts.headed else NO_HEADER
    raw = raw[start:]
    if facts.packed:
        plain = decompress(raw, limit)
        raw = raw if plain is None else plain
    return raw, content_type, dict(attributes)


def header(raw: bytes) -> Header:
    """The header block at a file's start; empty if the first bytes are not one."""
    end = raw.find(b"\n\n", 0, MAX_HEADER_BYTES)
    block = raw[:end].decode("utf-8", "replace") if end > 0 else ""
    if not _block.fullmatch(block):
        return NO_HEADER
    values = dict([line.split(": ", 1) for line in block.split("\n")])
    content_type = values.pop(CONTENT_TYPE, None)
    if OWN not in block.lower():
        return Header(end + 2, content_type, values, NO_LINES)
    given = values.get(GIVEN_ID)
    own = OwnLines(values.get(GROUP), values.get(DEDUP), given and unquote(given))
    return Header(end + 2, content_type, {n: v for n, v in values.items() if not is_own(n)}, own)


def dedup_of(raw: bytes) -> str | None:
    """The subscription among whose dead letters the deduplication id counts; None: among all."""
    found = _dedup_of.search(raw[: header(raw).end])
    return None if found is None else found[1].decode("utf-8", "replace")


def arrived_ms(raw: bytes) -> int | None:
    """When a message was put, in Unix milliseconds; None unless its id has an earlier time."""
    found = _arrived.search(raw[: header(raw).end])
    return None if found is None else int(found[1])
