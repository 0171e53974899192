"""A queue's settings: which there are, what each takes, and what they are by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from math import inf
from typing import Any, Literal, NamedTuple, cast, get_args

from fsmq.kinds import Choice, Flag, Kind, Number, Raw, Until, Whole

from ..errors import InvalidValue
from .messages.compression import METHODS, Method
from .names import check_queue
from .stamps import MAX_COUNT

FetchOrder = Literal["oldest", "fair"]
DedupScope = Literal["queue", "group"]
MAX_VISIBILITY_S = 7 * 86_400.0
LONGEST_WAIT_S = 86_400.0  # of a call; a request waits less
MAX_DELAY_S = 366 * 86_400.0
MAX_PARTITIONS = 10_000
MAX_TTL_S = 100 * 366 * 86_400.0
# A queue is late when its oldest message has waited for so many visibility timeouts.
_LATE_AFTER = 10
_METHODS = Choice(*METHODS)


class Setting(NamedTuple):
    """One setting: what values it takes, what it does, and what null means.

    null: empty where there has to be a value.
    """

    kind: Kind
    means: str
    null: str = ""

    @property
    def expected(self) -> str:
        return f"{self.kind.expected}, or null" if self.null else self.kind.expected


class QueueName:
    """The kind of a setting that names a queue."""

    native: tuple[type, ...] = (str,)
    unit = limits = ""
    metavar = "QUEUE"
    expected = "the name of a queue"

    def parse(self, raw: Raw) -> str:
        """The name. Raises InvalidValue."""
        return check_queue(str(raw))


def _about(kind: Kind, means: str, null: str = "") -> dict[str, Setting]:
    return {"setting": Setting(kind, means, null)}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. `SETTINGS` describes each, for docs, command line and HTTP too."""

    visibility_timeout: float = field(
        default=30.0,
        metadata=_about(Number(0, MAX_VISIBILITY_S, "seconds"), "how long a claim holds"),
    )
    max_deliveries: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, MAX_COUNT, "claims"),
            "after this number of claims a message goes to the dead-letter queue",
            null="never",
        ),
    )
    dead_letter_queue: str | None = field(
        default=None,
        metadata=_about(
            QueueName(),
            "where those messages go; created if missing; set both or neither",
            null="none",
        ),
    )
    retention: float | None = field(
        default=None,
        metadata=_about(
            Number(0, MAX_TTL_S, "seconds"),
            "older messages expire, whatever their ttl",
            null="never",
        ),
    )
    default_delay: float = field(
        default=0.0,
        metadata=_about(
            Number(0, MAX_DELAY_S, "seconds"), "the delay of a put that does not give one"
        ),
    )
    max_message_bytes: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, 2**40, "bytes"), "the largest body", null="the server's limit alone"
        ),
    )
    max_depth: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, 2**40, "messages"),
            "how many messages it may hold in all states",
            null="any number",
        ),
    )
    compression: Method | None = field(
        default=None,
        metadata=_about(
            _METHODS, "how bodies put from now on are kept on disk", null="as they are"
        ),
    )
    min_partitions: int = field(
        default=1,
        metadata=_about(
            Whole(1, MAX_PARTITIONS, "partitions"),
            "the least number of shares of the ids among the processes that claim",
        ),
    )
    max_partitions: int = field(
        default=10,
        metadata=_about(Whole(1, MAX_PARTITIONS, "partitions"), "the greatest number of shares"),
    )
    max_partition_age: float = field(
        default=432_000.0,
        metadata=_about(
            Number(0, MAX_TTL_S, "seconds"),
            "a process that claims nothing for this time (or 15 minutes) loses its share",
        ),
    )
    index: bool = field(
        default=False,
        metadata=_about(
            Flag(),
            "whether messages are found by the ids that producers give; fixed when it is created",
        ),
    )
    paused: bool | str | None = field(
        default=None,
        metadata=_about(
            Until(), "whether, or until when, nothing is claimed from it", null="it is not"
        ),
    )

    max_in_flight: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, 2**40, "messages"),
            "how many may be claimed at one time, by all processes of all hosts",
            null="any number",
        ),
    )
    max_rate: float | None = field(
        default=None,
        metadata=_about(
            Number(0.001, 1_000_000, "messages a second"),
            "how many may be claimed in a second, by all processes of all hosts",
            null="any number",
        ),
    )
    max_burst: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, 1_000_000, "messages"),
            "how many of `max_rate` may be claimed at once after a rest",
            null="those of one second",
        ),
    )
    retry_backoff: float | None = field(
        default=None,
        metadata=_about(
            Number(0.001, MAX_DELAY_S, "seconds"),
            "how long a message waits after its first claim that ended without an ack",
            null="it does not",
        ),
    )
    retry_factor: float = field(
        default=2.0,
        metadata=_about(Number(1, 100, "times"), "how much longer after each further claim"),
    )
    retry_most: float = field(
        default=3600.0,
        metadata=_about(Number(0.001, MAX_DELAY_S, "seconds"), "the longest of these waits"),
    )
    retry_jitter: float = field(
        default=0.2,
        metadata=_about(
            Number(0, 1, "shares"), "the share by which each may be shorter, taken at random"
        ),
    )

    fifo: bool = field(
        default=False,
        metadata=_about(
            Flag(),
            "whether the messages of each group are claimed in their order; fixed when it is"
            " created",
        ),
    )
    max_in_flight_per_group: int | None = field(
        default=None,
        metadata=_about(
            Whole(1, 10_000, "messages"),
            "how many messages of one group may be claimed at one time; of a queue with fifo, or"
            " whose fetch_order is fair",
            null="1 with fifo, else any number",
        ),
    )
    alert_age: float | None = field(
        default=None,
        metadata=_about(
            Number(0.001, MAX_TTL_S, "seconds"),
            "the age of its oldest waiting message at which the pages call it late",
            null="ten visibility timeouts",
        ),
    )
    fetch_order: FetchOrder = field(
        default="oldest",
        metadata=_about(
            Choice(*get_args(FetchOrder)),
            "whether the oldest message is claimed first, or groups are served in turn",
        ),
    )
    dedup_scope: DedupScope = field(
        default="queue",
        metadata=_about(
            Choice(*get_args(DedupScope)),
            "of a fifo queue: where a `dedup_id` counts, in the queue or within each group",
        ),
    )
    dedup_by_content: bool = field(
        default=False,
        metadata=_about(
            Flag(),
            "of a fifo queue: whether the SHA-256 of the body is the `dedup_id` if none is given",
        ),
    )

    @property
    def kind(self) -> tuple[bool, bool]:
        """What is fixed when a queue is created: whether it has an index, whether it is fifo."""
        return self.index, self.fifo

    @property
    def is_open(self) -> bool:
        """Whether nothing but a want of messages keeps a claim from one."""
        is_limited = self.max_in_flight is not None or self.max_rate is not None
        return self.paused is None and not is_limited and not self.in_groups

    @property
    def in_groups(self) -> bool:
        """Whether the groups of messages say which is claimed next."""
        return self.fifo or self.fetch_order == "fair"

    @property
    def burst(self) -> float:
        """How many messages of ``max_rate`` may be claimed at once."""
        return self.max_burst or max(1.0, self.max_rate or 0.0)

    @property
    def paused_until(self) -> float:
        """Until when nothing is claimed, in Unix seconds: 0 is no time, infinite is for ever."""
        if self.paused is None:
            return 0.0
        return inf if self.paused is True else datetime.fromisoformat(str(self.paused)).timestamp()

    @property
    def late_after(self) -> float:
        """The age in seconds at which its oldest waiting message is late."""
        return self.alert_age or _LATE_AFTER * self.visibility_timeout

    def pause_at(self, now: float) -> bool | str | None:
        """``paused``, or None where it does not hold at a time, in Unix seconds."""
        return self.paused if self.paused_until > now else None

    def changed(self, changes: Mapping[str, Any]) -> QueueSettings:
        """These settings with some changed.

        Raises:
            InvalidValue: an unknown setting, a wrong type, or a value out of range.
        """
        result = replace(
            self, **{name: checked(SETTINGS, name, changes[name]) for name in sorted(changes)}
        )
        if (result.max_deliveries is None) != (result.dead_letter_queue is None):
            raise InvalidValue(
                "max_deliveries", "needs a dead_letter_queue, and the other way round: set both"
            )
        _check_fifo(result)
        if result.min_partitions > result.max_partitions:
            field = "min_partitions" if "min_partitions" in changes else "max_partitions"
            raise InvalidValue(
                field,
                f"min_partitions {result.min_partitions} is more than"
                f" max_partitions {result.max_partitions}",
            )
        if result.retry_backoff is not None and result.retry_backoff > result.retry_most:
            field = "retry_most" if "retry_most" in changes else "retry_backoff"
            raise InvalidValue(
                field,
                f"retry_backoff {result.retry_backoff:g} is more than"
                f" retry_most {result.retry_most:g}",
            )
        return result

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _check_fifo(result: QueueSettings) -> None:
    if result.fifo and result.index:
        raise InvalidValue("fifo", "a queue with an index cannot be one")
    if result.max_in_flight_per_group is not None and not result.in_groups:
        raise InvalidValue("max_in_flight_per_group", "is for fifo queues and fetch_order fair")
    if result.fifo and result.fetch_order != "oldest":
        raise InvalidValue("fetch_order", "a fifo queue serves its groups in turn already")
    for name in ("dedup_scope", "dedup_by_content"):
        if not result.fifo and getattr(result, name) != getattr(DEFAULTS, name):
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


def checked(settings: Mapping[str, Setting], name: str, value: Any) -> Any:
    """A setting's value, of the type that the setting has. Raises InvalidValue."""
    setting = settings.get(name)
    if setting is None:
        raise InvalidValue(name, f"unknown setting; expected one of: {', '.join(settings)}")
    if value is None and setting.null:
        return None
    problem = f"must be {setting.expected}"
    native = setting.kind.native
    if not isinstance(value, native) or (isinstance(value, bool) and bool not in native):
        raise InvalidValue(name, problem)
    try:
        return setting.kind.parse(cast(Raw, value))
    except InvalidValue as error:
        raise InvalidValue(name, error.problem) from None
    except (ValueError, OverflowError):
        raise InvalidValue(name, problem) from None


SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(QueueSettings)}
DEFAULTS = QueueSettings()
