"""How a message became a dead letter: an extended attribute of its file.

It belongs to the file and not to a name, so it follows the message wherever fsmq or a shell user
moves it. No other file has to be opened, written or removed for it, and a message without a header
block can have it. It is only informative: if the filesystem keeps no such attributes, or the disk
is full, messages are buried without it.
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from ...errors import InvalidValue
from ..names import is_queue
from ..transitions import LOGS

# One line: "<Unix milliseconds> <deliveries> <queue>[ <reason>]". Short enough for ext4 to keep it
# in the inode, without an extra block.
ATTRIBUTE = "user.fsmq.dead"
MAX_REASON_BYTES = 1024
MAX_NOTED_BYTES = 256
# The reason of a message that was buried because its deliveries are used up.
USED_UP = "max_deliveries"
_unprintable = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_line = re.compile(r"([0-9]{1,16}) ([0-9]{1,4}) ([^ ]+)(?: (.*))?", re.DOTALL)
_HAS_ATTRIBUTES = hasattr(os, "setxattr")  # only Linux


class DeadLetter(NamedTuple):
    """How a message became a dead letter the last time.

    queue: from which it was buried; ``logs/<log>/<channel>`` for a channel of a log. reason:
    ``max_deliveries``, with that given to the last `release`, or that given to `bury`, if any.
    deliveries: how often it was claimed by then; None if the filesystem cannot keep the count. at:
    the time, in Unix seconds.
    """

    queue: str
    reason: str | None
    deliveries: int | None
    at: float

    @property
    def home(self) -> str | None:
        """The queue to which a redrive returns it; None for a log's channel."""
        return self.queue if is_queue(self.queue) else None


def of_channel(log: str, channel: str) -> str:
    """The ``queue`` of a dead letter of a log's channel."""
    return f"{LOGS}/{log}/{channel}"


def one_line(reason: str) -> str:
    """A reason as it is kept: on one line, with control characters replaced by spaces."""
    return _unprintable.sub(" ", reason).strip()


def check_reason(reason: str | None) -> str | None:
    """A reason as it is kept; None for none. Raises InvalidValue for one that is too long."""
    if reason is None:
        return None
    kept = one_line(reason)
    size = len(kept.encode())
    if size > MAX_REASON_BYTES:
        problem = f"may have at most {MAX_REASON_BYTES} bytes in UTF-8, not {size}"
        raise InvalidValue("reason", problem)
    return kept or None


def reason_of(error: BaseException) -> str | None:
    """An exception as a reason: its text, shortened to the limit."""
    return _shortened(one_line(_text_of(error))) or None


def failure_of(error: BaseException) -> str | None:
    """An exception that was not meant as a reason, as one: its type and its text."""
    return _shortened(one_line(f"{type(error).__name__}: {_text_of(error)}".rstrip(": ")))


def _text_of(error: BaseException) -> str:
    """The text of any exception; none if its own code for that fails."""
    try:
        return str(error)
    except Exception:
        return ""


def used_up(reason: str | None) -> str:
    """The reason of a message whose deliveries are used up. reason: of its last failure."""
    return USED_UP if reason is None else _shortened(f"{USED_UP}: {reason}")


def noted(reason: str | None) -> str | None:
    """A reason as the journal has it: short, because many lines can wait for its thread."""
    return None if reason is None else _shortened(reason, MAX_NOTED_BYTES)


def _shortened(text: str, most: int = MAX_REASON_BYTES) -> str:
    encoded = text.encode()
    if len(encoded) <= most:
        return text
    return encoded[: most - 3].decode(errors="ignore") + "…"


def pack(dead: DeadLetter) -> bytes:
    """The value of the attribute."""
    text = f"{round(dead.at * 1000)} {dead.deliveries or 0} {dead.queue}"
    return (f"{text} {dead.reason}" if dead.reason else text).encode()


def unpack(value: bytes) -> DeadLetter | None:
    """The dead letter in an attribute's value; None if the value is not ours."""
    found = _line.fullmatch(value.decode("utf-8", "replace"))
    if found is None or not _is_origin(found[3]):
        return None
    reason = one_line(found[4] or "") or None
    return DeadLetter(found[3], reason, int(found[2]) or None, int(found[1]) / 1000)


def _is_origin(name: str) -> bool:
    folder, *parts = name.split("/")
    if not parts:
        return is_queue(folder)
    return folder == LOGS and len(parts) == 2 and all(map(is_queue, parts))


def read(fd: int) -> DeadLetter | None:
    """How an open message became a dead letter; None if it is none."""
    value = read_raw(fd)
    return None if value is None else unpack(value)


def read_raw(fd: int) -> bytes | None:
    """The attribute of an open message; None if it has none."""
    if not _HAS_ATTRIBUTES:
        return None
    try:
        return os.getxattr(fd, ATTRIBUTE)
    except OSError:
        return None  # none, or the filesystem has no attributes


def write_raw(fd: int, value: bytes | None) -> bool:
    """Set the attribute of an open message, or remove it; False if it cannot be kept.

    Raises OSError if the disk fails.
    """
    if not _HAS_ATTRIBUTES:
        return False
    try:
        if value is None:
            os.removexattr(fd, ATTRIBUTE)
        else:
            os.setxattr(fd, ATTRIBUTE, value)
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        return False  # no attributes here, no room for them, or another user's file
    return True
