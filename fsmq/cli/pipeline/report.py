"""``fsmq pipeline report``: the journal's tables as a page for people."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from fsmq.cli.failures import Exit, Failure
from fsmq.cli.params import Span
from fsmq.cli.pipeline.running import (
    absolute,
    job_options,
    progress,
    spark_session,
    summary,
)


@click.command("report")
@click.argument("tables", metavar="TABLES")
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The HTML file to write.",
)
@click.option(
    "--days",
    type=Span(low=1, unit="d"),
    default="7d",
    help="How far to go back from the newest step of the tables; a number alone is days.  [7d]",
)
@job_options
def report(
    tables: str, file: Path, days: float, master: str | None, dry_run: bool, as_json: bool
) -> None:
    """Make a page with charts from the tables that the job journal wrote.

    TABLES is the folder that it wrote, its --to. The page is one file that needs nothing else, and
    says in plain words what was slow, what was tried again, and what was given up.

    \b
    Examples:
      fsmq pipeline report tables
    """
    if find_spec("matplotlib") is None:
        raise Failure("matplotlib is not installed", Exit.UNAVAILABLE, "pip install 'fsmq[spark]'")
    with spark_session("report", master) as spark:
        from fsmq.pipeline.report import collect, page

        place = absolute(tables)
        with progress(spark, "counting"):
            figures = collect(spark, place, days / 86_400)
    if not dry_run:
        file.write_text(page(figures), "utf-8")
    summary(
        {
            "from": figures.begin.isoformat(),
            "until": figures.end.isoformat(),
            "queues": len(figures.queues),
            "accepted": figures.whole["sent"],
            "removed": figures.whole["deleted"],
            "dead_letters": figures.whole["buried"],
            "page": "not written: a dry run" if dry_run else str(file),
        },
        as_json,
    )
