"""Converts bodies of requests to messages in their stored form, and to ids.

They are read part by part, and each message of a batch is converted before the next one is parsed:
parsed values take many times the memory of their text, so they are never in memory all at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fsmq.spool.prepare import LARGE_BYTES

from ..routing.json_reader import LongText, Reader
from .errors import EmptyBody, IllegalArgument, NotJson
from .stored import MAX_STORED_BYTES, careful_decoder, parse, quick_decoder, store

T = TypeVar("T")
# The most messages of a request: freeing a list of millions takes as long as making it.
MAX_MESSAGES = 100_000
_endless_number = re.compile(rb"[0-9]{309}")


class Batches(NamedTuple):
    """Messages by queue, None for ``null``; and the error of the first invalid message."""

    stored: dict[str, list[bytes] | None]
    fault: IllegalArgument | None


def parse_any(body: bytes) -> Any:
    """The first JSON value of a body. Raises as :func:`fsmq.http.emodb.stored.parse`."""
    return parse(body) if len(body) <= LARGE_BYTES else _read(body, Reader.value)


def store_any(value: Any) -> bytes:
    """A value of a large body as it is stored. Raises IllegalArgument."""
    if _is_too_long(value):
        raise IllegalArgument(f"a message has more than {MAX_STORED_BYTES} bytes")
    return store(value)


def elements(body: bytes) -> list[Any]:
    """The elements of an array. Raises EmptyBody, NotJson, IllegalArgument."""
    return _read(body, lambda reader: list(_array(reader, body)))


def stored_batch(body: bytes) -> list[bytes]:
    """The messages of an array, as they are stored. Raises as :func:`elements`."""
    stored = _storing(body)
    return _read(body, lambda reader: [stored(value) for value in _array(reader, body)])


def stored_batches(body: bytes) -> Batches:
    """The messages by queue of a JSON object. Raises EmptyBody, NotJson."""
    return _read(body, partial(_batches, body=body))


def _read(body: bytes, read: Callable[[Reader], T]) -> T:
    is_quick = len(body) <= LARGE_BYTES and not _endless_number.search(body)
    reader = Reader(body, quick_decoder if is_quick else careful_decoder)
    try:
        if not reader.first():
            reader.end()
            raise EmptyBody
        return read(reader)
    except RecursionError:
        raise NotJson("the brackets are nested too deep") from None
    except ValueError as error:
        raise NotJson(str(error)) from None


def _array(reader: Reader, body: bytes) -> Iterator[Any]:
    if reader.first() != "[":
        if parse_any(body) is None:
            raise EmptyBody
        raise NotJson("a JSON array is expected")
    for number, element in enumerate(reader.elements(), 1):
        _check_number(number)
        yield element


def _batches(reader: Reader, body: bytes) -> Batches:
    if reader.first() != "{":
        if parse_any(body) is None:
            raise EmptyBody
        raise NotJson("an object of queues and their messages is expected")
    store_one = _storing(body)
    batches = Batches({}, None)
    number = 0
    for queue in reader.members():
        if isinstance(queue, LongText):
            raise NotJson("the name of a queue is too long")
        messages: list[bytes] | None = None
        _check_number(number + len(batches.stored))
        if reader.first() == "[":
            messages = []
            for value in reader.elements():
                number += 1
                _check_number(number)
                try:
                    messages.append(store_one(value))
                except IllegalArgument as fault:
                    # Raised later: invalid JSON and missing rights on queues are reported first.
                    batches = batches._replace(fault=batches.fault or fault)
        elif reader.value() is not None:
            raise NotJson("a JSON array is expected")
        batches.stored[queue] = messages
    return batches


def _check_number(number: int) -> None:
    if number > MAX_MESSAGES:
        raise IllegalArgument(f"one request takes at most {MAX_MESSAGES}, and there are more")


def _storing(body: bytes) -> Callable[[Any], bytes]:
    return store if len(body) <= LARGE_BYTES else store_any


def _is_too_long(value: Any) -> bool:
    """Whether a value is too long, without converting it, which could take long."""
    left = MAX_STORED_BYTES
    waiting = [value]
    while waiting and left >= 0:
        one = waiting.pop()
        if isinstance(one, LongText):
            return True
        left -= 1
        if isinstance(one, str):
            left -= len(one)
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return left < 0
