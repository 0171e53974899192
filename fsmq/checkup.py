"""``fsmq fsck`` and ``fsmq probe``: a spool looked over from the command line."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from fsmq.daemons.options import DEFAULT_ROOT
from fsmq.spool import UnusableSpool
from fsmq.spool.fsck import Finding, Kind, Progress, Report, check, printable
from fsmq.spool.probe import Level, fatal
from fsmq.spool.probe import probe as try_out

LEFT = 1  # findings are left
UNUSABLE = 78  # the root cannot be used, as sysexits.h names a bad configuration
_SHOWN = 20  # findings of one kind that are listed; --json lists all

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option(
            "--root",
            type=click.Path(path_type=Path),
            default=DEFAULT_ROOT,
            show_default=True,
            envvar="FSMQ_ROOT",
            show_envvar=True,
            help="The folder that holds the spool.",
        ),
    ):
        command = option(command)
    return command


@click.command("fsck")
@_options
@click.option("--repair", is_flag=True, help="Mend what can be mended; never deletes a message.")
@click.option(
    "--create-queues", is_flag=True, help="Repair by creating queues that messages belong to, too."
)
@click.option("--bodies", is_flag=True, help="Read header blocks and compressed bodies, too.")
@click.option("--offline", is_flag=True, help="No program is running: everything is old enough.")
def fsck(
    root: Path, as_json: bool, repair: bool, create_queues: bool, bodies: bool, offline: bool
) -> None:
    """Check a spool against the rules of its format, also while the programs run.

    Exits with 0 if no error is left, 1 if one is, 78 if the root cannot be read.
    """
    try:
        with _progress_bar(wanted=not as_json) as progress:
            report = check(
                root,
                repair=repair or create_queues,
                create_queues=create_queues,
                bodies=bodies,
                offline=offline,
                progress=progress,
            )
    except UnusableSpool as error:
        _give_up(error)
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else _told(report))
    sys.exit(0 if report.clean else LEFT)


@click.command("probe")
@_options
def probe(root: Path, as_json: bool) -> None:
    """Try whether the filesystem of a root can carry a spool. Harmless while the programs run.

    Makes the folders that are missing, as the programs do. Exits with 0 if it can, 78 if not.
    """
    try:
        findings = try_out(root, create=True)
    except UnusableSpool as error:
        _give_up(error)
    if as_json:
        listed = [{"name": f.name, "level": f.level.value, "text": f.text} for f in findings]
        usable = fatal(findings) is None
        click.echo(json.dumps({"root": str(root), "usable": usable, "findings": listed}, indent=2))
    else:
        colours = {Level.OK: "green", Level.WARNING: "yellow", Level.FATAL: "red"}
        for finding in findings:
            level = click.style(f"{finding.level.value:8}", fg=colours[finding.level])
            click.echo(f"{level} {finding.name}: {printable(finding.text)}")
    sys.exit(UNUSABLE if fatal(findings) else 0)


def _give_up(error: UnusableSpool) -> Any:
    click.echo(f"fsmq: {printable(str(error))}", err=True)
    sys.exit(UNUSABLE)


@contextmanager
def _progress_bar(wanted: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar of the folders on a terminal; nothing elsewhere."""
    if not wanted or not sys.stderr.isatty():
        yield lambda progress: None
        return
    with click.progressbar(
        length=1,
        label="checking",
        file=sys.stderr,
        item_show_func=lambda item: item,
    ) as bar:

        def show(progress: Progress) -> None:
            bar.length = progress.folders
            at = f"{printable(progress.folder)} ({progress.entries:,} names)"
            bar.update(progress.done - bar.pos, at)

        yield show
        bar.update((bar.length or 0) - bar.pos, "")


def _told(report: Report) -> str:
    lines = [f"repaired {_line(finding)}: {finding.repair}" for finding in report.repaired]
    listed: dict[Kind, int] = {}
    for finding in report.findings:
        listed[finding.kind] = listed.get(finding.kind, 0) + 1
        if listed[finding.kind] <= _SHOWN:
            lines.append(f"{finding.severity.value:8} {_line(finding)}")
            lines.append(f"         {printable(finding.reason)}")
            if finding.repair is not None:
                lines.append(f"         --repair will: {finding.repair}")
    for kind, count in listed.items():
        more = count - _SHOWN + report.unlisted.get(kind, 0)
        if more > 0:
            lines.append(f"         … and {more:,} more: {kind.value}")
    return "\n".join([*lines, _summary(report)])


def _line(finding: Finding) -> str:
    times = f" and {finding.count - 1:,} more" if finding.count > 1 else ""
    return f"{finding.kind.value}: {printable(finding.path)}{times}"


def _summary(report: Report) -> str:
    counts = report.queues.values()
    errors = sum(1 for f in report.findings if f.severity.value == "error")
    warnings = len(report.findings) - errors
    states = [
        f"{sum(c.new for c in counts):,} new",
        f"{sum(c.ready for c in counts):,} ready",
        f"{sum(c.in_flight for c in counts):,} in flight",
        f"{sum(c.delayed for c in counts):,} delayed",
        f"{report.removed:,} removed",
    ]
    verdict = (
        f"{_many(errors, 'error')}, {_many(warnings, 'warning')}" if report.findings else "clean"
    )
    amount = f"{_many(report.messages, 'message')} in {_many(len(counts), 'queue')}"
    return f"{amount} ({', '.join(states)}): {verdict}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
