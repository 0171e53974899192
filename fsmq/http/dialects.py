"""The dialects that there are beside the native one: one line for each.

The rows have the shape of entry points, ``module:class``, and each is imported only where it is
switched on. They stand here and not in the metadata of the distribution since reading that takes
longer, and more memory, than all dialects: see docs/decisions/0028-what-belongs-in-the-core.md.
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
        switch: the field of its settings that switches it on, unless that is ``off``; empty:
            ``--dialects`` does.
    """

    name: str
    at: str
    extra: str = "server"
    settings_at: str = ""
    switch: str = ""

    def settings(self) -> tuple[Setting, ...]:
        """What the operator can say about it."""
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
