"""``fsmq get``: claim messages, and print them, save them, or let a command work on them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.messages.worker import Backoff, Worker
from fsmq.cli.output import json_option
from fsmq.cli.params import SPAN, claimable_argument
from fsmq.cli.place.claimable import as_message, give_back, is_several, open_claimable
from fsmq.cli.place.place import Place, at_option, open_place, report_delays
from fsmq.daemons.process.init import leave_init
from fsmq.daemons.standard_files import closed_file
from fsmq.spool import FsmqError, Message
from fsmq.spool.claimed import name_of
from fsmq.wire import MAX_WAIT_S

# How long a worker tries to reach a server, which may be restarting.
_WORKERS_PATIENCE_S = 60.0
# The visibility of claims from several queues, whose settings can differ.
_SEVERAL_VISIBILITY_S = 60.0
# At most this many are claimed, printed and acknowledged together.
_TOGETHER = 100


def _not_empty(
    context: click.Context, parameter: click.Parameter, command: str | None
) -> str | None:
    """A command for a shell. An empty one would succeed, and so acknowledge everything."""
    if command is not None and not command.strip():
        raise click.BadParameter("is empty; give the command that is to be run.")
    return command


@click.command("get")
@claimable_argument
@at_option
@click.option("--count", "-n", type=click.IntRange(1), help="At most this many.  [1; --exec: any]")
@click.option("--wait", "-w", type=SPAN, help="Time to wait for a message.  [0; --exec: forever]")
@click.option(
    "--visibility", type=SPAN, help="How long a claim holds.  [the queue's visibility_timeout]"
)
@click.option("--ack", is_flag=True, help="Acknowledge what was printed or saved.")
@click.option("--lines", is_flag=True, help="Print a line feed after each body.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write each body to FOLDER/ID, and print the ids.",
)
@json_option
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    callback=_not_empty,
    help="Run COMMAND for each message.",
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="With --exec: messages at a time.",
)
@click.option(
    "--backoff",
    type=SPAN,
    default=1.0,
    help="With --exec: delay after a first failure, doubled with each delivery.  [1 s]",
)
@click.option(
    "--backoff-max",
    type=SPAN,
    default=300.0,
    help="With --exec: the longest such delay.  [5 min]",
)
@click.option(
    "--stop-removed",
    is_flag=True,
    help="With --exec: end a command when its message is removed.",
)
@click.option("--backoff-limit", type=SPAN, hidden=True, help="As --backoff-max.")
def get(
    queue: str,
    at: str | None,
    count: int | None,
    wait: float | None,
    visibility: float | None,
    ack: bool,
    lines: bool,
    save: Path | None,
    as_json: bool,
    command: str | None,
    concurrency: int,
    backoff: float,
    backoff_max: float,
    stop_removed: bool,
    backoff_limit: float | None,
) -> None:
    """Claim messages and print them, or let a command work on them.

    A claimed message is hidden from everybody else until its claim ends.

    QUEUE can be several: fsmq get high,low takes from the first that has messages, high:3,low:1 by
    weight, and 'tenant-*' from all whose names match, in turn. FSMQ_QUEUE and --json name the queue
    of each message.

    From a channel (fsmq get users/mailer), --ack marks a message as done instead of removing it,
    and its ID is its offset.

    Without --ack a message returns when its claim ends, unless it is acknowledged before. Exits
    with 1 if there was no message.

    With --exec, COMMAND is run by a shell for each message until SIGTERM or Ctrl-C, or until
    --count messages are done or --wait has passed without one. The body is its standard
    input; it finds FSMQ_ID, FSMQ_QUEUE, FSMQ_DELIVERIES, FSMQ_PRIORITY, FSMQ_CREATED_AT,
    FSMQ_CONTENT_TYPE, FSMQ_MESSAGE_KEY (of a channel) and FSMQ_ATTRIBUTE_NAME in its environment;
    FSMQ_AT is the place, so that fsmq in COMMAND works there, too. Its exit code decides:

    \b
    0      acknowledged
    65     buried: moved to the dead-letter queue at once (EX_DATAERR: this input never works)
    126/7  COMMAND cannot be run: released, and the worker ends with 78
    other  released, to be claimed again after --backoff

    While COMMAND runs, its claim is renewed. If its message is removed (by fsmq ack elsewhere), it
    may finish; with --stop-removed it gets SIGTERM, and SIGKILL 10 s later. After a signal to the
    worker, running commands may finish; a second signal ends them and releases their messages. If
    the worker itself is killed, its messages return when their claims end.

    \b
    Examples:
      fsmq get jobs --ack
      fsmq get jobs --json
      fsmq get jobs --exec 'convert - out/$FSMQ_ID.png' --concurrency 4
    """
    if command is not None:
        leave_init()
        if ack or lines or save or as_json:
            raise click.UsageError("--exec goes without --ack, --lines, --save and --json.")
        if visibility is not None and visibility < 1:
            raise click.UsageError("--visibility must be at least 1 s with --exec.")
        if visibility is None and is_several(queue):
            visibility = _SEVERAL_VISIBILITY_S
        with open_place(at, patience=_WORKERS_PATIENCE_S) as place:
            report_delays(place)
            worker = Worker(
                queue,
                partial(open_claimable, place),
                command,
                concurrency=concurrency,
                visibility=visibility,
                backoff=Backoff(backoff, backoff_max if backoff_limit is None else backoff_limit),
                at=place.where,
                stop_removed=stop_removed,
            )
            sys.exit(worker.run(count, wait))
    if stop_removed:
        raise click.UsageError("--stop-removed goes with --exec.")
    if save is not None and as_json:
        raise click.UsageError("Give --save or --json, not both.")
    printer: _Printer = _Json() if as_json else _Saved(save) if save else _Bodies(lines, ack)
    with open_place(at) as place:
        if wait:
            report_delays(place)
        opened = open_claimable(place, queue)
        given = 0
        for messages in _claimed(opened, count or 1, visibility, wait or 0.0):
            _give_out(place, messages, printer, ack)
            given += len(messages)
    if not given:
        sys.exit(Exit.NOTHING)


class _Printer(Protocol):
    def give(self, message: Message) -> None:
        """Print or save a message, unbuffered. Raises OSError."""


class _Json:
    def give(self, message: Message) -> None:
        output.line(output.of_message(message))


class _Saved:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def give(self, message: Message) -> None:
        (self._folder / message.id).write_bytes(message.body)
        output.text(message.id)


class _Bodies:
    """Prints bodies as they are, and at a terminal how to acknowledge the message."""

    def __init__(self, lines: bool, ack: bool) -> None:
        self._lines = lines
        self._hints = sys.stdout.isatty() and sys.stderr.isatty() and not ack
        self._closes_lines = sys.stdout.isatty()

    def give(self, message: Message) -> None:
        ends = self._lines or (self._closes_lines and not message.body.endswith(b"\n"))
        output.raw(message.body + b"\n" if ends else message.body)
        if self._hints and message.deadline is not None:
            left = output.span(message.deadline - time.time())
            report(f"yours for {left}; when it is done: fsmq ack {message.queue} {message.id}")


def _claimed(
    queue: Any, count: int, visibility: float | None, wait: float
) -> Iterator[Sequence[Any]]:
    """Claim ``count`` messages, or as many as there are; only the first claim waits."""
    end = time.monotonic() + wait
    while count > 0:
        left = max(0.0, end - time.monotonic())
        messages = queue.claim(min(count, _TOGETHER), visibility, min(left, MAX_WAIT_S))
        if messages:
            yield messages
            count -= len(messages)
            end = 0.0
        elif left <= MAX_WAIT_S:
            return


def _give_out(place: Place, messages: Sequence[Any], printer: _Printer, ack: bool) -> None:
    """Print messages, and acknowledge them if asked to; release those that cannot be printed."""
    given = 0
    try:
        for message in messages:
            printer.give(as_message(message))
            given += 1
    except OSError as error:
        if ack and given:
            _ack(place, messages[:given])
        for message in messages[given:]:
            try:
                give_back(open_claimable(place, message.queue), message)
            except FsmqError:
                pass  # it returns when its claim ends
        if isinstance(error, BrokenPipeError):
            # Nobody reads our output any more: Python's flush at exit must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        problem = f"cannot print the claimed messages: {closed_file(error) or error.strerror}"
        raise Failure(problem, Exit.UNAVAILABLE, "it was released") from error
    if ack:
        _ack(place, messages)


def _ack(place: Place, messages: Sequence[Any]) -> None:
    """Acknowledge messages, each in its queue."""
    for queue in dict.fromkeys(message.queue for message in messages):
        of_queue = [message for message in messages if message.queue == queue]
        outcomes = open_claimable(place, queue).ack_each(of_queue)
        for message, what in zip(of_queue, outcomes, strict=True):
            if what == "ended":
                report(f"{name_of(message)}: its claim has ended; another consumer may get it, too")
