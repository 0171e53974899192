"""Predicates on payloads: a function, or a regular expression to search for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain
from typing import TypeAlias

from fsmq.spool import InvalidValue
from fsmq.spool import Message as SpoolMessage

from .message import Form, Message

Predicate: TypeAlias = Callable[[str], object] | re.Pattern[str]


class Bounds:
    """How many messages a scan reads at most, and for how many seconds; None is no bound."""

    def __init__(self, limit: int | None = None, seconds: float | None = None) -> None:
        if limit is not None and limit < 1:
            raise InvalidValue("limit", "must be at least 1")
        if seconds is not None and not seconds > 0:
            raise InvalidValue("seconds", "must be more than 0")
        self._left = limit
        self._end = None if seconds is None else time.monotonic() + seconds

    def is_over(self) -> bool:
        """Whether a bound has been reached."""
        if self._left is not None and self._left <= 0:
            return True
        return self._end is not None and time.monotonic() >= self._end

    def count(self) -> None:
        """Note that a message was read."""
        if self._left is not None:
            self._left -= 1


def matches(predicate: Predicate, message: Message) -> bool:
    """Whether a message's payload matches; None never does."""
    if message.payload is None:
        return False
    if isinstance(predicate, re.Pattern):
        return predicate.search(message.payload) is not None
    if callable(predicate):
        return bool(predicate(message.payload))
    raise InvalidValue("predicate", "must be a function or a compiled regular expression")


def merged(
    scans: Sequence[tuple[str, Iterator[SpoolMessage]]],
    form: Form,
    bounds: Bounds,
    *,
    in_order: bool,
) -> Iterator[Message]:
    """The messages of several shards, each once: shard by shard, or merged in order."""
    pairs = [_of_shard(shard, scan, bounds) for shard, scan in scans]
    found = merge(*pairs, key=lambda pair: pair[1].id) if in_order else chain(*pairs)
    seen: set[str] = set()  # names: a message that changes its state during the scan comes twice
    for shard, one in found:
        message = None if one.id in seen else form.read(one, shard)
        seen.add(one.id)
        if message is not None:
            yield message


def _of_shard(
    shard: str, scan: Iterator[SpoolMessage], bounds: Bounds
) -> Iterator[tuple[str, SpoolMessage]]:
    for one in scan:
        bounds.count()
        yield shard, one
