"""A queue's settings, with their ranges and defaults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Literal, get_args

from fsmq.kinds import Choice, Flag, Number, Until, Whole

from ..errors import InvalidValue
from .messages.compression import METHODS, Method
from .settings_base import QueueName, Settings, setting, settings_of
from .stamps import MAX_COUNT

FetchOrder = Literal["oldest", "fair"]
DedupScope = Literal["queue", "group"]
MAX_VISIBILITY_S = 7 * 86_400.0
LONGEST_WAIT_S = 86_400.0  # of a call; a request waits less
MAX_DELAY_S = 366 * 86_400.0
MAX_PARTITIONS = 10_000
MAX_TTL_S = 100 * 366 * 86_400.0
# A queue is late when its oldest message has waited for this many visibility timeouts.
_LATE_AFTER = 10
_METHODS = Choice(*METHODS)


@dataclass(frozen=True, slots=True)
class QueueSettings(Settings):
    """The settings of a queue. `SETTINGS` describes each, for docs, command line and HTTP too."""

    visibility_timeout: float = setting(
        30.0, Number(0, MAX_VISIBILITY_S, "seconds"), "how long a claim holds"
    )
    max_deliveries: int | None = setting(
        None,
        Whole(1, MAX_COUNT, "claims"),
        "after this number of claims a message goes to the dead-letter queue",
        null="never",
    )
    dead_letter_queue: str | None = setting(
        None,
        QueueName(),
        "where those messages go; created if missing; set both or neither",
        null="none",
    )
    retention: float | None = setting(
        None,
        Number(0, MAX_TTL_S, "seconds"),
        "older messages expire, whatever their ttl",
        null="never",
    )
    default_delay: float = setting(
        0.0, Number(0, MAX_DELAY_S, "seconds"), "the delay of a put that does not give one"
    )
    max_message_bytes: int | None = setting(
        None, Whole(1, 2**40, "bytes"), "the largest body", null="the server's limit alone"
    )
    max_depth: int | None = setting(
        None,
        Whole(1, 2**40, "messages"),
        "how many messages it may hold in all states",
        null="any number",
    )
    compression: Method | None = setting(
        None, _METHODS, "how bodies put from now on are kept on disk", null="as they are"
    )
    min_partitions: int = setting(
        1,
        Whole(1, MAX_PARTITIONS, "partitions"),
        "the least number of partitions of the ids",
    )
    max_partitions: int = setting(
        10, Whole(1, MAX_PARTITIONS, "partitions"), "the greatest number of partitions"
    )
    max_partition_age: float = setting(
        432_000.0,
        Number(0, MAX_TTL_S, "seconds"),
        "a process that claims nothing for this time (or 15 minutes) loses its share",
    )
    index: bool = setting(
        False,
        Flag(),
        "whether messages are found by the ids that producers give; fixed at its creation",
    )
    paused: bool | str | None = setting(
        None, Until(), "whether, or until when, nothing is claimed from it", null="not paused"
    )

    max_in_flight: int | None = setting(
        None,
        Whole(1, 2**40, "messages"),
        "how many may be claimed at one time, on all hosts together",
        null="any number",
    )
    max_rate: float | None = setting(
        None,
        Number(0.001, 1_000_000, "messages a second"),
        "how many may be claimed in a second, on all hosts together",
        null="any number",
    )
    max_burst: int | None = setting(
        None,
        Whole(1, 1_000_000, "messages"),
        "how many of `max_rate` may be claimed at once after a rest",
        null="those of one second",
    )
    retry_backoff: float | None = setting(
        None,
        Number(0.001, MAX_DELAY_S, "seconds"),
        "how long a message waits after its first claim that ended without an ack",
        null="no wait",
    )
    retry_factor: float = setting(
        2.0, Number(1, 100, "times"), "how much longer after each further claim"
    )
    retry_most: float = setting(
        3600.0, Number(0.001, MAX_DELAY_S, "seconds"), "the longest of these waits"
    )
    retry_jitter: float = setting(
        0.2, Number(0, 1, "shares"), "the share by which each may be shorter, taken at random"
    )

    fifo: bool = setting(
        False,
        Flag(),
        "whether the messages of a group are claimed in order; fixed at its creation",
    )
    max_in_flight_per_group: int | None = setting(
        None,
        Whole(1, 10_000, "messages"),
        "how many messages of a group may be claimed at one time, if the queue is fifo or its"
        " fetch_order is fair",
        null="1 with fifo, else any number",
    )
    alert_age: float | None = setting(
        None,
        Number(0.001, MAX_TTL_S, "seconds"),
        "the age of its oldest waiting message at which the dashboard calls it late",
        null="ten visibility timeouts",
    )
    fetch_order: FetchOrder = setting(
        "oldest",
        Choice(*get_args(FetchOrder)),
        "whether the oldest message is claimed first, or groups are served in turn",
    )
    dedup_scope: DedupScope = setting(
        "queue",
        Choice(*get_args(DedupScope)),
        "of a fifo queue: whether a `dedup_id` counts in the queue or in its group",
    )
    dedup_by_content: bool = setting(
        False,
        Flag(),
        "of a fifo queue: whether the SHA-256 of a body is its `dedup_id` if none is given",
    )

    @property
    def kind(self) -> tuple[bool, bool]:
        """What is fixed when a queue is created: whether it has an index, whether it is fifo."""
        return self.index, self.fifo

    @property
    def is_open(self) -> bool:
        """Whether a claim gets any message that is ready: no pause, limit or group applies."""
        is_limited = self.max_in_flight is not None or self.max_rate is not None
        return self.paused is None and not is_limited and not self.in_groups

    @property
    def in_groups(self) -> bool:
        """Whether groups determine which message is claimed next."""
        return self.fifo or self.fetch_order == "fair"

    @property
    def burst(self) -> float:
        """How many messages of ``max_rate`` may be claimed at once."""
        return self.max_burst or max(1.0, self.max_rate or 0.0)

    @property
    def paused_until(self) -> float:
        """Until when nothing is claimed, in Unix seconds: 0 if not paused, infinite for forever."""
        if self.paused is None:
            return 0.0
        return inf if self.paused is True else datetime.fromisoformat(str(self.paused)).timestamp()

    @property
    def late_after(self) -> float:
        """The age in seconds at which its oldest waiting message is late."""
        return self.alert_age or _LATE_AFTER * self.visibility_timeout

    def pause_at(self, now: float) -> bool | str | None:
        """``paused``, or None if it is over at this time, in Unix seconds."""
        return self.paused if self.paused_until > now else None

    def _check(self, changes: Collection[str]) -> None:
        """Raise InvalidValue if settings contradict each other."""
        if (self.max_deliveries is None) != (self.dead_letter_queue is None):
            raise InvalidValue(
                "max_deliveries", "needs a dead_letter_queue, and the other way round: set both"
            )
        self._check_fifo()
        for least, most in (("min_partitions", "max_partitions"), ("retry_backoff", "retry_most")):
            low, high = getattr(self, least), getattr(self, most)
            if low is not None and low > high:
                field = least if least in changes else most
                raise InvalidValue(field, f"{least} {low:g} is more than {most} {high:g}")

    def _check_fifo(self) -> None:
        if self.fifo and self.index:
            raise InvalidValue("fifo", "a queue with an index cannot be one")
        if self.max_in_flight_per_group is not None and not self.in_groups:
            raise InvalidValue("max_in_flight_per_group", "is for fifo queues and fetch_order fair")
        if self.fifo and self.fetch_order != "oldest":
            raise InvalidValue("fetch_order", "a fifo queue serves its groups in turn already")
        for name in ("dedup_scope", "dedup_by_content"):
            if not self.fifo and getattr(self, name) != getattr(DEFAULTS, name):
                raise InvalidValue(name, "is for queues with fifo")


def check_seconds(field: str, value: Any, limit: float) -> float:
    """A number of seconds from 0 to ``limit``, or InvalidValue."""
    # NaN fails the comparison, and with it this check.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= limit:
        raise InvalidValue(field, f"must be a number of seconds from 0 to {limit:.0f}")
    return float(value)


def check_number(field: str, value: Any, low: int, high: int) -> int:
    """An integer from ``low`` to ``high``, or InvalidValue."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidValue(field, f"must be a whole number from {low} to {high}")
    return value


SETTINGS = settings_of(QueueSettings)
DEFAULTS = QueueSettings()
