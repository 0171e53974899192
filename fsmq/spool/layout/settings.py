"""A queue's settings: ``config/<queue>.json``, replaced atomically, read when acted on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from math import inf
from typing import Any, NamedTuple, cast

from fsmq.kinds import Choice, Flag, Kind, Number, Raw, Until, Whole

from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from . import documents
from .compression import METHODS, Method
from .names import check_queue
from .stamps import MAX_COUNT
from .transitions import CONFIG
from .tree import Tree

MAX_VISIBILITY_S = 7 * 86_400.0
MAX_DELAY_S = 366 * 86_400.0
MAX_PARTITIONS = 10_000
MAX_TTL_S = 100 * 366 * 86_400.0
_MAX_SETTINGS_BYTES = 64 * 1024
_METHODS = Choice(*METHODS)
# What came after the first programs, which take a file with such a member for one that cannot be
# understood: it is written where it is not the default.
_LATER = frozenset({"paused", "max_in_flight", "max_rate", "max_burst"})


def limits_name(queue: str) -> str:
    """The file of ``config/`` that those share who keep a queue's limits."""
    return f".{queue}.limits"


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

    @property
    def is_open(self) -> bool:
        """Whether nothing but a want of messages keeps a claim from one."""
        return self.paused is None and self.max_in_flight is None and self.max_rate is None

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
        if result.min_partitions > result.max_partitions:
            field = "min_partitions" if "min_partitions" in changes else "max_partitions"
            raise InvalidValue(
                field,
                f"min_partitions {result.min_partitions} is more than"
                f" max_partitions {result.max_partitions}",
            )
        return result

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


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


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_ino, found.st_size


SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(QueueSettings)}
DEFAULTS = QueueSettings()


class SettingsStore:
    """Reads and writes the settings of all queues. One lstat finds out if a file has changed."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, tuple[tuple[int, int, int], QueueSettings]] = {}
        self._members: dict[tuple[str, str], tuple[tuple[int, int, int], dict[str, Any]]] = {}

    def get(self, queue: str) -> QueueSettings:
        """The settings in force now; the defaults where there is no file.

        If the file does not parse, the last valid version stays in force, so that a typo cannot
        drop a queue's limits or its dead-letter queue. Raises OSError.
        """
        path = self.path(queue)
        found = self._tree.look(path)
        if found is None:
            self._known.pop(queue, None)
            return DEFAULTS
        version = _version(found)
        known = self._known.get(queue)
        if known is not None and known[0] == version:
            return known[1]
        settings = self._read(path, known[1] if known else DEFAULTS)
        self._known[queue] = (version, settings)
        return settings

    def member(self, queue: str, name: str) -> Mapping[str, Any]:
        """An object in the file that is no setting, but kept there by one dialect; ``{}`` for none.

        Raises OSError.
        """
        found = self._tree.look(self.path(queue))
        if found is None:
            self._members.pop((queue, name), None)
            return {}
        version, known = _version(found), self._members.get((queue, name))
        if known is None or known[0] != version:
            given = self.unknown(queue).get(name)
            known = version, given if isinstance(given, dict) else {}
            self._members[queue, name] = known
        return known[1]

    def last(self, queue: str) -> QueueSettings:
        """What ``get`` gave last, without a look at the file."""
        known = self._known.get(queue)
        return DEFAULTS if known is None else known[1]

    def problem(self, queue: str) -> str | None:
        """Why a queue's file does not parse; None if it does."""
        try:
            self._parse(self.path(queue))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def set(
        self, queue: str, settings: QueueSettings, members: Mapping[str, Any] | None = None
    ) -> None:
        """Replace the file durably: dot-file, fsync, rename, fsync of folder.

        The dead-letter queue is created if it is missing. members: those that are no settings,
        where they change, too; all others stay.

        Raises:
            InvalidValue, NoSuchQueue, Unavailable
        """
        if settings.dead_letter_queue == queue:
            raise InvalidValue("dead_letter_queue", "is the queue itself")
        with as_unavailable(f"cannot store the settings of {queue!r}"):
            if settings.dead_letter_queue is not None:
                self._tree.make_queue(settings.dead_letter_queue)
            self._write(queue, settings, {**self.unknown(queue), **(members or {})})
            if not self._tree.has_queue(queue):
                # It was deleted at the same time. A later queue of its name must not begin so.
                self.forget(queue)
                raise NoSuchQueue(queue)

    def prepare(
        self, queue: str, settings: QueueSettings, members: Mapping[str, Any] | None = None
    ) -> None:
        """Write the settings of a queue that is about to be created, durably. Raises OSError."""
        self._write(queue, settings, members or {})

    def unknown(self, queue: str) -> dict[str, Any]:
        """Members of a queue's file that a program of another version may know. Raises OSError."""
        try:
            given = documents.read(self._tree, self.path(queue), _MAX_SETTINGS_BYTES)
        except (FileNotFoundError, ValueError):
            return {}
        return {name: value for name, value in given.items() if name not in SETTINGS}

    def _write(self, queue: str, settings: QueueSettings, unknown: Mapping[str, Any]) -> None:
        known = {
            name: value
            for name, value in settings.as_dict().items()
            if name not in _LATER or value != getattr(DEFAULTS, name)
        }
        text = json.dumps({**known, **unknown}, indent=2) + "\n"
        if len(text) > _MAX_SETTINGS_BYTES:
            raise InvalidValue("settings", f"are more than {_MAX_SETTINGS_BYTES} bytes in all")
        self._tree.replace(self.path(queue), text.encode())

    def forget(self, queue: str) -> None:
        """Remove a queue's file. Raises OSError."""
        if self._tree.unlink(self.path(queue)):
            self._tree.unlink(self._tree.folder(CONFIG, limits_name(queue)))
            self._tree.sync_folder(self._tree.folder(CONFIG))

    def path(self, queue: str) -> str:
        """The file of a queue's settings, relative to the root."""
        return self._tree.folder(CONFIG, f"{queue}.json")

    def _read(self, path: str, otherwise: QueueSettings) -> QueueSettings:
        try:
            return self._parse(path)
        except FileNotFoundError:
            return DEFAULTS
        except ValueError:
            return otherwise

    def _parse(self, path: str) -> QueueSettings:
        given = documents.read(self._tree, path, _MAX_SETTINGS_BYTES)
        return DEFAULTS.changed({name: given[name] for name in given if name in SETTINGS})
