"""``fsmq settings``: every setting of the programs, as a table or as a file to start from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from itertools import groupby

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.daemons.settings.settings import COMMANDS, SETTINGS, TABLES
from fsmq.kinds import Flag, Kind, Number, Setting, Switch, Whole, WholeOr

_WIDTH = 96


@click.command("settings")
@click.option("--toml", "as_toml", is_flag=True, help="Print a complete file, all of it commented.")
@json_option
def settings(as_toml: bool, as_json: bool) -> None:
    """Show every setting of the programs: what it takes, its default, what it does.

    \b
    Examples:
      fsmq settings
      fsmq settings --toml > fsmq.toml
    """
    shown = [setting for setting in SETTINGS if setting.in_file]
    if as_toml:
        click.echo("\n".join(_file(shown)))
    elif as_json:
        output.document({"settings": [_described(setting) for setting in shown]})
    else:
        click.echo("\n".join(_list(shown)))


def _list(shown: list[Setting]) -> Iterator[str]:
    for setting in shown:
        programs = ", ".join(COMMANDS[program] for program in setting.programs)
        yield f"{setting.name} ({programs})"
        yield f"    {setting.kind.expected}; default: {default_of(setting) or 'none'}"
        yield from textwrap.wrap(
            setting.help, _WIDTH, initial_indent="    ", subsequent_indent="    "
        )


def _described(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "programs": list(setting.programs),
        "expected": setting.kind.expected,
        "default": default_of(setting),
        "help": setting.help,
        "variable": setting.variable,
    }


def default_of(setting: Setting) -> str:
    """A default as TOML writes it, or in words; empty where there is none."""
    default = setting.default
    if setting.default_text:
        return setting.default_text
    if default is None or callable(default):
        return ""
    if isinstance(setting.kind, Switch):
        return "true" if default == setting.kind.words[1] else "false"
    if isinstance(default, tuple):
        return json.dumps(",".join(map(str, default)) or "none")
    if isinstance(default, int | float):
        return f"{default:.12g}"
    return json.dumps(str(default))


def _accepted(kind: Kind) -> str:
    """What a kind accepts, as short as a comment can say it."""
    if isinstance(kind, Switch):
        return Flag.expected
    if isinstance(kind, Whole | Number) and not isinstance(kind, WholeOr):
        return f"{kind.limits} {kind.unit}" if kind.unit in ("bytes", "seconds") else kind.limits
    return kind.expected


def _tables(setting: Setting) -> tuple[str, ...]:
    """The tables of the file that the setting belongs to; none if it is for all programs."""
    tables = dict.fromkeys(TABLES[program] for program in setting.programs)
    return () if set(tables) == set(TABLES.values()) else tuple(tables)


def _file(shown: list[Setting]) -> Iterator[str]:
    yield "# Settings of fsmq, with their defaults. Remove the first `# ` of a line to change it."
    yield "# Give the file to a program with --config FILE, or name it in FSMQ_CONFIG."
    yield '# Times are seconds, or text with a unit, such as "500ms", "5m", "2h" or "7d".'
    yield from _groups([setting for setting in shown if not _tables(setting)])
    for table in dict.fromkeys(TABLES.values()):
        yield ""
        yield f"[{table}]"
        yield from _groups([setting for setting in shown if table in _tables(setting)])


def _groups(shown: list[Setting]) -> Iterator[str]:
    for group, members in groupby(shown, key=lambda setting: setting.group):
        yield ""
        yield f"# ---- {group} ".ljust(_WIDTH, "-")
        for setting in members:
            yield ""
            yield from textwrap.wrap(
                f"{setting.help} Takes {_accepted(setting.kind)}.",
                _WIDTH,
                initial_indent="# ",
                subsequent_indent="# ",
            )
            default = "" if setting.default_text else default_of(setting)
            unset = f"({setting.default_text or 'not set'})"
            yield f"# {setting.name} = {default or unset}"
