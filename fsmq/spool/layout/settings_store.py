"""``config/<queue>.json``: a queue's settings, replaced atomically, read at each use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args

from ..errors import InvalidValue
from . import documents
from .documents import Version, version_of, version_to_keep
from .of_queues import OfQueues
from .settings import DEFAULTS, QueueSettings
from .transitions import CONFIG
from .tree import Tree

# Objects in the file that are no settings: a dialect keeps its own data about a queue there.
Member: TypeAlias = Literal["sqs"]
MEMBERS: tuple[Member, ...] = get_args(Member)
_MAX_SETTINGS_BYTES = 64 * 1024


class SettingsStore:
    """Reads and writes the settings of all queues. One lstat shows whether a file has changed."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: OfQueues[tuple[Version, QueueSettings]] = OfQueues(tree)
        self._documents: OfQueues[tuple[Version, dict[str, Any]]] = OfQueues(tree)

    def get(self, queue: str) -> QueueSettings:
        """The settings in force now; the defaults if there is no file.

        If the file does not parse, the last valid version stays in force, so that a typo cannot
        drop a queue's limits or its dead-letter queue. Raises OSError.
        """
        found = self._tree.look(self.path(queue))
        if found is None:
            self._known.pop(queue, None)
            return DEFAULTS
        known = self._known.get(queue)
        if known is not None and known[0] == version_of(found):
            return known[1]
        version = version_to_keep(found)
        settings = known[1] if known else DEFAULTS
        with suppress(ValueError):
            settings = QueueSettings.of(self.document(queue))
        self._known[queue] = (version, settings)
        return settings

    def member(self, queue: str, name: Member) -> Mapping[str, Any]:
        """The data that a dialect keeps in the file; ``{}`` if there is none. Raises OSError."""
        found = self._tree.look(self.path(queue))
        if found is None:
            self._documents.pop(queue, None)
            return {}
        known = self._documents.get(queue)
        if known is None or known[0] != version_of(found):
            version = version_to_keep(found)
            known = version, {}
            with suppress(ValueError):
                known = version, self.document(queue)
            self._documents[queue] = known
        member = known[1].get(name)
        return member if isinstance(member, dict) else {}

    def problem(self, queue: str) -> str | None:
        """Why a queue's file does not parse; None if it does."""
        try:
            QueueSettings.of(self.document(queue))
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def document(self, queue: str) -> dict[str, Any]:
        """All members of a queue's file, known or not; ``{}`` if there is no file.

        Raises ValueError, OSError.
        """
        self._tree.refresh(self._tree.folder(CONFIG))
        try:
            return documents.read(self._tree, self.path(queue), _MAX_SETTINGS_BYTES)
        except FileNotFoundError:
            return {}

    def write(self, queue: str, document: Mapping[str, Any]) -> None:
        """Replace a queue's file durably; the caller has its lock. Raises InvalidValue, OSError."""
        content = documents.encode(document)
        if len(content) > _MAX_SETTINGS_BYTES:
            raise InvalidValue("settings", f"are more than {_MAX_SETTINGS_BYTES} bytes in all")
        self._tree.replace(self.path(queue), content)

    def path(self, queue: str) -> str:
        """The file of a queue's settings, relative to the root."""
        return self._tree.folder(CONFIG, f"{queue}.json")
