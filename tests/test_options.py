"""Settings of programs: sources, precedence, and refused values."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fsmq.daemons.settings.options import MoverOptions, MqOptions, ReaperOptions, UpOptions, program
from fsmq.daemons.settings.settings import SETTINGS
from fsmq.http.dialects import CHOICES
from fsmq.kinds import Seconds
from tests.harness.forkserver import environment, run

PROGRAMS: dict[str, type[Any]] = {
    "mq": MqOptions,
    "mover": MoverOptions,
    "reaper": ReaperOptions,
    "up": UpOptions,
}

Config = Callable[[str], str]


class Ran:
    """One run of a program: its options, or its error."""

    def __init__(self, name: str, *arguments: str, code: int = 0, **env: str) -> None:
        self.options: Any = None

        def main(options: Any) -> int:
            """Do the work."""
            self.options = options
            return code

        command: click.Command = program(name, PROGRAMS[name])(main)
        clean = {setting.variable: None for setting in SETTINGS}
        self.result: Result = CliRunner().invoke(command, list(arguments), env={**clean, **env})
        self.output = " ".join(self.result.output.split())


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Write a configuration file and return its path."""

    def write(text: str) -> str:
        path = tmp_path / "fsmq.toml"
        path.write_text(text)
        return str(path)

    return write


def test_defaults_of_mq() -> None:
    options = Ran("mq").options
    assert options.root == Path("/tmp/mq")
    assert (options.address, options.port, options.processes) == ("127.0.0.1", 8080, 1)
    assert (options.workers, options.peers, options.process_index) == (8, 0, None)
    assert (options.sync, options.watch, options.poll_interval) == ("auto", "auto", 0.25)
    assert options.max_message_bytes == 16777216
    assert options.node


@pytest.mark.parametrize(
    ("given", "chosen"),
    [("all", CHOICES), ("none", ()), ("emodb", ("emodb",)), (" emodb , emodb", ("emodb",))],
)
def test_dialects_are_a_list_or_all_or_none(given: str, chosen: tuple[str, ...]) -> None:
    assert Ran("mq", "--dialects", given).options.dialects == chosen
    assert Ran("mq").options.dialects == CHOICES
    refused = Ran("mq", "--dialects=emodb,klingon")
    assert refused.result.exit_code == 2
    assert "expected all, none, or some of emodb" in refused.output


def test_the_return_value_is_the_exit_code() -> None:
    assert Ran("mq").result.exit_code == 0
    assert Ran("mq", code=78).result.exit_code == 78


def test_command_line_wins_over_environment_over_file_over_default(config: Config) -> None:
    path = config("port = 1\nworkers = 2\npeers = 3\n")
    options = Ran("mq", "--port=11", "--config", path, FSMQ_PORT="21", FSMQ_WORKERS="22").options
    assert (options.port, options.workers, options.peers, options.processes) == (11, 22, 3, 1)


def test_the_table_of_a_program_wins_over_the_top_level(config: Config) -> None:
    path = config('log-level = "error"\nroot = "/a"\n[mq]\nlog-level = "debug"\n')
    assert Ran("mq", FSMQ_CONFIG=path).options.log_level == "debug"
    assert Ran("up", FSMQ_CONFIG=path).options.log_level == "debug"
    assert Ran("mover", FSMQ_CONFIG=path).options.log_level == "error"
    assert Ran("reaper", FSMQ_CONFIG=path).options.source == Path("/a/remove")


def test_top_level_keys_of_other_programs_are_ignored(config: Config) -> None:
    path = config('root = "/a"\nworkers = 4\nexpiry-interval = 5\n')
    assert Ran("mover", "--config", path).options.expiry_interval == 5.0
    assert Ran("mq", "--config", path).options.workers == 4


def test_an_empty_variable_counts_as_unset() -> None:
    assert Ran("mq", FSMQ_PORT="").options.port == 8080


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("wrokers = 4", "wrokers: unknown key; did you mean workers?"),
        ("[mq]\nwrokers = 4", "[mq] wrokers: unknown key; did you mean workers?"),
        ("[mover]\nworkers = 4", "[mover] workers: unknown key"),
        ("process-index = 0", "process-index: unknown key"),
        ('config = "b.toml"', "config: unknown key"),
        ('workers = "4"', "workers: expected a whole number from 1 to 256, not '4'"),
        ("workers = true", "workers: expected a whole number from 1 to 256, not True"),
        ("workers = 1.5", "workers: expected a whole number from 1 to 256, not 1.5"),
        ("workers = 0", "workers: expected a whole number from 1 to 256, not '0'"),
        (
            "[mover]\npoll-interval = inf",
            "[mover] poll-interval: expected a time from 0.01s to 1m",
        ),
        ("sync = 'always'", "sync: expected one of auto, fsync, syncfs, none, not 'always'"),
        ("root = 5", "root: expected a path, not 5"),
        ("mq = 5", "mq: expected a table"),
        ("port = ", "is not a TOML file"),
    ],
)
def test_an_invalid_file_is_refused_by_every_program(config: Config, text: str, error: str) -> None:
    path = config(text)
    for name in PROGRAMS:
        ran = Ran(name, "--config", path)
        assert ran.result.exit_code == 2
        assert f"{path}: {error}" in ran.output


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("journal = true\nlet-anyone-in = true", ("on", "yes")),
        ("journal = false\nlet-anyone-in = false", ("off", "no")),
        ("journal = 'off'\nlet-anyone-in = 'yes'", ("off", "yes")),
    ],
)
def test_a_switch_is_a_boolean_in_a_file(
    config: Config, text: str, chosen: tuple[str, str]
) -> None:
    options = Ran("mq", "--config", config(text)).options
    assert (options.journal, options.let_anyone_in) == chosen


def test_a_switch_accepts_only_booleans_and_its_two_words(config: Config) -> None:
    assert Ran("mq", "--journal=false", FSMQ_LET_ANYONE_IN="True").options.let_anyone_in == "yes"
    assert Ran("mq", "--journal=false").options.journal == "off"
    for refused in (Ran("mq", "--journal=yes"), Ran("mq", "--config", config("journal = 1"))):
        assert refused.result.exit_code == 2
        assert "expected true or false, or one of off, on" in refused.output
    assert "sync: expected one of" in Ran("mq", "--config", config("sync = true")).output


def test_an_explicit_root_counts_as_given_even_if_it_is_the_default(config: Config) -> None:
    for name in ("mq", "up"):
        assert not Ran(name).options.root_is_given
        assert Ran(name, "--root=/tmp/mq").options.root_is_given
        assert Ran(name, FSMQ_ROOT="/tmp/mq").options.root_is_given
        assert Ran(name, "--config", config('root = "/tmp/mq"')).options.root_is_given


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in Ran("mq", f"--config={tmp_path}/none").output
    (tmp_path / "latin").write_bytes(b'root = "\xe9"')
    assert "is not a TOML file" in Ran("mq", f"--config={tmp_path}/latin").output


@pytest.mark.parametrize(
    ("name", "low", "high", "step"),
    [
        ("port", 0, 65535, 1),
        ("workers", 1, 256, 1),
        ("peers", 0, 10_000, 1),
        ("processes", 1, 256, 1),
        ("max-message-bytes", 1, 2**40, 1),
        ("poll-interval", 0.01, 60, 0.001),
        ("read-timeout", 0.1, 3600, 0.01),
        ("shutdown-timeout", 0, 3600, 0.01),
    ],
)
def test_values_outside_the_range_are_refused(
    name: str, low: float, high: float, step: float
) -> None:
    for inside in (low, high):
        assert getattr(Ran("mq", f"--{name}={inside}").options, name.replace("-", "_")) == inside
    for outside in (low - step, high + step):
        ran = Ran("mq", f"--{name}={outside}")
        assert ran.result.exit_code == 2
        assert f"'--{name}'" in ran.output
        kind = next(one.kind for one in SETTINGS if one.name == name)
        assert f"from {kind.limits}" in ran.output


@pytest.mark.parametrize("text", ["x", "nan", "inf", "1e999", "1 2"])
def test_a_value_that_is_not_a_number_is_refused(text: str) -> None:
    assert Ran("mq", "--poll-interval", text).result.exit_code == 2
    assert Ran("mq", "--port", text).result.exit_code == 2


def test_an_error_in_a_variable_names_the_variable() -> None:
    output = Ran("mq", FSMQ_PORT="70000").output
    assert "FSMQ_PORT: expected a whole number from 0 to 65535, not '70000'" in output


def test_mover_needs_a_root_or_both_folders() -> None:
    assert Ran("mover", "--root=/r").options.root == Path("/r")
    folders = Ran("mover", "--source=/s", "--destination=/d", "--delay=1.5").options
    assert (folders.root, folders.source, folders.destination) == (None, Path("/s"), Path("/d"))
    assert folders.delay == 1.5
    for wrong in (
        [],
        ["--source=/s"],
        ["--destination=/d"],
        ["--root=/r", "--source=/s"],
        ["--root=/r", "--source=/s", "--destination=/d"],
        ["--source=/s", "--destination=/s"],
    ):
        ran = Ran("mover", *wrong)
        assert ran.result.exit_code == 2
        assert "--source" in ran.output


def test_folders_on_the_command_line_win_over_a_root_in_the_environment() -> None:
    options = Ran("mover", "--source=/s", "--destination=/d", FSMQ_ROOT="/r").options
    assert (options.root, options.source) == (None, Path("/s"))
    options = Ran("mover", "--root=/r", FSMQ_SOURCE="/s").options
    assert (options.root, options.source) == (Path("/r"), None)
    assert Ran("reaper", "--source=/s", FSMQ_ROOT="/r").options.source == Path("/s")
    assert Ran("reaper", FSMQ_SOURCE="/s", FSMQ_ROOT="/r").result.exit_code == 2


def test_reaper_uses_the_folder_remove_of_its_root() -> None:
    assert Ran("reaper").options.source == Path("/tmp/mq/remove")
    assert Ran("reaper", "--root=/r").options.source == Path("/r/remove")
    assert Ran("reaper", "--source=/s").options.source == Path("/s")
    assert Ran("reaper", "--root=/r", "--source=/s").result.exit_code == 2


def test_up_knows_which_options_were_given() -> None:
    options = Ran("up", "--port=0", FSMQ_ADDRESS="::1").options
    assert options.given == {"port"}
    assert options.address == "::1"


def test_process_index_is_for_the_supervisor_only() -> None:
    options = Ran("mq", "--processes=2", "--process-index=1").options
    assert options.process_index == 1
    assert Ran("mq", "--processes=2", "--process-index=2").result.exit_code == 2
    assert Ran("mq", FSMQ_PROCESS_INDEX="1").options.process_index is None
    assert "process-index" not in Ran("mq", "--help").output


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_has_every_setting(name: str) -> None:
    output = Ran(name, "--help").output
    assert "Do the work." in output
    for setting in SETTINGS:
        if name in setting.programs and not setting.hidden:
            for part in (f"--{setting.name} ", setting.help, setting.variable):
                assert part in output
    assert "[0.01s to 1m; default 0.25s; FSMQ_POLL_INTERVAL]" in output or name == "up"
    assert "0.1.0" in Ran(name, "--version").output


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_table_and_the_options_agree(name: str) -> None:
    """A setting without a field, or a field without a setting, would break every start."""
    listed = [setting.field for setting in SETTINGS if name in setting.programs]
    fields = {field.name for field in dataclasses.fields(PROGRAMS[name])} - {
        "given",
        "of_dialects",
        "root_is_given",
    }
    if name == "mq":
        fields |= set(Ran("mq").options.of_dialects)
    assert sorted(listed) == sorted(fields)


@pytest.mark.parametrize(
    ("program", "arguments", "problem"),
    [
        ("mq", ["--port=70000"], "invalid value for '--port': expected a whole number from 0 to"),
        ("mq", ["--prot=1"], "there is no option --prot; did you mean --root or --port"),
        ("mq", ["--config={}"], "{}: wrokers: unknown key; did you mean workers?"),
        ("mq", ["--tls-cert=x"], "--tls-cert and --tls-key come together: give both, or neither"),
        ("mq-mover", [], "give --root, or both --source and --destination"),
        ("mq-mover", ["--root"], "option '--root' requires an argument"),
        ("mq-reaper", ["x"], "got unexpected extra argument (x)"),
        ("fsmq up", ["--polll=1"], "there is no option --polll"),
    ],
)
def test_a_wrong_option_is_an_error_of_two_lines(
    config: Config, program: str, arguments: list[str], problem: str
) -> None:
    path = config("wrokers = 4")
    module = f"fsmq.daemons.{program.removeprefix('mq-')}" if program[0] == "m" else "fsmq.cli"
    words = [*program.split()[1:], *(one.format(path) for one in arguments)]
    ended = run(module, words, environment(), b"")
    first, second = ended.stderr.decode().splitlines()
    assert first.startswith(f"{program.split()[0]}: {problem.format(path)}")
    assert second == f"      {program} --help says more"
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_an_option_of_another_program_is_explained() -> None:
    for module, words, advice in (
        ("cli", ["up", "--sqs-auth=key"], "a setting of mq: set FSMQ_SQS_AUTH, or sqs-auth in"),
        ("mq", ["--history-bytes=1"], "a setting of mq-reaper: set FSMQ_HISTORY_BYTES"),
        ("cli", ["--at", "mq", "queue", "list"], "after the command, as in: fsmq queue list --at"),
    ):
        ended = run(
            f"fsmq.daemons.{module}" if module == "mq" else "fsmq.cli", words, environment(), b""
        )
        assert advice in ended.stderr.decode()
        assert ended.returncode == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("0.5", 0.5), ("5e-1", 0.5), ("2 s", 2), (".5m", 30)]
)
def test_a_time_has_a_unit_or_is_in_seconds(config: Config, text: str, seconds: float) -> None:
    path = config(f"poll-interval = '{text}'")
    for ran in (
        Ran("mq", "--poll-interval", text),
        Ran("mover", "--root=/r", FSMQ_POLL_INTERVAL=text),
        Ran("reaper", "--config", path),
    ):
        assert ran.options.poll_interval == seconds, ran.output


@pytest.mark.parametrize("text", ["5 fortnights", "2h", "1ms", "-1s", "1m30s", ""])
def test_a_time_that_is_invalid_or_out_of_range_is_refused(text: str) -> None:
    ran = Ran("mq", f"--poll-interval={text}")
    assert ran.result.exit_code == 2
    assert "expected a time from 0.01s to 1m, in seconds or with a unit" in ran.output


def test_every_setting_that_is_a_time_takes_units() -> None:
    times = {one.name for one in SETTINGS if one.kind.unit == "seconds"}
    assert times == {one.name for one in SETTINGS if isinstance(one.kind, Seconds)}
    assert {"read-timeout", "journal-retention", "stats-interval", "delay"} <= times
    retention = Ran("reaper", "--root=/r", "--journal-retention=30d").options.journal_retention
    assert retention == 30 * 86_400


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("fsmq.daemons.mq", []),
        ("fsmq.daemons.mover", []),
        ("fsmq.daemons.reaper", []),
        ("fsmq.cli", ["up"]),
    ],
)
def test_a_misspelt_variable_is_told_once(
    module: str, arguments: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "no-folder"
    file.touch()
    env = environment(FSMQ_PROCESES="2", FSMQ_KEY="x", FSMQ_ATTRIBUTE_PORT="1", FSMQ_ZZ="1")
    done = run(module, [*arguments, f"--root={file}", "--log-format=text"], env, b"")
    told = [line for line in done.stderr.decode().splitlines() if "no setting" in line]
    assert len(told) == 1, done.stderr
    assert "FSMQ_PROCESES is no setting; did you mean FSMQ_PROCESSES?" in told[0]
