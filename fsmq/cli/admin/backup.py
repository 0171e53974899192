"""``fsmq backup`` and ``fsmq restore``: copies of a spool in use, and their way back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fsmq.cli.failures import Exit, report
from fsmq.cli.output import bar, document, json_option
from fsmq.cli.place.place import root_option
from fsmq.spool.backup import Restored, Snapshot
from fsmq.spool.backup import backup as take
from fsmq.spool.backup import restore as bring_back
from fsmq.spool.fsck import printable
from fsmq.words import many, size

_SHOWN = 20  # what was left out and is listed; --json lists all


@click.command("backup")
@click.argument("dest", type=click.Path(path_type=Path, file_okay=False))
@root_option
@click.option("--keep", type=int, metavar="N", help="Keep the last N snapshots.  [all]")
@json_option
def backup(dest: Path, root: Path, keep: int | None, as_json: bool) -> None:
    """Copy a spool, which may be in use, to a new folder in DEST, named by the time.

    What has not changed since the last snapshot there takes no space. The copy is checked, and gets
    its name when it is complete. Exits with 0 if all was copied, 1 if something was left out or is
    wrong in the spool too, 69 if there is no new snapshot.

    \b
    Examples:
      fsmq backup backups
      fsmq backup backups --root /var/lib/fsmq --keep 7
    """
    with bar("copying", 1, wanted=not as_json, show=lambda item: item) as show:

        def show_progress(step: str, done: int, of: int) -> None:
            show(done, of or None, f"{step}: {done:,}" if done else step)

        taken = take(root, dest, keep=keep, progress=show_progress)
    if as_json:
        document(_as_dict(taken))
    else:
        click.echo(_line(taken))
        _report(taken.left_out, "was left out")
        for fault in taken.faults:
            report(f"{fault.path} {fault.reason}: fsmq fsck says the same of the spool")
    sys.exit(Exit.NOTHING if taken.left_out or taken.faults else Exit.DONE)


@click.command("restore")
@click.argument("snapshot", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--root",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="An empty folder, or one to be made.",
)
@json_option
def restore(snapshot: Path, root: Path, as_json: bool) -> None:
    """Copy a SNAPSHOT of fsmq backup to a new root, and check it.

    It is compared with what the backup has recorded. Exits with 0 if all is well, 1 if something is
    missing or was changed, or fsck finds an error, 78 if the folder is not empty.

    \b
    Examples:
      fsmq restore backups/20261130T020000Z --root restored
    """
    with bar("restoring", 1, wanted=not as_json, show=lambda item: item) as show:
        restored = bring_back(snapshot, root, progress=lambda done: show(0, 1, f"{done:,} files"))
    if as_json:
        document(_restored_as_dict(restored))
    else:
        messages = many(restored.report.messages, "message")
        click.echo(f"{printable(str(root))}: {messages}, {size(restored.copied)}")
        click.echo("What was acknowledged after the backup began may come again.")
        _report(restored.left_out, "was left out")
        _report(restored.changed, "is not as it was backed up")
        for finding in restored.faults:
            report(f"{finding.path} {finding.reason}")
    is_whole = not (restored.left_out or restored.changed or restored.faults)
    sys.exit(Exit.DONE if is_whole else Exit.NOTHING)


def _line(taken: Snapshot) -> str:
    amounts = [
        many(taken.messages, "message"),
        many(taken.queues, "queue"),
        many(taken.logs, "log"),
    ]
    linked = f", {size(taken.linked)} linked to {taken.before.name}" if taken.before else ""
    removed = f"; {many(len(taken.removed), 'old snapshot')} removed" if taken.removed else ""
    path = printable(str(taken.path))
    return f"{path}: {', '.join(amounts)}; {size(taken.copied)} copied{linked}{removed}"


def _report(paths: Mapping[str, str], what: str) -> None:
    for path, why in list(paths.items())[:_SHOWN]:
        report(f"{path} {what}: {why}")
    if len(paths) > _SHOWN:
        report(f"… and {len(paths) - _SHOWN:,} more")


def _as_dict(taken: Snapshot) -> dict[str, Any]:
    return {
        "snapshot": printable(str(taken.path)),
        "before": None if taken.before is None else taken.before.name,
        "messages": taken.messages,
        "queues": taken.queues,
        "logs": taken.logs,
        "files": taken.files,
        "copied_bytes": taken.copied,
        "linked_bytes": taken.linked,
        "removed": taken.removed,
        "left_out": {printable(path): why for path, why in taken.left_out.items()},
        "faults": [fault.as_dict() for fault in taken.faults],
    }


def _restored_as_dict(restored: Restored) -> dict[str, Any]:
    return {
        "root": printable(str(restored.root)),
        "began": restored.began,
        "messages": restored.report.messages,
        "files": restored.files,
        "copied_bytes": restored.copied,
        "left_out": {printable(path): why for path, why in restored.left_out.items()},
        "changed": {printable(path): why for path, why in restored.changed.items()},
        "faults": [fault.as_dict() for fault in restored.faults],
    }
