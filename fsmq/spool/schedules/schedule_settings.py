"""What a schedule is: the file ``schedules/<name>.json``, which any editor may have written."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from ..errors import InvalidValue
from ..layout.messages.message import NewMessage, pack_header
from ..layout.names import MAX_PRIORITY, check_queue
from ..layout.settings import MAX_DELAY_S, MAX_TTL_S, check_number, check_seconds
from ..layout.uuids import derived_uuid7
from .crontab import Crontab

CatchUp: TypeAlias = Literal["none", "last", "all"]
# A file may hold a body of this size; a large one belongs elsewhere, and its place into the body.
MAX_BODY_BYTES = 256 * 1024
MAX_SCHEDULE_BYTES = 512 * 1024
MAX_NAME_BYTES = 100
_NS = 1_000_000_000


@dataclass(frozen=True)
class ScheduleSettings:
    """When which message is put.

    cron: a crontab line: minute, hour, day of month, month, day of week; with a sixth field in
        front, the second; or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``, ``@yearly``, or
        ``@every`` with a time, such as ``@every 5m``.
    queue: where it is put; it need not exist yet.
    body: its bytes; a ``str`` is written in UTF-8.
    timezone: in which the line is meant, such as ``Europe/Berlin``.
    catch_up: what becomes of moments that were missed by more than a minute, since no mover ran or
        the queue took nothing: ``none`` of them gets its message, or the ``last``, or ``all``.
    paused: whether it puts nothing; moments that pass meanwhile are not caught up with.
    delay, priority, ttl, content_type, attributes: as of a put; delay and ttl count from the moment
        that the line names.
    """

    cron: str
    queue: str
    body: bytes = b""
    timezone: str = "UTC"
    catch_up: CatchUp = "last"
    paused: bool = False
    delay: float | None = None
    priority: int = 0
    ttl: float | None = None
    content_type: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def crontab(self) -> Crontab:
        """The moments. Raises InvalidValue."""
        return Crontab(self.cron, self.timezone)

    def message(self, name: str, moment: int) -> NewMessage:
        """The message of a moment. Its id is the same for all who make it, and no other's."""
        message_id = derived_uuid7(moment * _NS, f"fsmq schedule {name} {moment}".encode())
        return NewMessage(
            self.body,
            self.delay,
            self.priority,
            self.ttl,
            message_id,
            self.content_type,
            self.attributes,
        )

    def message_now(self) -> NewMessage:
        """The message, beside those of the moments."""
        return replace(self.message("", 0), id=None)

    def as_json(self) -> dict[str, Any]:
        """The members of the file; those that have their defaults are left out."""
        found: dict[str, Any] = {"cron": self.cron, "timezone": self.timezone, "queue": self.queue}
        try:
            found["body"] = self.body.decode()
        except UnicodeDecodeError:
            found["body_base64"] = base64.b64encode(self.body).decode()
        found["catch_up"] = self.catch_up
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in found and one.name != "body" and value not in (None, False, 0, {}):
                found[one.name] = dict(value) if isinstance(value, Mapping) else value
        return found

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> ScheduleSettings:
        """The schedule of a JSON object; members that are null count as missing.

        Raises:
            InvalidValue
        """
        given = {name: value for name, value in found.items() if value is not None}
        for name in given:
            if name not in MEMBERS:
                raise InvalidValue(
                    name[:100], f"unknown member; expected one of: {', '.join(MEMBERS)}"
                )
        for name in ("cron", "queue"):
            if name not in given:
                raise InvalidValue(name, "is missing")
        body = _body(given.pop("body", None), given.pop("body_base64", None))
        return cls(**given, body=body).checked()

    def checked(self) -> ScheduleSettings:
        """This schedule, with all of its values looked at. Raises InvalidValue."""
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise InvalidValue(name, "must be text")
        if not isinstance(self.paused, bool):
            raise InvalidValue("paused", "must be true or false")
        if self.catch_up not in get_args(CatchUp):
            choice = ", ".join(get_args(CatchUp))
            raise InvalidValue("catch_up", f"unknown; expected one of: {choice}")
        check_queue(self.queue)
        check_number("priority", self.priority, 0, MAX_PRIORITY)
        if self.delay is not None:
            check_seconds("delay", self.delay, MAX_DELAY_S)
        if self.ttl is not None:
            check_seconds("ttl", self.ttl, MAX_TTL_S)
        if len(self.body) > MAX_BODY_BYTES:
            raise InvalidValue("body", f"has more than {MAX_BODY_BYTES} bytes")
        if not isinstance(self.content_type, str | None):
            raise InvalidValue("content_type", "must be text")
        _check_attributes(self.attributes)
        pack_header(self.content_type, self.attributes)
        _ = self.crontab
        return self


MEMBERS = (*(one.name for one in fields(ScheduleSettings)), "body_base64")
_TEXTS = ("cron", "queue", "timezone", "catch_up")


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as it stands. Times are Unix seconds.

    settings: what its file says; None if that cannot be read.
    last: the moment of its newest message; None if there was none.
    next: the next moment; None while it is paused, and where there is none for 50 years.
    problem: why it puts nothing now; None if it does.
    """

    name: str
    settings: ScheduleSettings | None
    last: float | None = None
    next: float | None = None
    problem: str | None = None


def check_schedule(name: str) -> str:
    """Return ``name`` if it may name a schedule: as a queue, but shorter. Raises InvalidValue."""
    if len(check_queue(name, "schedule")) > MAX_NAME_BYTES:
        raise InvalidValue("schedule", f"has more than {MAX_NAME_BYTES} characters")
    return name


def shown(moment: float) -> str:
    """A moment, for people."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")[:-6] + "Z"


def _body(text: Any, encoded: Any) -> bytes:
    if text is not None and encoded is not None:
        raise InvalidValue("body", "is given twice: as body and as body_base64")
    if encoded is None:
        if not isinstance(text, str | None):
            raise InvalidValue("body", "must be text; bytes go into body_base64")
        try:
            return (text or "").encode()
        except UnicodeEncodeError:
            raise InvalidValue("body", "contains an unpaired surrogate") from None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidValue("body_base64", "is not base64") from None


def _check_attributes(found: Any) -> None:
    if not isinstance(found, Mapping) or not all(isinstance(v, str) for v in found.values()):
        raise InvalidValue("attributes", "must be an object of texts")
