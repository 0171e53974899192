"""``fsmq pipeline audit``: the rules of fsck at scale."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fsmq.cli.failures import Exit
from fsmq.cli.pipeline.running import (
    absolute,
    job_options,
    progress,
    spark_session,
    summary,
)
from fsmq.cli.place.place import root_option

_SHOWN = 20


@click.command("audit")
@root_option
@click.option("--to", metavar="FOLDER", help="Write the table of all findings to this folder.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="The format of the table.",
)
@click.option("--bodies", is_flag=True, help="Also read header blocks and compressed bodies.")
@click.option("--offline", is_flag=True, help="No program is running: check files of any age.")
@job_options
def audit(
    root: Path,
    to: str | None,
    form: str,
    bodies: bool,
    offline: bool,
    master: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Check a spool against the rules of its format, in parallel.

    Finds what fsmq fsck finds, on any number of hosts that mount the spool; repairs nothing. Also
    while the programs run. Exits with 0 if there is no error, 1 if there is one.
    """
    with spark_session("audit", master) as spark:
        from fsmq.pipeline.jobs import audit as job

        plan = job.Plan(str(root.resolve()), offline=offline, bodies=bodies)
        place = None if to is None else absolute(to)
        with progress(spark, "checking"):
            found = job.audit(spark, plan, to=place, form=form, dry_run=dry_run)
    findings = found.get("findings", [])
    if as_json or dry_run:
        summary(found, as_json)
        sys.exit(Exit.DONE if found.get("clean", True) else Exit.NOTHING)
    for finding in findings[:_SHOWN]:
        times = f" and {finding['count'] - 1:,} more" if finding["count"] > 1 else ""
        click.echo(f"{finding['severity']:8} {finding['kind']}: {finding['path']}{times}")
        click.echo(f"         {finding['reason']}")
    if len(findings) > _SHOWN:
        click.echo("         … and more: --to FOLDER writes all of them")
    plain = {name: value for name, value in found.items() if not isinstance(value, (dict, list))}
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in found["kinds"].items())
    summary({**plain, "kinds": kinds or "none", "table": to or "not written"}, as_json)
    sys.exit(Exit.DONE if found["clean"] else Exit.NOTHING)
