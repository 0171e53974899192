"""Mistakes on a command line, told by every program in the same two lines.

Click would print three: the usage, where help is, and the mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import click

from fsmq.spool.fsck import printable
from fsmq.words import asked


class Told(click.ClickException):
    """An error for people: one line for what happened, one for what to do."""

    exit_code = 2

    def __init__(self, message: str, advice: str = "", program: str = "fsmq") -> None:
        super().__init__(message)
        self.advice = advice
        self.program = program

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr."""
        click.echo(f"{self.program}: {printable(self.message)}", err=True)
        if self.advice:
            click.echo(f"      {printable(self.advice)}", err=True)


def misuse(
    error: click.UsageError, command: str, elsewhere: Mapping[str, str] | None = None
) -> click.ClickException:
    """The error for a mistake on the command line. command: as it is typed, if click has not noted.

    elsewhere: where options belong that this command does not take, in words.
    Without arguments click shows the help of a group: that stays as it is.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error
    if error.ctx is not None:
        command = error.ctx.command_path
    problem = error.format_message().strip().rstrip(".")
    advice = f"{command} --help says more"
    if isinstance(error, click.NoSuchOption):
        problem, near = f"there is no option {error.option_name}", asked(error.possibilities or ())
        if elsewhere and error.option_name in elsewhere:
            advice = elsewhere[error.option_name]
        elif near:
            problem = f"{problem}; {near}"
    words = problem[:1].lower() + problem[1:]
    return Told(words, advice, command.partition(" ")[0])
