"""``fsmq probe``: whether a filesystem is fit for a spool."""

import json
import sys
from pathlib import Path

import click

from fsmq.cli.failures import Exit
from fsmq.cli.output import json_option
from fsmq.cli.place.place import root_option
from fsmq.spool.fsck import printable
from fsmq.spool.probe import Level, fatal
from fsmq.spool.probe import probe as try_out

COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FATAL: "red"}


@click.command("probe")
@root_option
@json_option
def probe(root: Path, as_json: bool) -> None:
    """Check whether a filesystem is fit for a spool.

    Harmless while the programs run. Leaves nothing where there was no spool. Exits with 0 if it is,
    78 if not.

    \b
    Examples:
      fsmq probe --root /var/lib/fsmq
    """
    findings = try_out(root, create=True)
    if as_json:
        listed = [{"name": f.name, "level": f.level.value, "text": f.text} for f in findings]
        usable = fatal(findings) is None
        click.echo(json.dumps({"root": str(root), "usable": usable, "findings": listed}, indent=2))
    else:
        for finding in findings:
            level = click.style(f"{finding.level.value:8}", fg=COLOURS[finding.level])
            click.echo(f"{level} {finding.name}: {printable(finding.text)}")
    sys.exit(Exit.UNUSABLE if fatal(findings) else Exit.DONE)
