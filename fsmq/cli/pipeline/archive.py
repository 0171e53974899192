"""``fsmq pipeline archive``: a queue as Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsmq.cli.pipeline.running import (
    absolute,
    await_stream,
    job_options,
    noting_option,
    progress,
    spark_session,
    summary,
)
from fsmq.cli.place.place import root_option


@click.command("archive")
@click.argument("queues", nargs=-1, required=True)
@root_option
@click.option("--to", "folder", required=True, metavar="DIR", help="Folder of the archive.")
@click.option("--copy", is_flag=True, help="Copy what is in the queues; acknowledge nothing.")
@click.option(
    "--batch",
    "messages",
    type=click.IntRange(1),
    default=50_000,
    show_default=True,
    metavar="MESSAGES",
    help="How many messages are written, then acknowledged, at a time.",
)
@click.option(
    "--max-body-bytes",
    "limit",
    type=click.IntRange(1, 2_000_000_000),  # as for a snapshot
    default=64 * 2**20,
    show_default=True,
    metavar="BYTES",
    help="The largest message; a larger one fails the run.",
)
@click.option(
    "--consumer",
    metavar="NAME",
    help="The name of the consumer.  [default: made from --to]",
)
@noting_option
@job_options
def archive(
    queues: tuple[str, ...],
    root: Path,
    folder: str,
    copy: bool,
    messages: int,
    limit: int,
    consumer: str | None,
    journal: bool | None,
    master: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move what is ready in QUEUES (names and globs) into Parquet files, and acknowledge it.

    The files are queue=…/day=…/batch=…/*.parquet under --to, and `fsmq pipeline replay` puts them
    back. If it was stopped or killed, run it again with the same --to: nothing is lost, and nothing
    is archived twice.

    --copy takes messages in all states, leaves them where they are, and adds to the archive only
    those that it does not have.

    \b
    Examples:
      fsmq pipeline archive jobs --to archive
      fsmq pipeline archive 'jobs*' --to archive --copy
    """
    place, spool = absolute(folder), str(root.resolve())
    with spark_session("archive", master) as spark:
        from fsmq.pipeline.jobs import archive as job
        from fsmq.pipeline.journal.job import only_one

        if dry_run:
            found: dict[str, Any] = job.look(spool, queues)
        else:
            job.check(spool, queues, place, consumer)
            with only_one(place), progress(spark, "archiving"):
                if copy:
                    found = job.copy(spark, spool, queues, place, limit=limit)
                else:
                    found = job.drain(
                        spark,
                        spool,
                        queues,
                        place,
                        consumer=consumer,
                        messages=messages,
                        limit=limit,
                        journal=journal,
                        run=await_stream,
                    )
        summary({**found, "archive": place}, as_json)
