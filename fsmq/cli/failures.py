"""How a verb fails: the exit code, what happened, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Self

import click

from fsmq.daemons.misuse import Told
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
from fsmq.words import meant

GIVEN = "fsmq.at"
"""The key of a context's ``meta`` for the place that a command was given; advice repeats it."""

QUEUES = "fsmq.queues"
"""The key for a function that lists the queues of that place."""


DEFAULT_PLACE = "fsmq.default"
"""The key for the place of a command if nobody has said where it is."""


class Exit(IntEnum):
    """The exit codes of all verbs; docs/cli.md has the table."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    DONE = 0, "done"
    NOTHING = (
        1,
        "there was nothing to get or to peek at, or no queue matched a pattern of `queue list`;"
        " `fsck`, `doctor`, `backup` and `restore`: see there",
    )
    USAGE = 2, "wrong usage, or an invalid value"
    NOT_FOUND = 3, "no such queue, message, log or channel; not in flight; removed by retention"
    EXISTS = 4, "the id exists already, at a put or a move"
    BAD_DATA = 65, "only from the command of `get --exec`: bury the message"
    UNAVAILABLE = 69, "no answer, the disk refuses, or the consumer is in use: try again later"
    INTERNAL = 70, "a bug of fsmq"
    FORBIDDEN = 77, "the server needs a key, or another one"
    UNUSABLE = (
        78,
        "the folder is not a spool, or cannot be used as one; a package that fsmq needs, or the"
        " command of `get --exec`, is missing",
    )
    INTERRUPTED = 130, "Ctrl-C"


class Failure(Told):
    """An error with its exit code."""

    def __init__(self, message: str, code: Exit, advice: str = "") -> None:
        super().__init__(message, advice)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click means a class variable
        """For click."""
        return self.code


def report(message: str) -> None:
    """Print a line about a problem or an outcome on stderr."""
    click.echo(f"fsmq: {printable(message)}", err=True)


_ADVICE: dict[type[FsmqError], tuple[Exit, str]] = {
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
    UnusableSpool: (Exit.UNUSABLE, ""),  # it says itself what to do
}

_CLIENTS = {
    "ConnectionFailed": (
        Exit.UNAVAILABLE,
        "is mq running there? fsmq up starts it; --at or FSMQ_AT give another place",
    ),
    "AccessDenied": (Exit.FORBIDDEN, "set FSMQ_KEY to a key with this right"),
    "UnexpectedAnswer": (Exit.UNAVAILABLE, "is this a server of fsmq, and as new as this fsmq?"),
}

# OpenSSL's words for a certificate that nobody known has signed.
_unknown_issuer = re.compile("issuer certificate|self.signed certificate")
_UNTRUSTED = (
    "name a file of the authorities to trust, in PEM: SSL_CERT_FILE=ca.crt; a copy of the server's"
    " own certificate does, if it has signed itself"
)


def failure(error: FsmqError, ctx: click.Context) -> Failure:
    """The failure of a command for an error of the spool or of a server."""
    at: str | None = ctx.meta.get(GIVEN)
    place = f" --at {shlex.quote(at)}" if at else ""
    # Compared by name, because a command on a folder has not loaded the client.
    if type(error).__name__ in _CLIENTS:
        return _of_client(error)
    if isinstance(error, NoSuchQueue):
        return _no_queue(error.queue, place, ctx)
    if isinstance(error, NoSuchTopic):
        message = f"there is no topic named {error.topic!r}"
        advice = f"create it: fsmq topic create {error.topic}{place}"
        return Failure(message, Exit.NOT_FOUND, advice)
    if isinstance(error, NoSuchSchedule):
        message = f"there is no schedule named {error.schedule!r}"
        return Failure(message, Exit.NOT_FOUND, f"fsmq schedule list{place} lists them")
    if isinstance(error, NoSuchLog):
        message = f"there is no log named {error.log!r}"
        return Failure(message, Exit.NOT_FOUND, f"create it: fsmq log create {error.log}{place}")
    if isinstance(error, NoSuchChannel):
        message = f"log {error.log!r} has no channel named {error.channel!r}"
        advice = f"create it: fsmq channel create {error.log} {error.channel}{place}"
        return Failure(message, Exit.NOT_FOUND, advice)
    if isinstance(error, InvalidValue):  # "null" is the word of JSON
        return Failure(str(error).replace(", or null", ", or none", 1), Exit.USAGE)
    for kind in type(error).__mro__:
        if kind in _ADVICE:
            code, advice = _ADVICE[kind]
            return Failure(str(error), code, advice)
    return Failure(str(error), Exit.INTERNAL)


def _of_client(error: FsmqError) -> Failure:
    message = str(error)
    code, advice = _CLIENTS[type(error).__name__]
    if "certificate verify failed" in message:
        advice = _UNTRUSTED if _unknown_issuer.search(message) else ""
    return Failure(message, code, advice)


def _no_queue(queue: str, place: str, ctx: click.Context) -> Failure:
    """The failure for a missing queue; place: the option for the commands in the advice."""
    queues: Callable[[], Sequence[str]] | None = ctx.meta.get(QUEUES)
    default: str | None = ctx.meta.get(DEFAULT_PLACE)
    message = f"there is no queue named {queue!r}{f' in {default}' if default else ''}"
    if queues is not None and (near := meant(queue, queues())):
        message += f"; {near}"
    advice = f"create it: fsmq queue create {queue}{place}"
    if default:
        advice += "; or give another place with --at or FSMQ_AT"
    return Failure(message, Exit.NOT_FOUND, advice)
