"""``fsmq fsck``: a spool checked against the rules of its format."""

import json
import sys
from pathlib import Path

import click

from fsmq.cli.failures import Exit
from fsmq.cli.output import bar, json_option
from fsmq.cli.place.place import no_spool, root_option
from fsmq.spool.fsck import Finding, Kind, Progress, Report, check, printable
from fsmq.spool.layout.transitions import MESSAGE_FOLDERS
from fsmq.words import many

_SHOWN = 20  # findings of one kind that are listed; --json lists all


@click.command("fsck")
@root_option
@json_option
@click.option(
    "--repair", is_flag=True, help="Repair what can be repaired; no message is ever deleted."
)
@click.option("--create-queues", is_flag=True, help="Also create the missing queues of messages.")
@click.option("--bodies", is_flag=True, help="Also read header blocks and compressed bodies.")
@click.option("--offline", is_flag=True, help="No program is running: check files of any age.")
def fsck(
    root: Path, as_json: bool, repair: bool, create_queues: bool, bodies: bool, offline: bool
) -> None:
    """Check a spool against the rules of its format, and repair it.

    The programs may be running. Exits with 0 if no error is left, 1 if one is, 78 if the root
    cannot be read or is no spool.

    \b
    Examples:
      fsmq fsck
      fsmq fsck --repair --root /var/lib/fsmq
    """
    if root.is_dir() and not any((root / name).exists() for name in MESSAGE_FOLDERS):
        raise no_spool(root)
    with bar("checking", 1, wanted=not as_json, show=lambda item: item) as show:

        def show_progress(progress: Progress) -> None:
            at = f"{printable(progress.folder)} ({progress.entries:,} names)"
            show(progress.done, progress.folders, at)

        report = check(
            root,
            repair=repair or create_queues,
            create_queues=create_queues,
            bodies=bodies,
            offline=offline,
            progress=show_progress,
        )
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else _as_text(report))
    sys.exit(Exit.DONE if report.clean else Exit.NOTHING)


def _as_text(report: Report) -> str:
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
        f"{many(errors, 'error')}, {many(warnings, 'warning')}" if report.findings else "clean"
    )
    amount = f"{many(report.messages, 'message')} in {many(len(counts), 'queue')}"
    return f"{amount} ({', '.join(states)}): {verdict}"
