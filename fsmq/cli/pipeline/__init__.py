"""``fsmq pipeline``: the jobs that run on Spark."""

import click

from fsmq.cli.group import Fsmq

JOBS: dict[str, dict[str, str]] = {
    "Analytics": {
        "journal": "fsmq.cli.pipeline.journal:journal",
        "report": "fsmq.cli.pipeline.report:report",
    },
    "Into queues": {
        "load": "fsmq.cli.pipeline.load:load",
        "replay": "fsmq.cli.pipeline.replay:replay",
    },
    "Jobs": {
        "archive": "fsmq.cli.pipeline.archive:archive",
        "app": "fsmq.cli.pipeline.app:app",
    },
}
"""Every job, as in `fsmq.cli.COMMANDS`; Spark is loaded when one runs, not for help."""


@click.group(cls=Fsmq, commands_by_section=JOBS)
def pipeline() -> None:
    """Heavy data work on Spark: archive, replay, load, analytics.

    Needs pip install fsmq[spark] and Java 17 or newer. On a cluster: spark-submit "$(fsmq pipeline
    app)" JOB …

    \b
    Examples:
      fsmq pipeline archive jobs --to archive
    """
