"""The settings of queues, logs and channels as fields of forms: their groups, their texts, what
people type, and the question before they are changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from fsmq.kinds import Choice, Flag, Number, Whole
from fsmq.spool import QueueSettings
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import InvalidValue
from fsmq.spool.resources import (
    CHANNEL_SETTINGS,
    LOG_SETTINGS,
    SETTINGS,
    ChannelSettings,
    LogSettings,
    Setting,
)
from fsmq.units import bytes_of, seconds, size, span
from fsmq.words import number

from .actions import Form, Question
from .page_request import PageRequest

_LABELS = {
    "alert_age": "Late after",
    "dedupe_window": "Deduplication window",
    "expires": "Expires after",
    "max_bytes": "Max size",
    "max_lag": "Max age of the lag",
    "max_message_bytes": "Max message size",
    "on_poison": "When used up",
    "retain_bytes": "Retain up to",
    "retry_backoff": "First retry after",
    "retry_factor": "Then longer by",
    "retry_most": "Longest wait",
    "retry_jitter": "Retry jitter",
    "segment_bytes": "Segment size",
}
# Where what the engine says does not follow the label, or is too long for it.
_NULLS = {"retry_backoff": "at once", "on_poison": "bury if order is none, else block"}
_WITH_UNIT = re.compile(r"([0-9][0-9 \u202f\u00a0]*(?:\.[0-9]*)?)\s*([a-z/ ]*)", re.IGNORECASE)


class SettingField(NamedTuple):
    """One setting.

    value: as it is typed; empty for null. default: in words. null: what an empty field means.
    choices: the words to choose from. is_switch: whether it is on or off.
    """

    name: str
    label: str
    value: str
    default: str
    is_changed: bool
    means: str
    null: str
    choices: Sequence[str]
    is_switch: bool


class Fields(NamedTuple):
    """The settings of one kind of resource. groups: those that can be changed."""

    settings: Mapping[str, Setting]
    groups: Mapping[str, Sequence[str]]

    def page(
        self,
        request: PageRequest,
        values: QueueSettings | LogSettings | ChannelSettings,
        right_on: str,
        place: str,
        command: str,
        left_out: Container[str] = (),
    ) -> dict[str, object]:
        """The values of the template ``settings.html``.

        right_on: on what changes need `admin`. place: where the form is sent. command: what shows
        the settings in a shell.
        """
        grouped = {
            group: [
                setting_field(self.settings, name, getattr(values, name))
                for name in names
                if name not in left_out
            ]
            for group, names in self.groups.items()
        }
        return {
            "groups": grouped,
            "changed": [one for group in grouped.values() for one in group if one.is_changed],
            "may_change": request.may("admin", right_on),
            "place": place,
            "command": command,
        }

    def changes(
        self,
        request: PageRequest,
        form: Form,
        old: QueueSettings | LogSettings | ChannelSettings,
    ) -> dict[str, Any]:
        """The settings that were changed in a form. Raises InvalidValue, Forbidden."""
        changes: dict[str, Any] = {}
        for name, setting in self.settings.items():
            before = form.text(f"was.{name}", shown(setting, getattr(old, name)))
            # A browser does not send a switch that is off.
            is_off = isinstance(setting.kind, Flag) and f"was.{name}" in form.fields
            given = form.fields.get(name, ["false" if is_off else None])[0]
            # Compared with the values on the page: others may have changed settings since.
            if given is not None and given.strip() != before:
                changes[name] = parsed(name, setting, given.strip())
        old.changed(changes)
        target = changes.get("dead_letter_queue")
        if isinstance(target, str):
            # Otherwise an admin of one queue could put messages into any other.
            request.identity.require("admin", check_queue(target, "dead_letter_queue"))
        return changes

    def question(
        self,
        called: str,
        old: QueueSettings | LogSettings | ChannelSettings,
        changes: Mapping[str, Any],
        command: str,
        curl: str,
    ) -> Question:
        """The question whether to change settings. Raises InvalidValue if nothing is changed."""
        if not changes:
            raise InvalidValue("settings", "nothing was changed")
        lines = []
        for name, value in changes.items():
            setting = self.settings[name]
            before = in_words(name, setting, getattr(old, name))
            lines.append(f"{name}: {before} → {in_words(name, setting, value)}")
        many = "1 setting" if len(changes) == 1 else f"{len(changes)} settings"
        return Question(
            f"Change {many} of {called}?", lines, "Change settings", command=command, curl=curl
        )


# Settings that never change, and `paused`, which has buttons, are in no group.
OF_QUEUE = Fields(
    SETTINGS,
    {
        "Delivery": ("visibility_timeout", "default_delay", "retention", "alert_age"),
        "Retries and dead letters": (
            "max_deliveries",
            "dead_letter_queue",
            "retry_backoff",
            "retry_factor",
            "retry_most",
            "retry_jitter",
        ),
        "Limits": (
            "max_in_flight",
            "max_in_flight_per_group",
            "max_rate",
            "max_burst",
            "max_depth",
            "max_message_bytes",
        ),
        "Order": ("fetch_order", "dedup_scope", "dedup_by_content"),
        "Storage and processes": (
            "compression",
            "min_partitions",
            "max_partitions",
            "max_partition_age",
        ),
    },
)
OF_FIFO = ("dedup_scope", "dedup_by_content")
OF_LOG = Fields(
    LOG_SETTINGS,
    {
        "Retention": ("retain_for", "retain_bytes", "max_bytes", "when_full"),
        "Publishing": ("max_message_bytes", "dedupe_window", "writers"),
        "Storage": ("segment_bytes",),
    },
)
OF_CHANNEL = Fields(
    CHANNEL_SETTINGS,
    {
        "Delivery": ("order", "visibility_timeout", "max_window"),
        "Deliveries that fail": ("max_deliveries", "on_poison", "dead_letter_queue"),
        "Falling behind": ("max_lag", "expires"),
    },
)


def setting_field(settings: Mapping[str, Setting], name: str, value: object) -> SettingField:
    """A setting with a value, as a field."""
    setting = settings[name]
    return SettingField(
        name,
        _LABELS.get(name, name.replace("_", " ").capitalize()),
        shown(setting, value),
        in_words(name, setting, setting.default),
        value != setting.default,
        setting.means.replace("`", ""),
        _NULLS.get(name, setting.null),
        setting.kind.words if isinstance(setting.kind, Choice) else (),
        isinstance(setting.kind, Flag),
    )


def shown(setting: Setting, value: object) -> str:
    """A value as people write it, so that `parsed` reads it back; empty for null."""
    unit = setting.kind.unit
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float() if unit == "seconds":
            return span(value)
        case int() if unit == "bytes":
            return bytes_of(value)
        case float():
            return f"{value:.12g}"
    return str(value)


def in_words(name: str, setting: Setting, value: object) -> str:
    """A value for reading, with its unit."""
    match value:
        case None:
            return _NULLS.get(name, setting.null)
        case bool():
            return "on" if value else "off"
        case int() if setting.kind.unit not in ("bytes", "seconds", ""):
            unit = setting.kind.unit
            return f"{number(value)} {unit.removesuffix('s') if value == 1 else unit}"
        case float() if setting.kind.unit not in ("seconds", "shares"):
            return f"{value:.12g} {setting.kind.unit}"
    return shown(setting, value)


def parsed(name: str, setting: Setting, text: str) -> Any:
    """The value of a text; None for null. Raises InvalidValue."""
    if not text and setting.null:
        return None
    kind = setting.kind
    try:
        if kind.unit == "seconds":
            return _within(kind, seconds(text))
        if kind.unit == "bytes":
            return _within(kind, size(text))
        if isinstance(kind, Number | Whole):
            return _within(kind, _plain(kind.unit, text))
    except ValueError:
        raise InvalidValue(name, f"must be {_range(kind)}") from None
    if kind.native == (str,):
        return text
    return {"true": True, "false": False}.get(text, text)


def arguments(changes: Mapping[str, Any]) -> list[str]:
    """Changes as arguments of a command."""
    return [f"{name}={_at_shell(value)}" for name, value in changes.items()]


def _at_shell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else json.dumps(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _plain(unit: str, text: str) -> float:
    """The number of ``1 000``, ``10 messages`` or ``10/s``. Raises ValueError."""
    found = _WITH_UNIT.fullmatch(text) if len(text) < 50 else None
    one = unit.removesuffix("s")
    if found is None or found[2].lower() not in ("", unit, one, "/s" * unit.endswith("second")):
        raise ValueError(text)
    bare = re.sub(r"[ \u202f\u00a0]", "", found[1])
    return float(bare) if "." in bare else int(bare)


def _within(kind: Any, value: float) -> float:
    """Raises ValueError for a number that the kind does not take."""
    if not kind.low <= value <= kind.high or (isinstance(kind, Whole) and value != int(value)):
        raise ValueError(value)
    return int(value) if isinstance(kind, Whole) else value


def _range(kind: Any) -> str:
    """What a setting takes, in the units that people use."""
    if not isinstance(kind, Number | Whole):
        expected: str = kind.expected
        return expected
    if kind.unit == "seconds":
        return f"{span(kind.low)} to {span(kind.high)}"
    if kind.unit == "bytes":
        return f"{bytes_of(int(kind.low))} to {bytes_of(int(kind.high))}"
    if kind.unit == "shares":
        return f"{kind.low:g} to {kind.high:g}"
    return f"{kind.low:g} to {number(kind.high)} {kind.unit}"
