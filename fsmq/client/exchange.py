"""Requests and answers as plain data; nothing here does input or output.

A verb is a generator: it yields a :class:`Request` and is sent the :class:`Answer` (or
ConnectionFailed is thrown into it), or yields a :class:`Pause` and is resumed after it. The code
that drives it, with threads or on an event loop, knows nothing of fsmq.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
# A body that came too slowly, too many requests, and the answers of proxies to a server that
# restarts.
_TEMPORARY = {408, 429, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. timeout: seconds of silence after which it has failed."""

    method: str
    path: str
    timeout: float
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Answer(NamedTuple):
    """One answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _TEMPORARY

    @property
    def retry_after(self) -> float | None:
        """The seconds of a Retry-After, which can also be a date; None if there is none."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdecimal():
            return float(value[:9])
        until = _date(value)
        if until is None:
            return None
        # By the server's clock, if it sends the time: ours may be wrong.
        now = _date(self.headers.get("date", "")) or datetime.now(UTC)
        return max(0.0, (until - now).total_seconds())


class Pause(NamedTuple):
    """Wait before the next request."""

    seconds: float


class Outcome(NamedTuple):
    """A final answer. again: an earlier try may have been carried out already."""

    answer: Answer
    again: bool


Verb: TypeAlias = Generator[Request | Pause, Any, T]


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
