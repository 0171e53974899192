"""``fsmq pipeline replay``: messages of an archive go back into queues."""

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


@click.command("replay")
@click.argument("archive")
@root_option
@click.option(
    "--queue", "queues", metavar="QUEUES", help="Only messages of these queues: names and globs."
)
@click.option(
    "--since", metavar="TIME", help="Only those created at this time or later: 2026-11-21 08:00."
)
@click.option("--until", metavar="TIME", help="Only those created before this time.")
@click.option("--where", metavar="EXPR", help="Only those that match this SQL: priority = 0.")
@click.option("--to", metavar="QUEUE", help="Put all of them here.  [default: their own queues]")
@click.option("--renew", is_flag=True, help="Give new ids.  [default: the ids that they had]")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="NUMBER",
    help="Messages a second that become ready: each has a delay, counted from the commit.",
)
@putting_options
@job_options
def replay(
    archive: str,
    root: Path,
    queues: str | None,
    since: str | None,
    until: str | None,
    where: str | None,
    to: str | None,
    renew: bool,
    rate: float | None,
    job: str | None,
    create_queues: bool,
    rejected_rows: str | None,
    journal: bool | None,
    master: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put messages of an archive back into queues, with all their properties.

    Messages that have expired, or whose ids are in their queues already, are left out. The same
    options on the same archive are one job, which is done once: if it was stopped, run it again;
    --job NAME replays once more under another name.

    \b
    Examples:
      fsmq pipeline replay archive --queue jobs --since '2026-11-21 08:00'
      fsmq pipeline replay archive --to jobs.again --rate 100
    """
    place = absolute(archive)
    with spark_session("replay", master) as spark:
        from fsmq.pipeline.jobs import replay as job_replay
        from fsmq.pipeline.jobs.sending import Plan, name_of

        wish = job_replay.Wish(queues, since, until, where, to, renew, rate)
        name = job or name_of("replay", place, wish)
        aside = absolute(rejected_rows) if rejected_rows is not None else None
        plan = Plan(str(root.resolve()), name, to, create_queues, aside, journal=journal)
        with progress(spark, "replaying"):
            found = job_replay.replay(spark, plan, place, wish, dry_run=dry_run)
    summary(found, as_json)
