"""What the settings of queues, logs and channels have in common: each is described where it is
declared, for docs, command line and HTTP too, and checked by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, field, fields, replace
from typing import Any, NamedTuple, Self, cast

from fsmq.kinds import Kind, Raw
from fsmq.words import asked, meant

from ..errors import InvalidValue
from .names import check_queue


class Setting(NamedTuple):
    """One setting: its values, its meaning, and what null means.

    null: empty if null is not allowed.
    default: `REQUIRED` if there is none.
    """

    kind: Kind
    means: str
    null: str
    default: Any

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


class MessageBody:
    """The kind of a setting that is a body: bytes, or a text that is written in UTF-8."""

    native: tuple[type, ...] = (bytes, str)
    unit = "bytes"
    metavar = "BODY"

    def __init__(self, most: int) -> None:
        self.most = most
        self.limits = f"0 to {most}"
        self.expected = f"text, or bytes, of {self.limits} bytes"

    def parse(self, raw: Any) -> bytes:
        """The bytes. Raises ValueError."""
        body: bytes = raw.encode() if isinstance(raw, str) else raw
        if len(body) > self.most:
            raise ValueError(f"{len(body)} bytes")
        return body


class Texts:
    """The kind of a setting that is a mapping of names to texts."""

    native: tuple[type, ...] = (Mapping,)
    unit = limits = ""
    metavar = "NAME=TEXT"
    expected = "an object of texts"

    def parse(self, raw: Any) -> dict[str, str]:
        """The texts. Raises ValueError."""
        if not all(isinstance(text, str) for pair in raw.items() for text in pair):
            raise ValueError(raw)
        return dict(raw)


REQUIRED: Any = MISSING


def setting(default: Any, kind: Kind, means: str, null: str = "") -> Any:
    """A field of `Settings`. default: `REQUIRED` for one that has to be given."""
    described = {"setting": Setting(kind, means, null, default)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=described)
    return field(default=default, metadata=described)


class Settings:
    """Base of the settings of a resource: a frozen dataclass whose fields are all `setting`."""

    __slots__ = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The settings in a document; members that this version does not know are ignored. Raises
        InvalidValue."""
        known = settings_of(cls)
        return cls.made({name: v for name, v in document.items() if name in known})

    @classmethod
    def made(cls, values: Mapping[str, Any]) -> Self:
        """Settings with some values; the others have their defaults.

        Raises:
            InvalidValue: as for `changed`, or one without a default is missing.
        """
        known = settings_of(cls)
        for name, setting in known.items():
            if setting.default is REQUIRED and name not in values:
                raise InvalidValue(name, "is missing")
        made = cls(**{name: checked(known, name, values[name]) for name in sorted(values)})
        made._check(values)
        return made

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
        """Raise InvalidValue if settings contradict each other. changes: the new ones."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]


def settings_of(kind: type[Settings]) -> dict[str, Setting]:
    """All settings of a kind, with their descriptions."""
    return {f.name: f.metadata["setting"] for f in fields(kind)}  # type: ignore[arg-type]


# What other systems call a setting, where that is more like the name of another one.
_USUAL = {
    "max_messages": "max_depth",
    "max_length": "max_depth",
    "max_retries": "max_deliveries",
    "max_attempts": "max_deliveries",
}


def checked(settings: Mapping[str, Setting], name: str, value: Any) -> Any:
    """A setting's value, converted to its type. Raises InvalidValue."""
    setting = settings.get(name)
    if setting is None:
        usual = _USUAL.get(name, "")
        advice = asked([usual]) if usual in settings else meant(name, settings)
        advice = advice or f"expected one of: {', '.join(settings)}"
        raise InvalidValue(name[:100], f"unknown setting; {advice}")
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
