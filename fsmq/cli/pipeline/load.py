"""``fsmq pipeline load``: rows of files become messages."""

from __future__ import annotations

from pathlib import Path

import click

from fsmq.cli.pipeline.running import (
    absolute,
    job_options,
    progress,
    putting_options,
    spark_session,
    summary,
)
from fsmq.cli.place.place import root_option


@click.command("load")
@click.argument("source")
@root_option
@click.option("--queue", metavar="QUEUE", help="The queue of rows that do not name one.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "json", "csv", "text", "files"]),
    help="The format of the source; files: each file is a body.  [default: by the names of files]",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=EXPR",
    help="The expression for a column of the message: body=payload, ttl=3600,"
    " 'body=to_json(struct(*))'.",
)
@putting_options
@job_options
def load(
    source: str,
    root: Path,
    queue: str | None,
    form: str | None,
    columns: tuple[str, ...],
    job: str | None,
    create_queues: bool,
    rejected_rows: str | None,
    journal: bool | None,
    master: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put the rows of Parquet, JSON lines, CSV, text, or a folder of files.

    All of them, or none if one cannot be a message (see --rejected-rows). A source is loaded once:
    if a job was stopped, run it again with the same arguments; a job that is done adds nothing.
    --job NAME loads the source once more under another name.

    \b
    Examples:
      fsmq pipeline load orders.parquet --queue jobs
    """
    expressions = dict(_pair(column) for column in columns)
    place = absolute(source)
    with spark_session("load", master) as spark:
        from fsmq.pipeline.jobs import load as job_load
        from fsmq.pipeline.jobs.sending import Plan, name_of

        form = form or job_load.format_of(place)
        name = job or name_of("load", place, form, queue, sorted(expressions.items()))
        aside = absolute(rejected_rows) if rejected_rows is not None else None
        plan = Plan(str(root.resolve()), name, queue, create_queues, aside, journal=journal)
        with progress(spark, "loading"):
            found = job_load.load(spark, plan, place, form, expressions, dry_run=dry_run)
    summary(found, as_json)


def _pair(column: str) -> tuple[str, str]:
    name, equals, expression = column.partition("=")
    if not equals or not expression:
        raise click.UsageError(f"--column {column}: expected NAME=EXPR, as in body=payload")
    return name.strip(), expression
