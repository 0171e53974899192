"""``log.json``: the identity of a log, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..layout import documents
from .log_settings import LogSettings


@dataclass(frozen=True, slots=True)
class Document:
    """The content of ``log.json``. members: all members of the file, known or not."""

    uuid: str
    settings: LogSettings
    host: str
    created_at: float
    members: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        about = {"uuid": self.uuid, "host": self.host, "created_at": self.created_at}
        members = {**self.members, **about, **asdict(self.settings)}
        return documents.encode(members)

    @classmethod
    def parse(cls, found: dict[str, Any]) -> Document:
        """Raises ValueError, InvalidValue."""
        settings = LogSettings.of(found)
        uuid, host, created = found.get("uuid"), found.get("host"), found.get("created_at")
        if not isinstance(uuid, str) or not isinstance(host, str | None):
            raise ValueError("uuid or host is not text")
        created_at = float(created) if isinstance(created, int | float) else 0.0
        return cls(uuid, settings, host or "", created_at, found)
