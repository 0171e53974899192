"""The settings of a log and of a channel: ``log.json`` and ``channel.json``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from fsmq.kinds import Choice, Flag, Number, Whole

from ..errors import InvalidValue
from ..layout.settings import MAX_TTL_S, MAX_VISIBILITY_S
from ..layout.settings_base import QueueName, Settings, setting, settings_of
from ..layout.stamps import MAX_COUNT

Order = Literal["none", "key", "strict"]
OnPoison = Literal["bury", "block", "skip"]
_MIB = 1024 * 1024
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class LogSettings(Settings):
    """The settings of a log."""

    retain_for: float = setting(
        7 * DAY_S, Number(0, MAX_TTL_S, "seconds"), "younger messages are kept"
    )
    retain_bytes: int | None = setting(
        None, Whole(0, 2**60, "bytes"), "the newest messages are kept, up to this size", null="none"
    )
    max_bytes: int | None = setting(
        None,
        Whole(1, 2**60, "bytes"),
        "the size from which channels that are behind keep no messages, see when_full",
        null="any size",
    )
    when_full: Literal["drop", "refuse"] = setting(
        "drop",
        Choice("drop", "refuse"),
        "what gives way when channels are too far behind: the oldest messages, or publishers",
    )
    segment_bytes: int = setting(
        16 * _MIB, Whole(4096, 2**40, "bytes"), "the size from which a new segment begins"
    )
    max_message_bytes: int | None = setting(
        None, Whole(1, 2**31, "bytes"), "the largest body", null="the server's limit alone"
    )
    dedupe_window: float = setting(
        300.0,
        Number(0, 7 * DAY_S, "seconds"),
        "how long a publish with the id of an earlier one stores nothing",
    )
    writers: Literal["host", "hosts"] = setting(
        "host", Choice("host", "hosts"), "whether the processes of one host publish, or of any host"
    )


@dataclass(frozen=True, slots=True)
class ChannelSettings(Settings):
    """The settings of a channel."""

    order: Order = setting(
        "key",
        Choice("none", "key", "strict"),
        "what an unfinished message holds back: nothing, its key, or the channel",
    )
    visibility_timeout: float = setting(
        30.0, Number(0, MAX_VISIBILITY_S, "seconds"), "how long a claim holds"
    )
    max_deliveries: int | None = setting(
        None,
        Whole(1, MAX_COUNT, "claims"),
        "after this number of claims on_poison says what becomes of a message",
        null="never",
    )
    dead_letter_queue: str | None = setting(
        None, QueueName(), "where buried messages go; created if missing", null="none"
    )
    on_poison: OnPoison | None = setting(
        None,
        Choice("bury", "block", "skip"),
        "what becomes of a message whose deliveries are used up",
        null="bury where order is none and there is a dead_letter_queue, else block",
    )
    paused: bool = setting(False, Flag(), "whether the channel hands out nothing")
    max_window: int = setting(
        1 << 20,
        Whole(1, 1 << 24, "messages"),
        "the greatest distance from the lowest unfinished message to the highest handed out",
    )
    max_lag: float | None = setting(
        7 * DAY_S,
        Number(0, MAX_TTL_S, "seconds"),
        "how long messages that the channel has not finished are kept for it",
        null="for ever",
    )
    expires: float | None = setting(
        None,
        Number(1, MAX_TTL_S, "seconds"),
        "a channel that nobody uses for this time is deleted, unless it is paused",
        null="never",
    )

    def _check(self, changes: Collection[str]) -> None:
        if self.on_poison == "bury" and self.dead_letter_queue is None:
            raise InvalidValue("on_poison", "bury needs a dead_letter_queue")

    @property
    def poison(self) -> OnPoison:
        """What happens to a message whose deliveries are used up."""
        if self.on_poison is not None:
            return self.on_poison
        return "bury" if self.order == "none" and self.dead_letter_queue else "block"


LOG_SETTINGS = settings_of(LogSettings)
CHANNEL_SETTINGS = settings_of(ChannelSettings)
