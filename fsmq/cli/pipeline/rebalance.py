"""``fsmq pipeline rebalance``: messages of queues are spread over others by share."""

from __future__ import annotations

from pathlib import Path

import click

from fsmq.cli.pipeline.running import (
    job_options,
    progress,
    spark_session,
    summary,
)
from fsmq.cli.place.place import root_option


@click.command("rebalance")
@click.argument("queues")
@root_option
@click.option("--to", required=True, metavar="QUEUE=SHARE,…", help="As in jobs-a=2,jobs-b=1.")
@job_options
def rebalance(
    queues: str, root: Path, to: str, master: str | None, dry_run: bool, as_json: bool
) -> None:
    """Spread the ready messages of queues over others, or among themselves.

    QUEUES: names and globs, comma between them. Each message is one rename, and keeps its id and
    its count. Where one belongs follows from its id: a run that was stopped is run again and does
    the rest, and another changes nothing. What is in flight or delayed is left alone.
    """
    with spark_session("rebalance", master) as spark:
        from fsmq.pipeline.jobs import upkeep

        shares = upkeep.shares_of(to)
        with progress(spark, "moving"):
            found = upkeep.rebalance(spark, str(root.resolve()), queues, shares, dry_run=dry_run)
    summary(found, as_json)
