"""Settings made into command lines: where a value comes from, and which source wins.

A value is taken from the first of these that has one:

1. the command line (``--poll-interval 1``),
2. the environment (``FSMQ_POLL_INTERVAL=1``; an empty variable counts as none),
3. the TOML file that ``--config`` or ``FSMQ_CONFIG`` names (``poll-interval = 1``), in which the
   program's own table overrides the top level, which is for every program,
4. the default.

The settings themselves are in `fsmq.daemons.settings.settings`.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from fsmq._version import __version__
from fsmq.daemons.misuse import misuse
from fsmq.daemons.standard_files import hold_standard_files
from fsmq.kinds import Choice, Kind, Location, Setting
from fsmq.units import in_units
from fsmq.words import meant


class Origin(IntEnum):
    """Where a value came from; the greatest is the nearest to the user, and wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    COMMAND_LINE = 3


_ORIGINS = {
    ParameterSource.COMMANDLINE: Origin.COMMAND_LINE,
    ParameterSource.ENVIRONMENT: Origin.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP: Origin.FILE,
}

Values = Mapping[str, Any]
Origins = Mapping[str, Origin]


class Options(Protocol):
    """What the options of all programs have in common."""

    @classmethod
    def resolve(cls, values: Values, origins: Origins) -> Self:
        """Make the options; raise ``click.UsageError`` if values contradict each other."""


O = TypeVar("O", bound=Options)  # noqa: E741


class ConfigFile:
    """The TOML file: top-level keys for all programs, one table for each that differs."""

    def __init__(self, path: Path, settings: Iterable[Setting], tables: Sequence[str]) -> None:
        """Read and check the whole file, not only the part that this program uses.

        Raises ``click.UsageError``, naming the file, the key and what was expected.
        """
        self._path = path
        self._settings = [setting for setting in settings if setting.in_file]
        self._common: dict[str, object] = {}
        self._tables: dict[str, dict[str, object]] = {table: {} for table in tables}
        for key, raw in self._read().items():
            if key in self._tables:
                self._tables[key] = self._table(key, raw)
            else:
                self._common[key] = self._checked(key, raw, None)

    def values(self, table: str) -> dict[str, object]:
        """Return the raw values of one table over those of the top level, by field name."""
        merged = {**self._common, **self._tables[table]}
        return {key.replace("-", "_"): raw for key, raw in merged.items()}

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._path.read_text("utf-8"))
        except OSError as error:
            raise click.UsageError(f"{self._path}: cannot be read: {error.strerror}") from None
        except ValueError as error:  # not TOML, or not UTF-8
            raise click.UsageError(f"{self._path}: is not a TOML file: {error}") from None

    def _table(self, table: str, raw: object) -> dict[str, object]:
        if not isinstance(raw, dict):
            raise self._error(table, f"expected a table of settings for {table}, not {raw!r}")
        return {key: self._checked(key, value, table) for key, value in raw.items()}

    def _checked(self, key: str, raw: object, table: str | None) -> object:
        where = f"[{table}] {key}" if table else key
        known = {s.name: s for s in self._settings if table is None or table in s.programs}
        setting = known.get(key)
        if setting is None:
            advice = meant(key, known) or f"expected one of: {', '.join(sorted(known))}"
            raise self._error(where, f"unknown key; {advice}")
        # bool is an int in Python, but not a number in a file.
        if type(raw) not in setting.kind.native:
            raise self._error(where, f"expected {setting.kind.expected}, not {raw!r}")
        try:
            value_of(setting, raw)
        except click.BadParameter as error:
            raise self._error(where, error.message) from None
        return raw

    def _error(self, key: str, problem: str) -> click.UsageError:
        return click.UsageError(f"{self._path}: {key}: {problem}")


class ProgramCommand(click.Command):
    """A command whose ``--help`` lists the settings by group, with range, default and variable."""

    def __init__(
        self, settings: Sequence[Setting], others: Sequence[Setting], **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._settings = [setting for setting in settings if not setting.hidden]
        self._elsewhere = {f"--{one.name}": _elsewhere(one) for one in others}

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command line of this process."""
        hold_standard_files()
        return super().main(*args, **more)

    def make_context(self, info_name: str | None, *args: Any, **more: Any) -> click.Context:
        """Read the command line. Raises ``click.ClickException`` with all that is to be told."""
        try:
            return super().make_context(info_name, *args, **more)
        except click.UsageError as error:
            raise misuse(error, info_name or "", self._elsewhere) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the program; settings that contradict each other are a mistake, too."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise misuse(error, ctx.command_path) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings, then the options of every command."""
        for group in dict.fromkeys(setting.group for setting in self._settings):
            with formatter.section(group):
                formatter.write_dl([_row(s) for s in self._settings if s.group == group])
        own = {setting.field for setting in self._settings}
        rest = [p.get_help_record(ctx) for p in self.get_params(ctx) if p.name not in own]
        with formatter.section("Other"):
            formatter.write_dl([row for row in rest if row])


def command(
    name: str,
    settings: Sequence[Setting],
    tables: Mapping[str, str],
    callback: Callable[[Values, Origins], int],
    help: str | None,
    prog: str,
) -> click.Command:
    """Make the command line of one program.

    Args:
        name: the program, as the settings name it.
        settings: all settings of all programs.
        tables: for each program the table of the configuration file that it reads.
        callback: called with the values and their origins; returns the exit code.
        help: what ``--help`` says above the options.
        prog: the name that ``--version`` shows.
    """
    own = [setting for setting in settings if name in setting.programs]

    def load(ctx: click.Context, path: Path | None) -> None:
        if path is not None:
            ctx.default_map = ConfigFile(path, settings, sorted(set(tables.values()))).values(
                tables[name]
            )

    def run(**values: Any) -> None:
        ctx = click.get_current_context()
        ctx.exit(callback(values, _origins(ctx, values)))

    result = ProgramCommand(
        own,
        [setting for setting in settings if name not in setting.programs],
        name=prog,
        params=[_parameter(setting, load) for setting in own],
        callback=run,
        help=inspect.cleandoc(help or ""),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(__version__, prog_name=prog, message="%(prog)s %(version)s")(result)


def _elsewhere(setting: Setting) -> str:
    """Where a setting belongs that a program does not take."""
    program = setting.programs[0]
    program = program if program == "mq" else f"mq-{program}"
    return f"it is a setting of {program}: set {setting.variable}, or {setting.name} in a file"


def nearer(values: Values, origins: Origins, folders: Sequence[str]) -> Values:
    """Keep either root or the folders: those whose origin is nearer to the user.

    ``FSMQ_ROOT`` may be set for a whole host; it must not conflict with ``--source`` on a command
    line.
    """
    named = [folder for folder in folders if values[folder] is not None]
    if values["root"] is None or not named:
        return values
    nearest = max(origins[folder] for folder in named)
    if origins["root"] == nearest:
        options = " and ".join(f"--{folder}" for folder in folders)
        raise click.UsageError(f"--root and {options} exclude each other: give one of them.")
    dropped = folders if origins["root"] > nearest else ("root",)
    return {**values, **dict.fromkeys(dropped)}


def _parameter(
    setting: Setting, load: Callable[[click.Context, Path | None], None]
) -> click.Parameter:
    def convert(ctx: click.Context, _: click.Parameter, raw: Any) -> object:
        try:
            value = None if raw is None else value_of(setting, raw)
        except click.BadParameter as error:
            if ctx.get_parameter_source(setting.field) is ParameterSource.ENVIRONMENT:
                error.param_hint = setting.variable
            raise
        if setting.name == "config":
            load(ctx, value if isinstance(value, Path) else None)
        return value

    return click.Option(
        [f"--{setting.name}", setting.field],
        # The callback converts by the kind, because errors of click's types are worded differently.
        type=click.UNPROCESSED,
        callback=convert,
        default=setting.default,
        envvar=None if setting.hidden else setting.variable,
        is_eager=setting.name == "config",  # the others look into the file it loads
        hidden=setting.hidden,
        metavar=setting.kind.metavar,
        shell_complete=lambda ctx, param, begun: _completions(setting.kind, begun),
    )


def value_of(setting: Setting, raw: Any) -> object:
    """Return the value for what a source gave; raise ``click.BadParameter`` if it is wrong."""
    try:
        return setting.kind.parse(raw)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"expected {setting.kind.expected}, not {str(raw)!r}") from None


def _completions(kind: Kind, begun: str) -> list[CompletionItem]:
    if isinstance(kind, Location):
        return [CompletionItem(begun, type="file")]  # the shell completes them
    words = kind.words if isinstance(kind, Choice) else ()
    return [CompletionItem(word) for word in words if word.startswith(begun)]


def _origins(ctx: click.Context, names: Iterable[str]) -> dict[str, Origin]:
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return {
        name: _ORIGINS.get(source, Origin.DEFAULT) if source else Origin.DEFAULT
        for name, source in sources.items()
    }


def _row(setting: Setting) -> tuple[str, str]:
    default = setting.default_text
    if not default and setting.default is not None and not callable(setting.default):
        default = str(setting.default)
        if isinstance(setting.default, float) and setting.kind.unit == "seconds":
            default = in_units(setting.default)
    facts = [setting.kind.limits, f"default {default}" if default else "", setting.variable]
    shown = "; ".join(fact for fact in facts if fact)
    return f"--{setting.name} {setting.kind.metavar}", f"{setting.help}  [{shown}]"
