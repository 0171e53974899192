"""The command: ``python -m benchmarks [ROW …]``."""

from __future__ import annotations

import dataclasses
import resource
import signal
import sys
import time
from collections.abc import Mapping
from subprocess import CalledProcessError
from types import FrameType
from typing import Any

import click

from .bench import TINY, Bench, Sizes
from .load import Failed
from .measure import Measure, Outcome
from .place import CannotMount, open_place
from .report import machine, render, store, table
from .rows import ROWS

_GIGABYTES = 24
_GIGABYTES_TINY = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("rows", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--where", metavar="DIR|loop", help="Where to run; for root, loop is the default.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Pairs.")
@click.option(
    "--seconds", type=click.IntRange(1), default=3, show_default=True, help="Of each run."
)
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Of mq, under load."
)
@click.option("--write", is_flag=True, help="Put the numbers and plots into the README.")
@click.option("--tiny", is_flag=True, help="Sizes that mean nothing: does it run at all?")
@click.option(
    "--size",
    "sizes",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another size, such as many=100000 or bodies=100,1024; benchmarks/bench.py names them.",
)
@click.option("--list", "listed", is_flag=True, help="Name the rows and end.")
@click.option("--render", "rendered", is_flag=True, help="Write the README again; measure nothing.")
def main(
    rows: tuple[str, ...],
    where: str | None,
    repeat: int,
    seconds: int,
    processes: int,
    write: bool,
    tiny: bool,
    sizes: tuple[str, ...],
    listed: bool,
    rendered: bool,
) -> None:
    """Measure fsmq against what does the same work in the same run on the same disk.

    Without a ROW all of them run, which takes more than an hour. The loop device is an ext4 with a
    journal, made for the run and removed afterwards.

    Exits with 0 whether bars are met or not, 1 if a row could not be measured.
    """
    if listed:
        click.echo("\n".join(f"{name:14} {row.__doc__}" for name, row in ROWS.items()))
        return
    if rendered:
        render()
        return
    if write and tiny:
        raise click.UsageError("--tiny makes no numbers that are worth writing down.")
    chosen = _sized(TINY if tiny else Sizes(), sizes)
    _prepare()
    try:
        with open_place(where, _GIGABYTES_TINY if tiny else _GIGABYTES) as place:
            bench = Bench(
                place,
                repeat=repeat,
                seconds=seconds,
                warm_up=0 if tiny else 1,
                processes=processes,
                sizes=chosen,
            )
            how = f"{machine()}; {place.description}; {repeat} rounds, {seconds} s a run"
            how += "".join(f", {change}" for change in sizes)
            click.echo(how)
            outcomes, failed = _run(bench, rows or tuple(ROWS))
    except CannotMount as error:
        raise click.ClickException(f"cannot use a loop device: {error}") from error
    click.echo(table(measure for outcome in outcomes.values() for measure in outcome.measures))
    if write:
        store(outcomes, how)
    sys.exit(1 if failed else 0)


def _sized(sizes: Sizes, changes: tuple[str, ...]) -> Sizes:
    """Change sizes as the command line says."""
    fields = {field.name: getattr(sizes, field.name) for field in dataclasses.fields(sizes)}
    changed: dict[str, Any] = {}
    for change in changes:
        name, _, text = change.partition("=")
        if name not in fields:
            raise click.UsageError(f"--size {change}: expected one of {', '.join(fields)}")
        try:
            if isinstance(fields[name], tuple):
                changed[name] = tuple(int(part) for part in text.split(","))
            else:
                changed[name] = type(fields[name])(text)
        except ValueError:
            raise click.UsageError(f"--size {change}: {text!r} is no number") from None
    return dataclasses.replace(sizes, **changed)


def _run(bench: Bench, rows: tuple[str, ...]) -> tuple[Mapping[str, Outcome], bool]:
    outcomes: dict[str, Outcome] = {}
    failed = False
    for name in dict.fromkeys(rows):
        started = time.monotonic()
        click.echo(f"{name} …", err=True, nl=False)
        try:
            outcomes[name] = ROWS[name](bench)
        except (Failed, AssertionError, OSError, RuntimeError, CalledProcessError) as error:
            # One row that cannot be measured must not cost the others an hour's work.
            outcomes[name] = Outcome([Measure(name, [], note=f"could not be measured: {error!r}")])
            failed = True
        click.echo(f" {time.monotonic() - started:.0f} s", err=True)
    return outcomes, failed


def _prepare() -> None:
    """Let thousands of connections be opened, and an end by signal clean up."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
