"""The options of a program: the values of its settings with their types, checked together.

The settings themselves are in `fsmq.daemons.settings.settings`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import click

from fsmq.daemons.settings.commandline import O, Origin, Origins, Values, command, nearer
from fsmq.daemons.settings.settings import (
    COMMANDS,
    DEFAULT_ROOT,
    OF_DIALECTS,
    SETTINGS,
    TABLES,
    LogFormat,
    LogLevel,
    OnOff,
    SyncMode,
    Watch,
)


@dataclass(frozen=True, slots=True)
class OfEvery:
    """The settings of every program."""

    journal: OnOff
    log_level: LogLevel
    log_format: LogFormat
    config: Path | None


@dataclass(frozen=True, slots=True)
class OfDaemon(OfEvery):
    """The settings of mq, mq-mover and mq-reaper."""

    node: str
    watch: Watch
    poll_interval: float


@dataclass(frozen=True, slots=True)
class MqOptions(OfDaemon):
    """The settings of mq; units and meanings as in `SETTINGS`."""

    root: Path
    sync: SyncMode
    workers: int
    peers: int | Literal["auto"]
    address: str
    port: int
    dialects: tuple[str, ...]
    of_dialects: Mapping[str, Any]
    """The values of the dialects' own settings, by field."""
    processes: int
    process_index: int | None
    listening: str | None
    keys: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    host_names: str | None
    let_anyone_in: Literal["no", "yes"]
    max_message_bytes: int
    read_timeout: float
    max_waiters: int
    shutdown_timeout: float
    max_connections: int
    idle_timeout: float
    header_timeout: float
    write_timeout: float
    max_header_bytes: int
    max_headers: int
    max_body_memory: int
    max_requests_per_key: int
    max_waiters_per_key: int
    max_body_memory_per_key: int
    history: OnOff
    stats: Literal["none", "statsd"]
    stats_address: str
    stats_prefix: str
    stats_interval: float
    stats_tags: Literal["none", "dogstatsd"]
    root_is_given: bool
    """Whether somebody has chosen the root."""

    @property
    def process_name(self) -> str:
        """The name of this process among those of one mq."""
        return "mq" if self.process_index is None else f"mq-{self.process_index}"

    @classmethod
    def resolve(cls, values: Values, origins: Origins) -> Self:
        """Make the options; raise ``click.UsageError`` if values contradict each other."""
        fields = {setting.field for setting in OF_DIALECTS}
        options = cls(
            **{field: value for field, value in values.items() if field not in fields},
            of_dialects={field: values[field] for field in fields},
            root_is_given=origins["root"] is not Origin.DEFAULT,
        )
        if options.process_index is not None and options.process_index >= options.processes:
            raise click.UsageError("--process-index must be below --processes")
        if (options.tls_cert is None) != (options.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key come together: give both, or neither.")
        return options


@dataclass(frozen=True, slots=True)
class MoverOptions(OfDaemon):
    """The settings of mq-mover: either ``root`` is set, or both ``source`` and ``destination``."""

    root: Path | None
    source: Path | None
    destination: Path | None
    delay: float
    expiry_interval: float

    @classmethod
    def resolve(cls, values: Values, origins: Origins) -> Self:
        """Make the options; raise ``click.UsageError`` unless they name one spool or one leg."""
        values = nearer(values, origins, ("source", "destination"))
        options = cls(**values)
        if options.root is None and (options.source is None or options.destination is None):
            raise click.UsageError("Give --root, or both --source and --destination.")
        if options.root is None and options.source == options.destination:
            raise click.UsageError("--source and --destination are the same folder.")
        return options


@dataclass(frozen=True, slots=True)
class ReaperOptions(OfDaemon):
    """The settings of mq-reaper; ``source`` is always set, from ``root`` if that is given."""

    root: Path | None
    source: Path
    journal_retention: float
    journal_bytes: int
    history_retention: float
    history_bytes: int

    @classmethod
    def resolve(cls, values: Values, origins: Origins) -> Self:
        """Make the options; raise ``click.UsageError`` if root and source are both given."""
        values = nearer(values, origins, ("source",))
        root = values["root"]
        source = values["source"] or (root or DEFAULT_ROOT) / "remove"
        return cls(**{**values, "source": source})


@dataclass(frozen=True, slots=True)
class UpOptions(OfEvery):
    """The settings of ``fsmq up``, which hands them to the programs that it runs."""

    root: Path
    sync: SyncMode
    address: str
    port: int
    processes: int
    keys: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    host_names: str | None
    let_anyone_in: Literal["no", "yes"]
    shutdown_timeout: float
    history: OnOff
    any_folder: Literal["no", "yes"]
    root_is_given: bool
    """Whether somebody has chosen the root."""
    given: frozenset[str]
    """The fields given on the command line; the programs find the others themselves."""

    @classmethod
    def resolve(cls, values: Values, origins: Origins) -> Self:
        """Make the options."""
        given = (name for name, origin in origins.items() if origin is Origin.COMMAND_LINE)
        root_is_given = origins["root"] is not Origin.DEFAULT
        return cls(**values, root_is_given=root_is_given, given=frozenset(given))


def program(
    name: str, options: type[O], help: str | None = None
) -> Callable[[Callable[[O], int]], click.Command]:
    """Turn a function that takes the options of a program into the program's command.

    The function returns the exit code; its docstring is the help text, unless ``help`` is given.
    Wrong usage ends the process with code 2 and a message that says what was expected.
    """

    def decorate(function: Callable[[O], int]) -> click.Command:
        def call(values: Values, origins: Origins) -> int:
            return function(options.resolve(values, origins))

        return _command(name, call, help or function.__doc__)

    return decorate


def parse(name: str, options: type[O], argv: Sequence[str]) -> O:
    """Return the options of a command line, with the environment and the file as they are now.

    Raises ``click.ClickException`` if the program itself would end with code 2.
    """
    parsed: list[O] = []

    def call(values: Values, origins: Origins) -> int:
        parsed.append(options.resolve(values, origins))
        return 0

    _command(name, call, None).main(list(argv), standalone_mode=False)
    return parsed[0]


def _command(name: str, call: Callable[[Values, Origins], int], help: str | None) -> click.Command:
    return command(name, SETTINGS, TABLES, call, help, COMMANDS[name])
