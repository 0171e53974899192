"""``config/<queue>.json``: a queue's settings, replaced atomically, read when acted on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from . import documents
from .names import claims_name, limits_name
from .settings import DEFAULTS, SETTINGS, QueueSettings
from .transitions import CONFIG
from .tree import Tree

_MAX_SETTINGS_BYTES = 64 * 1024
# What came after the first programs, which take a file with such a member for one that cannot be
# understood: it is written where it is not the default.
_LATER = frozenset(
    (
        *("paused", "max_in_flight", "max_rate", "max_burst"),
        *("retry_backoff", "retry_factor", "retry_most", "retry_jitter"),
        *("fifo", "max_in_flight_per_group", "alert_age"),
        *("fetch_order", "dedup_scope", "dedup_by_content"),
    )
)


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_ino, found.st_size


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
            for name in (limits_name(queue), claims_name(queue)):
                self._tree.unlink(self._tree.folder(CONFIG, name))
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
