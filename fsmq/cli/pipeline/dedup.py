"""``fsmq pipeline dedup``: duplicates are removed by a key."""

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


@click.command("dedup")
@click.argument("queues")
@root_option
@click.option(
    "--key",
    default="sha2(body, 256)",
    show_default=True,
    metavar="EXPR",
    help="What duplicates have in common: get_json_object(string(body), '$.order').",
)
@job_options
def dedup(
    queues: str, root: Path, key: str, master: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove messages that have the key of an older one of their queue.

    QUEUES: names and globs, comma between them. The first in delivery order stays. Only what is
    ready is looked at and removed; what is in flight or delayed is left alone. The key is SQL over
    the columns of a message; where it is null the message stays.
    """
    with spark_session("dedup", master) as spark:
        from fsmq.pipeline.jobs import upkeep

        with progress(spark, "removing"):
            found = upkeep.dedup(spark, str(root.resolve()), queues, key, dry_run=dry_run)
    summary(found, as_json)
