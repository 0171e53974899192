"""``fsmq config``: a queue's settings, shown and changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.cli.params import Completed, queue_argument, seconds
from fsmq.cli.place.place import at_option, open_place
from fsmq.kinds import Choice
from fsmq.spool.layout.settings import DEFAULTS, SETTINGS
from fsmq.spool.layout.settings_base import Setting

_SIZE = re.compile(r"([0-9]+) ?(|B|K|KiB|M|MiB|G|GiB)")
_FACTORS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3}


CHANGE = Completed("setting=value", lambda ctx: [f"{name}=" for name in DEFAULTS.as_dict()])


def _help() -> str:
    """The text of ``fsmq config --help``, with a line for each setting."""
    width = max(map(len, SETTINGS)) + 2
    lines = [
        f"{name:{width}}{setting.means}; default: {_default(name, setting)}"
        for name, setting in SETTINGS.items()
    ]
    return """Show the settings of a queue, or change some. Changes take effect at once.

    \b
    fsmq config jobs visibility_timeout=5m max_deliveries=5 dead_letter_queue=jobs.dead
    fsmq config jobs retention=default

    \b
    {settings}

    Spans of time take units (500ms, 30s, 10m, 2h, 7d), bytes too (64K, 1M). "default" restores
    the default.
    """.format(settings="\n    ".join(lines))


def _default(name: str, setting: Setting) -> str:
    value = getattr(DEFAULTS, name)
    return setting.null if value is None else shown(name, value)


def shown(name: str, value: Any, known: Mapping[str, Setting] = SETTINGS) -> str:
    """A setting's value for people, in a form that `parsed` understands."""
    if value is None:
        return "none"
    return f"{value:g}s" if known[name].kind.unit == "seconds" else str(value)


@click.command("config", help=_help())
@queue_argument
@click.argument("changes", nargs=-1, type=CHANGE, metavar="[SETTING=VALUE]...")
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


def parsed(
    changes: Sequence[str],
    known: Mapping[str, Setting] = SETTINGS,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Settings by name, of ``NAME=VALUE``. Raises UsageError.

    known, defaults: of a log or a channel; without them of a queue.
    """
    result: dict[str, Any] = {}
    for change in changes:
        name, equals, raw = change.partition("=")
        if not equals:
            raise click.UsageError(f"Give SETTING=VALUE, not {change!r}.")
        if name in result:
            raise click.UsageError(f"{name} is given twice.")
        result[name] = _value(name, raw, known, defaults or DEFAULTS.as_dict())
    return result


def _value(name: str, raw: str, known: Mapping[str, Setting], defaults: Mapping[str, Any]) -> Any:
    if raw == "default":
        return defaults.get(name)
    kind = known[name].kind if name in known else None
    if raw == "none" and not (isinstance(kind, Choice) and raw in kind.words):
        return None
    if kind is not None and bool in kind.native:
        return {"true": True, "false": False}.get(raw, raw)
    unit = kind.unit if kind is not None else ""
    if not unit:
        return raw
    try:
        if unit == "seconds":
            return seconds(raw)
        if unit == "bytes" and (match := _SIZE.fullmatch(raw)):
            return int(match[1]) * 1024 ** _FACTORS[match[2][:1]]
        return int(raw)
    except ValueError:
        return raw  # the spool or the server names the setting and its limits
