"""The settings of a log and of a channel: ``log.json`` and ``channel.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from fsmq.kinds import Choice, Flag, Kind, Number, Whole

from ..errors import InvalidValue
from ..layout.settings import MAX_TTL_S, MAX_VISIBILITY_S, QueueName, Setting, checked
from ..layout.stamps import MAX_COUNT

Order = Literal["none", "key", "strict"]
OnPoison = Literal["bury", "block", "skip"]
_MIB = 1024 * 1024
DAY_S = 86_400.0


def _setting(default: Any, kind: Kind, means: str, null: str = "") -> Any:
    return field(default=default, metadata={"setting": Setting(kind, means, null)})


class _Settings:
    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Those that a document has, among members that this version may not know. Raises
        InvalidValue."""
        known = settings_of(cls)
        return cls().changed({name: v for name, v in document.items() if name in known})

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """These settings with some changed.

        Raises:
            InvalidValue: an unknown setting, a wrong type, or a value out of range.
        """
        known = settings_of(type(self))
        new = {name: checked(known, name, changes[name]) for name in sorted(changes)}
        made = replace(self, **new)  # type: ignore[type-var]
        made._check()
        return made

    def _check(self) -> None:
        """Raise InvalidValue if settings do not go together."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True, slots=True)
class LogSettings(_Settings):
    """The settings of a log."""

    retain_for: float = _setting(
        7 * DAY_S, Number(0, MAX_TTL_S, "seconds"), "younger messages are kept"
    )
    retain_bytes: int | None = _setting(
        None, Whole(0, 2**60, "bytes"), "the newest messages are kept, up to this size", null="none"
    )
    max_bytes: int | None = _setting(
        None,
        Whole(1, 2**60, "bytes"),
        "the size from which channels that are behind keep no messages, see when_full",
        null="any size",
    )
    when_full: Literal["drop", "refuse"] = _setting(
        "drop",
        Choice("drop", "refuse"),
        "what gives way when channels are too far behind: the oldest messages, or publishers",
    )
    segment_bytes: int = _setting(
        16 * _MIB, Whole(4096, 2**40, "bytes"), "the size from which a new segment begins"
    )
    max_message_bytes: int | None = _setting(
        None, Whole(1, 2**31, "bytes"), "the largest body", null="the server's limit alone"
    )
    dedupe_window: float = _setting(
        300.0,
        Number(0, 7 * DAY_S, "seconds"),
        "how long a publish with the id of an earlier one stores nothing",
    )
    writers: Literal["host", "hosts"] = _setting(
        "host", Choice("host", "hosts"), "whether the processes of one host publish, or of any host"
    )


@dataclass(frozen=True, slots=True)
class ChannelSettings(_Settings):
    """The settings of a channel."""

    order: Order = _setting(  # noqa: RUF009
        "key",
        Choice("none", "key", "strict"),
        "what an unfinished message holds back: nothing, its key, or the channel",
    )
    visibility_timeout: float = _setting(
        30.0, Number(0, MAX_VISIBILITY_S, "seconds"), "how long a claim holds"
    )
    max_deliveries: int | None = _setting(
        None,
        Whole(1, MAX_COUNT, "claims"),
        "after this number of claims on_poison says what becomes of a message",
        null="never",
    )
    dead_letter_queue: str | None = _setting(
        None, QueueName(), "where buried messages go; created if missing", null="none"
    )
    on_poison: OnPoison | None = _setting(  # noqa: RUF009
        None,
        Choice("bury", "block", "skip"),
        "what becomes of a message whose deliveries are used up",
        null="bury where order is none and there is a dead_letter_queue, else block",
    )
    paused: bool = _setting(False, Flag(), "whether the channel hands out nothing")
    max_window: int = _setting(
        1 << 20,
        Whole(1, 1 << 24, "messages"),
        "the greatest distance from the lowest unfinished message to the highest handed out",
    )
    max_lag: float | None = _setting(
        7 * DAY_S,
        Number(0, MAX_TTL_S, "seconds"),
        "how long messages that the channel has not finished are kept for it",
        null="for ever",
    )
    expires: float | None = _setting(
        None,
        Number(1, MAX_TTL_S, "seconds"),
        "a channel that nobody uses for this time is deleted, unless it is paused",
        null="never",
    )

    def _check(self) -> None:
        if self.on_poison == "bury" and self.dead_letter_queue is None:
            raise InvalidValue("on_poison", "bury needs a dead_letter_queue")

    @property
    def poison(self) -> OnPoison:
        """What becomes of a message whose deliveries are used up."""
        if self.on_poison is not None:
            return self.on_poison
        return "bury" if self.order == "none" and self.dead_letter_queue else "block"


def settings_of(kind: type[_Settings]) -> dict[str, Setting]:
    """All settings of a kind, each with what it takes and does."""
    return {f.name: f.metadata["setting"] for f in fields(kind)}  # type: ignore[arg-type]


LOG_SETTINGS = settings_of(LogSettings)
CHANNEL_SETTINGS = settings_of(ChannelSettings)
