"""``fsmq queue config``: a queue's settings; how settings of queues and logs are typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.cli.params import SPAN, Completed, queue_argument
from fsmq.cli.place.place import at_option, open_place
from fsmq.kinds import Choice
from fsmq.spool.layout.settings import SETTINGS
from fsmq.spool.layout.settings_base import Setting
from fsmq.units import in_units

_SIZE = re.compile(r"([0-9]+) ?(|B|K|KiB|M|MiB|G|GiB)")
_FACTORS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3}

F = TypeVar("F", bound=Callable[..., Any])


def changes_argument(known: Mapping[str, Setting]) -> Callable[[F], F]:
    """Give a verb the argument ``changes``: settings, of which a shell completes the names."""
    kind = Completed("setting=value", lambda ctx: [f"{name}=" for name in known])
    return click.argument("changes", nargs=-1, type=kind, metavar="[SETTING=VALUE]...")


def settings_help(summary: str, known: Mapping[str, Setting], *examples: str) -> str:
    """The text of ``--help`` for a verb that changes settings, with a line for each."""
    width = max(map(len, known)) + 2
    lines = [
        summary,
        "\n\b",
        *(
            f"{name:{width}}{setting.means}; default: {_default(name, setting, known)}"
            for name, setting in known.items()
        ),
        "\nSpans of time take units (500ms, 30s, 10m, 2h, 7d), bytes too (64K, 1M).",
        '"default" restores the default.',
        "\n\b\nExamples:",
        *(f"  {example}" for example in examples),
    ]
    return "\n".join(lines)


def _default(name: str, setting: Setting, known: Mapping[str, Setting]) -> str:
    return setting.null if setting.default is None else shown(name, setting.default, known)


def shown(name: str, value: Any, known: Mapping[str, Setting] = SETTINGS) -> str:
    """A setting's value for people, in a form that `parsed` understands."""
    if value is None:
        return "none"
    return in_units(value) if known[name].kind.unit == "seconds" else str(value)


@click.command(
    "config",
    help=settings_help(
        "Show the settings of a queue, or change some. Changes take effect at once.",
        SETTINGS,
        "fsmq queue config jobs",
        "fsmq queue config jobs visibility_timeout=5m dead_letter_queue=jobs.dead",
        "fsmq queue config jobs retention=default",
    ),
)
@queue_argument
@changes_argument(SETTINGS)
@at_option
@json_option
def config(queue: str, changes: Sequence[str], at: str | None, as_json: bool) -> None:
    """Show the settings of a queue, or change some."""
    wanted = parsed(changes)
    with open_place(at) as place:
        opened = place.queue(queue)
        settings = opened.configure(**wanted) if wanted else opened.settings()
    if as_json:
        output.document({"queue": queue, "settings": settings.as_dict()})
    elif not wanted:
        output.facts([(name, shown(name, value)) for name, value in settings.as_dict().items()])


def parsed(changes: Sequence[str], known: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """Settings by name, from arguments ``NAME=VALUE``. Raises UsageError.

    known: the settings of a queue, a log or a channel.
    """
    result: dict[str, Any] = {}
    for change in changes:
        name, equals, raw = change.partition("=")
        if not equals:
            raise click.UsageError(f"Give SETTING=VALUE, not {change!r}.")
        if name in result:
            raise click.UsageError(f"{name} is given twice.")
        try:
            result[name] = _value(raw, known.get(name))
        except click.BadParameter as error:
            raise click.UsageError(f"{name}: {error.message}") from None
    return result


def _value(raw: str, setting: Setting | None) -> Any:
    kind = None if setting is None else setting.kind
    if raw == "default":
        return None if setting is None else setting.default
    if raw == "none" and not (isinstance(kind, Choice) and raw in kind.words):
        return None
    if kind is not None and bool in kind.native:
        return {"true": True, "false": False}.get(raw, raw)
    unit = kind.unit if kind is not None else ""
    if not unit:
        return raw
    try:
        if unit == "seconds":
            return SPAN.convert(raw, None, None)
        if unit == "bytes" and (match := _SIZE.fullmatch(raw)):
            return int(match[1]) * 1024 ** _FACTORS[match[2][:1]]
        return int(raw)
    except ValueError:
        return raw  # the error of the spool or the server names the setting and its limits
