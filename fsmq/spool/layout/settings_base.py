"""What all settings have in common, of queues, logs and channels: each is described where it is
declared, for docs, command line and HTTP too, and checked by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, field, fields, replace
from typing import Any, NamedTuple, Self, cast

from fsmq.kinds import Kind, Raw

from ..errors import InvalidValue
from .names import check_queue


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


def setting(default: Any, kind: Kind, means: str, null: str = "") -> Any:
    """A field of `Settings`."""
    return field(default=default, metadata={"setting": Setting(kind, means, null)})


class Settings:
    """Base of the settings of a resource: a frozen dataclass whose fields are all `setting`."""

    __slots__ = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Those that a document has, among members that this version may not know. Raises
        InvalidValue."""
        known = settings_of(cls)
        return cls().changed({name: v for name, v in document.items() if name in known})

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """These settings with some changed.

        Raises:
            InvalidValue: an unknown setting, a wrong type, or a value out of range.
        """
        known = settings_of(type(self))
        new = {name: checked(known, name, changes[name]) for name in sorted(changes)}
        made = replace(self, **new)  # type: ignore[type-var]
        made._check(new)
        return made

    def _check(self, changes: Collection[str]) -> None:
        """Raise InvalidValue if settings do not go together. changes: which are new."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]


def settings_of(kind: type[Settings]) -> dict[str, Setting]:
    """All settings of a kind, each with what it takes and does."""
    return {f.name: f.metadata["setting"] for f in fields(kind)}  # type: ignore[arg-type]


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
