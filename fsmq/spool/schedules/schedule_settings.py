"""The settings of a schedule: the file ``schedules/<name>.json``, which any editor can write."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from fsmq.kinds import Choice, Flag, Number, Text, Whole

from ..errors import InvalidValue
from ..layout.messages.message import NewMessage, pack_header
from ..layout.names import MAX_PRIORITY, check_queue
from ..layout.settings import MAX_DELAY_S, MAX_TTL_S
from ..layout.settings_base import (
    REQUIRED,
    MessageBody,
    QueueName,
    Settings,
    Texts,
    setting,
    settings_of,
)
from ..layout.uuids import derived_uuid7
from .crontab import MAX_LINE, Crontab

CatchUp: TypeAlias = Literal["none", "last", "all"]
# The largest body in a file; larger data belongs elsewhere, with a reference in the body.
MAX_BODY_BYTES = 256 * 1024
MAX_SCHEDULE_BYTES = 512 * 1024
MAX_NAME_BYTES = 100
_NS = 1_000_000_000


@dataclass(frozen=True)
class ScheduleSettings(Settings):
    """Which message is put when. `SETTINGS` describes each, for docs, command line and HTTP too."""

    cron: str = setting(
        REQUIRED,
        Text("CRON", rf"[\s\S]{{1,{MAX_LINE}}}", f"a crontab line of 1 to {MAX_LINE} characters"),
        "minute, hour, day of month, month, day of week; six fields begin with the second; or"
        " `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, `@every 5m`",
    )
    queue: str = setting(
        REQUIRED, QueueName(), "where its messages are put; it need not be there yet"
    )
    body: bytes = setting(
        b"",
        MessageBody(MAX_BODY_BYTES),
        "of its messages; in JSON `body_base64` has bytes that are no UTF-8",
    )
    timezone: str = setting(
        "UTC",
        Text("ZONE", r"[A-Za-z0-9_+/-]{1,100}", "a name such as Europe/Berlin, or UTC"),
        "of the line",
    )
    catch_up: CatchUp = setting(
        "last",
        Choice(*get_args(CatchUp)),
        "which of the times that were missed by more than a minute get their message",
    )
    paused: bool = setting(
        False, Flag(), "whether it puts nothing; the times missed by that are not made up for"
    )
    delay: float | None = setting(
        None,
        Number(0, MAX_DELAY_S, "seconds"),
        "how long a message is hidden, from its scheduled time",
        null="the queue's `default_delay`",
    )
    priority: int = setting(0, Whole(0, MAX_PRIORITY, ""), "lower numbers come first")
    ttl: float | None = setting(
        None,
        Number(0, MAX_TTL_S, "seconds"),
        "how long a message lives, from its scheduled time",
        null="never",
    )
    content_type: str | None = setting(
        None, Text("TYPE", r"[^\n]*", "one line of text"), "of its messages", null="none"
    )
    attributes: Mapping[str, str] = setting({}, Texts(), "of its messages")

    @cached_property
    def crontab(self) -> Crontab:
        """The moments. Raises InvalidValue."""
        return Crontab(self.cron, self.timezone)

    def message(self, name: str, moment: int) -> NewMessage:
        """The message of a moment. Its id is unique to it, and the same in all processes."""
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
        """An extra message, with a new id."""
        return replace(self.message("", 0), id=None)

    def as_json(self) -> dict[str, Any]:
        """The members of the file, without those that have their defaults."""
        found: dict[str, Any] = {"cron": self.cron, "timezone": self.timezone, "queue": self.queue}
        found |= body_members(self.body)
        found["catch_up"] = self.catch_up
        for name, one in SETTINGS.items():
            value = getattr(self, name)
            if name not in found and name != "body" and value != one.default:
                found[name] = value
        return found

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> ScheduleSettings:
        """The schedule in a JSON object; members that are null count as missing.

        Raises:
            InvalidValue
        """
        known = {*SETTINGS, "body_base64"}
        given = {n: value for n, value in found.items() if value is not None or n not in known}
        if (encoded := given.pop("body_base64", None)) is not None:
            if "body" in given:
                raise InvalidValue("body", "is given twice: as body and as body_base64")
            try:
                given["body"] = base64.b64decode(encoded, validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise InvalidValue("body_base64", "is not base64") from None
        return cls.made(given)

    def changed(self, changes: Mapping[str, Any]) -> ScheduleSettings:
        """This schedule with some settings changed; null restores a default. Raises
        InvalidValue."""
        kept = {name: getattr(self, name) for name in SETTINGS}
        if "body_base64" in changes:
            del kept["body"]
        return self.parse({**kept, **changes})

    def _check(self, changes: Collection[str]) -> None:
        pack_header(self.content_type, self.attributes)
        _ = self.crontab


SETTINGS = settings_of(ScheduleSettings)


def schedule_of(*values: Any) -> ScheduleSettings:
    """A schedule from its settings in order. Raises InvalidValue."""
    return ScheduleSettings.parse(dict(zip(SETTINGS, values, strict=True)))


def body_members(body: bytes) -> dict[str, str]:
    """The JSON member for a body."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The state of a schedule. Times are Unix seconds.

    settings: those in its file; None if that cannot be read.
    last: the moment of its newest message; None if there was none.
    next: the next moment; None while it is paused, or if there is none for 50 years.
    problem: why it puts nothing now, if so.
    """

    name: str
    settings: ScheduleSettings | None
    last: float | None = None
    next: float | None = None
    problem: str | None = None


def check_schedule(name: str) -> str:
    """Return a name if a schedule can have it: as for queues, but shorter. Raises InvalidValue."""
    if len(check_queue(name, "schedule")) > MAX_NAME_BYTES:
        raise InvalidValue("schedule", f"has more than {MAX_NAME_BYTES} characters")
    return name


def shown(moment: float) -> str:
    """A moment, for people."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")[:-6] + "Z"
