"""``fsmq pipeline journal``: the lifecycle journal as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsmq.cli.params import SPAN, Span
from fsmq.cli.pipeline.running import (
    absolute,
    await_stream,
    job_options,
    progress,
    spark_session,
    summary,
)
from fsmq.cli.place.place import root_option

if TYPE_CHECKING:
    from fsmq.pipeline.journal.tables import Progress


@click.command("journal")
@root_option
@click.option("--to", "folder", required=True, metavar="DIR", help="Folder of the tables.")
@click.option("--follow", is_flag=True, help="Continue with the journal until SIGINT or SIGTERM.")
@click.option(
    "--every",
    type=Span(low=1),
    default=60.0,
    help="With --follow: how often the tables are brought up to date.  [1 min]",
)
@click.option(
    "--late",
    type=SPAN,
    default=600.0,
    help="How long a minute stays open for late steps.  [10 min]",
)
@click.option(
    "--lost",
    type=Span(low=86_400, unit="d"),
    default="30d",
    help="Close an open message after this time without a step; a number alone is days.  [30d]",
)
@job_options
def journal(
    root: Path,
    folder: str,
    follow: bool,
    every: float,
    late: float,
    lost: float,
    master: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make tables of what happened to every message: events, messages, minutes.

    Reads what was added to the journal since the last run, and can be stopped and run again at any
    point: nothing is counted twice. The tables are Parquet and can be read at any time.

    \b
    Examples:
      fsmq pipeline journal --to tables
      fsmq pipeline journal --to tables --follow
    """
    place, spool = absolute(folder), str(root.resolve())
    with spark_session("journal", master) as spark:
        from fsmq.pipeline.journal import job as job

        if dry_run:
            summary({**job.look(spark, spool, place), "tables": place}, as_json)
            return
        with job.only_one(place):
            rules = job.Rules(late, lost)
            query = job.start(
                spark, spool, place, every=every if follow else None, rules=rules, report=_report
            )
            with progress(spark, "following" if follow else "reading"):
                await_stream(query, endless=follow)
        summary({**job.summary(spark, place), "tables": place}, as_json)


def _report(done: Progress) -> None:
    if not done.events:
        return
    at = datetime.fromtimestamp(done.latest_ms / 1000, UTC)
    line = f"batch {done.batch}: {done.events:,} steps so far, the newest of {at:%F %T} UTC"
    click.echo(f"fsmq: {line}", err=True)
