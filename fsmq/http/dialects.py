"""The table of the dialects besides the native one.

Each is named like an entry point, ``module:class``, and is imported only if it is switched on. They
are not entry points in the metadata of the distribution because reading that takes more time and
memory than all dialects: see docs/decisions/0028-what-belongs-in-the-core.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsmq.kinds import Setting
from fsmq.parts import require

if TYPE_CHECKING:
    from .dialect import Dialect

OFF = "off"


@dataclass(frozen=True, slots=True)
class Registered:
    """A dialect that can be switched on.

    Attributes:
        name: as ``--dialects`` takes it.
        at: its class, a :class:`~fsmq.http.dialect.Dialect`, as ``module:class``.
        extra: the extra that installs what it needs.
        settings_at: its own settings, a tuple of `Setting`, as ``module:name``; empty: it has none.
        switch: the field of the setting that switches it on unless it is ``off``; empty:
            ``--dialects`` switches it on.
    """

    name: str
    at: str
    extra: str = "server"
    settings_at: str = ""
    switch: str = ""

    def settings(self) -> tuple[Setting, ...]:
        """Its settings for operators."""
        found: tuple[Setting, ...] = _loaded(self.settings_at) if self.settings_at else ()
        return found

    def load(self) -> type[Dialect]:
        """Import it. Raises MissingExtra."""
        require(f"the dialect {self.name}", self.extra)
        found: type[Dialect] = _loaded(self.at)
        return found


DIALECTS: Mapping[str, Registered] = {
    one.name: one
    for one in (
        Registered(
            "emodb",
            "fsmq.http.emodb.dialect:EmoDb",
            settings_at="fsmq.http.emodb.settings:OF_EMODB",
        ),
        Registered("dynamiq", "fsmq.http.dynamiq.dialect:Dynamiq"),
        Registered(
            "sqs", "fsmq.http.sqs.dialect:Sqs", "sqs", settings_at="fsmq.http.sqs.settings:OF_SQS"
        ),
        Registered(
            "ui", "fsmq.http.ui.dialect:Ui", settings_at="fsmq.http.ui.settings:OF_UI", switch="ui"
        ),
    )
}

CHOICES: tuple[str, ...] = tuple(one.name for one in DIALECTS.values() if not one.switch)
"""What ``--dialects`` takes."""


def switched_on(chosen: tuple[str, ...], settings: Mapping[str, Any]) -> list[type[Dialect]]:
    """The dialects to serve, imported, in the order of the table. Raises MissingExtra.

    settings: the values of all settings of dialects, by field.
    """
    return [
        one.load()
        for one in DIALECTS.values()
        if (settings[one.switch] != OFF if one.switch else one.name in chosen)
    ]


def _loaded(at: str) -> Any:
    module, _, name = at.partition(":")
    return getattr(import_module(module), name)
