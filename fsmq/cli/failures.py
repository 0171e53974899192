"""How a verb fails: the exit code, what happened, and what to do next."""

from __future__ import annotations

import shlex
from enum import IntEnum
from typing import IO, Any

import click

from fsmq.spool import (
    ClaimVoid,
    ConsumerInUse,
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoSuchChannel,
    NoSuchLog,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSchedule,
    NoSuchTopic,
    NotInFlight,
    OffsetGone,
    OtherWriter,
    Unavailable,
    UnusableSpool,
)
from fsmq.spool.fsck import printable

GIVEN = "fsmq.at"
"""The place that a command was given, in its context's ``meta``: advice names it, too."""


class Exit(IntEnum):
    """What the exit code of every verb says; docs/cli.md has the table."""

    DONE = 0
    NOTHING = 1  # there was nothing to get, or findings are left
    USAGE = 2  # wrong usage, or a value that does not fit
    NOT_FOUND = 3  # no such queue, no such message
    EXISTS = 4  # a message of that id exists already
    BAD_DATA = 65  # a worker's command says so: never again, to the dead letters
    UNAVAILABLE = 69  # nobody answers, or the disk refuses: try again later
    INTERNAL = 70  # a bug of fsmq
    FORBIDDEN = 77  # the server wants a key, or another one
    UNUSABLE = 78  # the root cannot be used as a spool
    INTERRUPTED = 130


class Failure(click.ClickException):
    """An error for a person: one line for what happened, one for what to do."""

    def __init__(self, message: str, code: Exit, advice: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.advice = advice

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click means a class variable
        """For click."""
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr."""
        report(self.message)
        if self.advice:
            click.echo(f"      {printable(self.advice)}", err=True)


def report(message: str) -> None:
    """Print a line about a fault, or what became of something, on stderr."""
    click.echo(f"fsmq: {printable(message)}", err=True)


_ADVICE: dict[type[FsmqError], tuple[Exit, str]] = {
    InvalidValue: (Exit.USAGE, ""),
    MessageTooLarge: (Exit.USAGE, "raise max_message_bytes, or store the body elsewhere"),
    NoSuchQueue: (Exit.NOT_FOUND, ""),
    NoSuchMessage: (
        Exit.NOT_FOUND,
        "it was acknowledged, has expired, or is in another state: see fsmq peek QUEUE ID",
    ),
    ConsumerInUse: (Exit.UNAVAILABLE, ""),
    OffsetGone: (Exit.NOT_FOUND, "begin at first, or at an offset that is left"),
    NotInFlight: (Exit.NOT_FOUND, "its claim has ended, or it was not handed out"),
    ClaimVoid: (Exit.NOT_FOUND, "claim again"),
    OtherWriter: (Exit.UNAVAILABLE, ""),
    DuplicateMessage: (Exit.EXISTS, "nothing was stored: the message exists already"),
    Unavailable: (Exit.UNAVAILABLE, "nothing is lost; try again later"),
    UnusableSpool: (Exit.UNUSABLE, "fsmq probe shows what a folder lacks"),
}

_CLIENTS = {
    "ConnectionFailed": (
        Exit.UNAVAILABLE,
        "is mq running there? fsmq up starts it; --at or FSMQ_AT give another place",
    ),
    "AccessDenied": (Exit.FORBIDDEN, "set FSMQ_KEY to a key with this right"),
    "UnexpectedAnswer": (Exit.UNAVAILABLE, "is this a server of fsmq, and as new as this fsmq?"),
}


def failure(error: FsmqError, at: str | None = None) -> Failure:
    """The failure for an error of the spool or of a server.

    at: the place that the command was given, for commands that the advice names.
    """
    place = f" --at {shlex.quote(at)}" if at else ""
    # By name: a command on a folder has not loaded the client.
    name = type(error).__name__
    if name in _CLIENTS:
        code, advice = _CLIENTS[name]
        return Failure(str(error), code, advice)
    if isinstance(error, NoSuchQueue):
        message = f"there is no queue named {error.queue!r}"
        return Failure(message, Exit.NOT_FOUND, f"create it: fsmq create {error.queue}{place}")
    if isinstance(error, NoSuchTopic):
        message = f"there is no topic named {error.topic!r}"
        advice = f"create it: fsmq topic create {error.topic}{place}"
        return Failure(message, Exit.NOT_FOUND, advice)
    if isinstance(error, NoSuchSchedule):
        message = f"there is no schedule named {error.schedule!r}"
        return Failure(message, Exit.NOT_FOUND, f"fsmq schedule ls{place} lists them")
    if isinstance(error, NoSuchLog):
        message = f"there is no log named {error.log!r}"
        return Failure(message, Exit.NOT_FOUND, f"create it: fsmq log {error.log} --create")
    if isinstance(error, NoSuchChannel):
        message = f"log {error.log!r} has no channel named {error.channel!r}"
        create = f"create it: fsmq channel {error.log} {error.channel} --create"
        return Failure(message, Exit.NOT_FOUND, create)
    for kind in type(error).__mro__:
        if kind in _ADVICE:
            code, advice = _ADVICE[kind]
            return Failure(str(error), code, advice)
    return Failure(str(error), Exit.INTERNAL)
