"""``fsmq pipeline app``: the jobs as an application for spark-submit."""

from pathlib import Path

import click


@click.command("app")
def app() -> None:
    """Print the path of the application that spark-submit takes.

    \b
    Examples:
      spark-submit --master spark://host:7077 "$(fsmq pipeline app)" archive jobs --to archive
    """
    click.echo(Path(__file__).with_name("__main__.py"))
