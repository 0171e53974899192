"""Logs over HTTP: the requests of each verb, and what the answers mean.

As in `queue_verbs.py`, verbs must survive a retry: each published message has an id, so that a
retry after a lost answer stores nothing and gets the first offset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from fsmq.spool.errors import (
    FsmqError,
    InvalidValue,
    NoSuchLog,
)
from fsmq.spool.layout.messages.message import pack_header
from fsmq.spool.layout.settings import check_number
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.log.log import Batch, LogEntry, LogStats
from fsmq.spool.log.log_places import From, check_place
from fsmq.spool.log.log_settings import ChannelSettings, LogSettings
from fsmq.spool.log.segment.record import entry
from fsmq.wire import MAX_WAIT_S, exact_moment, log_message, seconds

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Answer, Outcome, Verb
from .incoming import member, parsed
from .outgoing import described, in_list
from .queue_verbs import MAX_COUNT, Verbs

S = TypeVar("S", LogSettings, ChannelSettings)
# Larger or more attributes and keys are sent as JSON, because they are too much for headers.
_HEADER_BYTES, _HEADERS = 4096, 50


class LogVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs, log: str = "") -> None:
        self._verbs = verbs
        self.name = log
        self._path = f"/_logs/{log}"

    def logs(self) -> Verb[list[str]]:
        answer = yield from self._verbs.done("GET", "/_logs")
        return list(member(answer, "logs"))

    def create(self, settings: Mapping[str, Any]) -> Verb[bool]:
        """A retry after a lost answer finds the log, and returns False."""
        answer = yield from self._verbs.done("PUT", self._path, body=json_of(settings))
        return bool(member(answer, "created"))

    def delete(self) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", self._path)
        unless_gone(outcome, NoSuchLog)

    def stats(self) -> Verb[LogStats]:
        answer = yield from self._verbs.done("GET", self._path)
        found = parsed(answer)
        try:
            given = {name: found[name] for name in LogStats._fields}
            for name in ("oldest_at", "newest_at"):
                given[name] = None if given[name] is None else seconds(given[name])
            return LogStats(**{**given, "settings": settings_in(answer, LogSettings)})
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(answer.status, f"no log of fsmq: {error!r}") from error

    def configure(self, changes: Mapping[str, Any]) -> Verb[LogSettings]:
        answer = yield from self._verbs.done("PATCH", self._path, body=json_of(changes) or b"{}")
        return settings_in(answer, LogSettings)

    # -- publish ---------------------------------------------------------------------------------

    def publish(self, message: LogEntry) -> Verb[int]:
        own = _own_id(message)
        attributes, content_type = message.attributes, message.content_type
        if not _fits_headers(message):
            return (yield from self._publish([_as_json(message, own)])).start
        headers = {f"X-Message-Attribute-{n}": value for n, value in attributes.items()}
        headers["Content-Type"] = content_type or "application/octet-stream"
        if message.key is not None:
            headers["X-Message-Key"] = message.key
        body = message.body if isinstance(message.body, bytes) else _in_utf8(message.body)
        try:
            answer = yield from self._verbs.done(
                "POST", f"{self._path}/messages", {"id": own}, body, headers
            )
        except FsmqError as error:
            error.index = None
            raise
        return int(member(answer, "offset"))

    def publish_many(self, messages: Iterable[bytes | str | LogEntry]) -> Verb[range]:
        written: list[bytes] = []
        for index, message in enumerate(messages):
            try:
                given = message if isinstance(message, LogEntry) else LogEntry(message)
                written.append(_as_json(given, _own_id(given)))
            except InvalidValue as error:
                error.index = index
                raise
        if len(written) > MAX_COUNT:
            raise InvalidValue("messages", f"more than {MAX_COUNT}: HTTP takes no larger batch")
        if not written:
            end = (yield from self.stats()).next
            return range(end, end)
        return (yield from self._publish(written))

    def _publish(self, written: list[bytes]) -> Verb[range]:
        body = in_list(written)
        answer = yield from self._verbs.done("POST", f"{self._path}/batch", body=body)
        first = int(member(answer, "first"))
        return range(first, first + len(written))

    # -- read ------------------------------------------------------------------------------------

    def offset_of(self, place: From) -> Verb[int]:
        check_place(place)
        if isinstance(place, datetime):
            found = yield from self._page(exact_moment(place.timestamp()), 1, 0.0)
            if found is not None and found.messages:
                return found.messages[0].offset
            return found.next if found is not None else (yield from self.stats()).next
        if isinstance(place, str):
            stats = yield from self.stats()
            return stats.first if place == "first" else stats.next
        return place

    def page(self, start: int, count: int, max_bytes: int, wait: float = 0.0) -> Verb[Batch]:
        check_number("count", count, 1, 1_000_000)
        found = yield from self._page(str(start), min(count, MAX_COUNT), wait)
        if found is None:
            return Batch([], start, 0)
        size = 0
        for number, message in enumerate(found.messages[:-1], 1):
            size += len(message.body)
            if size >= max_bytes:
                return Batch(found.messages[:number], message.offset + 1, 0)
        return found

    def wait(self, offset: int, patience: float) -> Verb[bool]:
        end = time.monotonic() + patience
        while True:
            left = min(max(0.0, end - time.monotonic()), MAX_WAIT_S)
            if (yield from self._page(str(offset), 1, left)) is not None:
                return True
            if time.monotonic() >= end:
                return False

    def _page(self, place: str, count: int, wait: float) -> Verb[Batch | None]:
        """A page; None at the end of the log."""
        parameters = {"from": place, "count": count, "wait": wait or None}
        path = f"{self._path}/messages"
        answer = yield from self._verbs.done("GET", path, parameters, wait=wait)
        if answer.status == 204:
            return None
        found = parsed(answer)
        try:
            messages = [log_message(one) for one in found["messages"]]
            return Batch(messages, int(found["next"]), int(found["lost"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(answer.status, f"no messages of fsmq: {error!r}") from error


def unless_gone(outcome: Outcome, error_kind: type[FsmqError]) -> None:
    """Raise the error in an answer, unless an earlier try explains it."""
    if not 200 <= outcome.answer.status < 300:
        error = error_of(outcome.answer)
        if not (outcome.again and isinstance(error, error_kind)):
            raise error


def json_of(content: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(content)).encode() if content else b""


def place_of(place: From) -> str:
    check_place(place)
    return exact_moment(place.timestamp()) if isinstance(place, datetime) else str(place)


def _own_id(message: LogEntry) -> str:
    """The message's id, or a new one. Checks the message, except the text of its body.

    Raises InvalidValue.
    """
    body = message.body
    if not isinstance(body, bytes | str):
        raise InvalidValue("body", f"must be bytes or str, not {type(body).__name__}")
    own = message.id if message.id is not None else uuid7()
    entry(b"", message.key, own, message.content_type, message.attributes)
    return own


def _in_utf8(text: str) -> bytes:
    """Raises InvalidValue."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("body", f"cannot be in UTF-8: {error.reason}") from None


def _fits_headers(message: LogEntry) -> bool:
    block = pack_header(message.content_type, message.attributes)
    few = len(message.attributes) <= _HEADERS and len(block) <= _HEADER_BYTES
    key = message.key or ""
    return few and block.isascii() and key.isascii() and key.strip() == key


def _as_json(message: LogEntry, own: str) -> bytes:
    """The message with its id, as JSON. Raises InvalidValue if its body cannot be in UTF-8."""
    members = {
        "key": message.key,
        "id": own,
        "content_type": message.content_type,
        "attributes": dict(message.attributes) or None,
    }
    return _in_utf8(described(members, message.body))


def settings_in(answer: Answer, kind: type[S]) -> S:
    given = member(answer, "settings")
    # A newer server may have more settings.
    known = {f.name for f in fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in known})
