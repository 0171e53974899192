"""A queue's settings: ``config/<queue>.json``, replaced atomically, read when acted on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast

from . import documents
from .compression import METHODS, Method
from .errors import InvalidValue
from .names import check_queue
from .stamps import MAX_COUNT
from .transitions import CONFIG
from .tree import Tree

MAX_VISIBILITY_S = 7 * 86_400.0
MAX_DELAY_S = 366 * 86_400.0
MAX_PARTITIONS = 10_000
MAX_TTL_S = 100 * 366 * 86_400.0
_MAX_SETTINGS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be set for a queue.

    visibility_timeout: seconds that a claimed message stays hidden.
    max_deliveries: claims (1 to 99) after which a message goes to the dead letters; None: never.
    dead_letter_queue: the queue that takes those; set both or neither.
    retention: seconds after which a message of any age expires; None keeps for ever.
    default_delay: seconds that a put without a delay is hidden.
    max_message_bytes: largest body; None leaves it to the server.
    max_depth: most messages that the queue may hold in all states; None is no limit.
    compression: how bodies that are put from now on are kept on disk, "zlib" or "zstd"; None: as
        they are. Each message says for itself whether it is compressed.
    min_partitions, max_partitions: into how many parts the ids are divided among the processes that
        fetch from the queue: as many as there are processes, within these bounds.
    max_partition_age: seconds after which a process that fetches nothing forgets its part.
    """

    visibility_timeout: float = 30.0
    max_deliveries: int | None = None
    dead_letter_queue: str | None = None
    retention: float | None = None
    default_delay: float = 0.0
    max_message_bytes: int | None = None
    max_depth: int | None = None
    compression: Method | None = None
    min_partitions: int = 1
    max_partitions: int = 10
    max_partition_age: float = 432_000.0

    def changed(self, changes: Mapping[str, Any]) -> QueueSettings:
        """These settings with some changed.

        Raises:
            InvalidValue: an unknown setting, a wrong type, or a value out of range.
        """
        unknown = sorted(set(changes) - {f.name for f in fields(self)})
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise InvalidValue(unknown[0], f"is no setting of a queue; there are: {known}")
        checked = {name: _RULES[name](name, value) for name, value in changes.items()}
        result = replace(self, **checked)
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


def _optional_seconds(field: str, value: Any) -> float | None:
    return None if value is None else check_seconds(field, value, MAX_TTL_S)


def _optional_number(high: int) -> Any:
    return lambda field, value: None if value is None else check_number(field, value, 1, high)


def _optional_queue(field: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidValue(field, "must be the name of a queue")
    return check_queue(value, field)


def _optional_method(field: str, value: Any) -> str | None:
    if value is not None and value not in METHODS:
        raise InvalidValue(field, f"must be one of {', '.join(METHODS)}, or null")
    return cast("str | None", value)


_RULES: dict[str, Any] = {
    "visibility_timeout": lambda f, v: check_seconds(f, v, MAX_VISIBILITY_S),
    "max_deliveries": _optional_number(MAX_COUNT),
    "dead_letter_queue": _optional_queue,
    "retention": _optional_seconds,
    "default_delay": lambda f, v: check_seconds(f, v, MAX_DELAY_S),
    "max_message_bytes": _optional_number(2**40),
    "max_depth": _optional_number(2**40),
    "compression": _optional_method,
    "min_partitions": lambda f, v: check_number(f, v, 1, MAX_PARTITIONS),
    "max_partitions": lambda f, v: check_number(f, v, 1, MAX_PARTITIONS),
    "max_partition_age": lambda f, v: check_seconds(f, v, MAX_TTL_S),
}
DEFAULTS = QueueSettings()


class SettingsStore:
    """Reads and writes the settings of all queues. One lstat tells whether a file has changed."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[str, tuple[tuple[int, int, int], QueueSettings]] = {}

    def get(self, queue: str) -> QueueSettings:
        """The settings in force now; the defaults where there is no file.

        A file that cannot be understood counts as the last one that could: a slip of an editor
        must not take a queue's dead letters or limits away. Raises OSError.
        """
        path = self.path(queue)
        found = self._tree.look(path)
        if found is None:
            self._known.pop(queue, None)
            return DEFAULTS
        version = (found.st_mtime_ns, found.st_ino, found.st_size)
        known = self._known.get(queue)
        if known is not None and known[0] == version:
            return known[1]
        settings = self._read(path, known[1] if known else DEFAULTS)
        self._known[queue] = (version, settings)
        return settings

    def problem(self, queue: str) -> str | None:
        """Why a queue's file cannot be understood; None if it can."""
        try:
            self._parse(self.path(queue))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def set(self, queue: str, settings: QueueSettings) -> None:
        """Replace the file durably: dot-file, fsync, rename, fsync of folder. Raises OSError."""
        text = json.dumps(settings.as_dict(), indent=2) + "\n"
        self._tree.replace(self.path(queue), text.encode())

    def forget(self, queue: str) -> None:
        """Remove a queue's file. Raises OSError."""
        if self._tree.unlink(self.path(queue)):
            self._tree.sync_folder(self._tree.folder(CONFIG))

    def path(self, queue: str) -> str:
        """Where a queue's settings stand, relative to the root."""
        return self._tree.folder(CONFIG, f"{queue}.json")

    def _read(self, path: str, otherwise: QueueSettings) -> QueueSettings:
        try:
            return self._parse(path)
        except FileNotFoundError:
            return DEFAULTS
        except ValueError:
            return otherwise

    def _parse(self, path: str) -> QueueSettings:
        return DEFAULTS.changed(documents.read(self._tree, path, _MAX_SETTINGS_BYTES))
