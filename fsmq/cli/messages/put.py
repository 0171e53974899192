"""``fsmq put``: files, standard input or its lines become messages."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, failure, report
from fsmq.cli.input import parts_of
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    SPAN,
    attribute_option,
    attributes_of,
    body_bytes,
    body_option,
    content_type_option,
    dedup_id_option,
    group_option,
    priority_option,
    queue_argument,
    ttl_option,
)
from fsmq.cli.place.place import Queue, at_option, open_place
from fsmq.spool import FsmqError, NewMessage
from fsmq.words import many

# Lines of one batch, which is stored whole or not at all.
_BATCH = 250


@click.command("put")
@queue_argument
@click.argument(
    "files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True), metavar="[FILE]..."
)
@at_option
@body_option
@click.option("--lines", is_flag=True, help="Every line is a message, without its line feed.")
@click.option("--delay", type=SPAN, help="How long to hide it first.  [the queue's default_delay]")
@priority_option
@ttl_option
@click.option(
    "--id",
    "own_id",
    metavar="ID",
    help="An id of your own: a second put of it with the same priority and ttl fails.",
)
@group_option
@dedup_id_option
@content_type_option
@attribute_option
@click.option("--create", is_flag=True, help="Create the queue and the spool if they are missing.")
@click.option(
    "--watch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Put each file that comes into FOLDER.",
)
@click.option("--recursive", is_flag=True, help="With --watch: watch the folders in it, too.")
@click.option("--glob", metavar="PATTERN", help="With --watch: only files with such names.  [*]")
@click.option(
    "--done",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="With --watch: where stored files are moved.  [done, in the FOLDER watched]",
)
@click.option(
    "--settle", type=SPAN, help="With --watch: how long a file must be unchanged first.  [0]"
)
@json_option
def put(
    queue: str,
    files: Sequence[Path],
    at: str | None,
    body: str | None,
    lines: bool,
    delay: float | None,
    priority: int,
    ttl: float | None,
    own_id: str | None,
    group: str | None,
    dedup_id: str | None,
    content_type: str | None,
    pairs: Sequence[str],
    create: bool,
    watch: Path | None,
    recursive: bool,
    glob: str | None,
    done: Path | None,
    settle: float | None,
    as_json: bool,
) -> None:
    """Put messages into a queue, and print their ids, one a line.

    A message is --body, or each FILE (- is standard input); without them standard input is one.

    An id is printed once its message is on stable media. If something fails in the middle, the
    messages whose ids were printed are stored, and no others. A put that may have failed can be
    repeated with the same --id: exit code 4 says that it is stored already.

    With --watch each file that comes into FOLDER is put, until the command is stopped: when its
    writer has closed it, or when it was moved there; files that are there at the start, too. Once
    its message is stored, it is moved to --done. Files whose names begin with a dot or end like
    .part or .tmp are ignored. If the command is stopped, even killed, and started again, no file is
    lost, and none is put twice while its message still exists. The attribute "file" of a message is
    its path in FOLDER. Files that are too large stay where they are, and are reported once.

    With --json it prints a line {"queue": …, "id": …} for each message.

    \b
    Examples:
      fsmq put jobs --body hello --delay 10m
      tail -f log | fsmq put jobs --lines
      fsmq put jobs --watch inbox
    """
    if body is not None and files:
        raise click.UsageError("Give --body or FILEs, not both.")
    if own_id is not None and (lines or len(files) > 1):
        raise click.UsageError("--id names one message: give one FILE, and no --lines.")
    if dedup_id is not None and (lines or len(files) > 1 or watch is not None):
        raise click.UsageError("--dedup-id names one message: give one FILE, no --lines, --watch.")
    if watch is not None and (body is not None or files or lines or own_id is not None):
        raise click.UsageError("--watch goes without FILEs, --body, --lines and --id.")
    if watch is None and (recursive or (glob, done, settle) != (None, None, None)):
        raise click.UsageError("--recursive, --glob, --done and --settle are for --watch.")
    attributes = attributes_of(pairs)
    like = NewMessage(b"", delay, priority, ttl, own_id, content_type, attributes, group, dedup_id)
    with open_place(at, create=create) as place:
        if create:
            place.create_queue(queue)
        if watch is not None:
            # Imported here, because it takes long to load.
            from fsmq.cli.messages.drop.drop import watch_folder

            drop = (watch, done, glob or "*", recursive, like, as_json, settle or 0.0)
            sys.exit(watch_folder(place, queue, *drop))
        storing = _Storing(place.queue(queue), queue, like, as_json)
        if body is not None:
            content = body_bytes(body)
            storing.store(content.split(b"\n") if lines else [content])
        for file in files or ([] if body is not None else [Path("-")]):
            with opened(file) as source:
                storing.lines_of(source) if lines else storing.store([source.read()])


class _Storing:
    """Stores messages that differ only in their bodies, and prints their ids."""

    def __init__(self, queue: Queue, name: str, like: NewMessage, as_json: bool) -> None:
        self._queue = queue
        self._name = name
        self._like = like
        self._as_json = as_json
        self._stored = 0
        # On a terminal the ids themselves show progress.
        self._shows = sys.stderr.isatty() and not sys.stdout.isatty()

    def store(self, bodies: Sequence[bytes]) -> None:
        """Store messages: all of one call, or none of them."""
        messages = [replace(self._like, body=body) for body in bodies]
        try:
            ids = self._queue.put_many(messages)
        except FsmqError as error:
            raise self._failure(error, len(bodies)) from error
        for message_id in ids:
            if self._as_json:
                output.line({"queue": self._name, "id": message_id})
            else:
                click.echo(message_id)
        self._stored += len(ids)

    def _failure(self, error: FsmqError, of: int) -> Failure:
        """The failure of a call: which of its messages, and how many are stored already."""
        # Counted from 0 within this call; people count from 1 within the input.
        index, error.index = error.index, None
        described = failure(error, click.get_current_context())
        message, advice = described.message, [described.advice] if described.advice else []
        if index is not None and self._stored + of > 1:
            message = f"message {self._stored + index + 1} of the input: {message}"
        if self._stored:
            stored = many(self._stored, "message")
            advice.append(f"{stored} of this input are stored: continue after those")
        return Failure(message, described.code, "; ".join(advice))

    def lines_of(self, source: BinaryIO) -> None:
        """Store every line as soon as it has come, in batches."""
        for bodies in parts_of(source, b"\n", _BATCH):
            self.store(bodies)
            if self._shows:
                click.echo(f"\r{many(self._stored, 'message')} stored", err=True, nl=False)
        if self._shows:
            click.echo(f"\r{many(self._stored, 'message')} stored", err=True)


def body_of(body: str | None, file: Path | None) -> bytes:
    """The message of --body or a FILE, else standard input. Raises UsageError, Failure."""
    if body is not None and file is not None:
        raise click.UsageError("Give --body or a FILE, not both.")
    if body is not None:
        return body_bytes(body)
    with opened(file or Path("-")) as source:
        return source.read()


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a FILE; ``-`` is standard input. Raises Failure."""
    if str(file) != "-":
        try:
            source = file.open("rb", buffering=0)
        except FileNotFoundError as error:
            advice = f"a text? --body {shlex.quote(str(file))}"
            raise Failure(f"cannot read {file}: no such file", Exit.USAGE, advice) from error
        except OSError as error:
            raise Failure(f"cannot read {file}: {error.strerror}", Exit.USAGE) from error
        with source:
            yield source
        return
    if sys.stdin.isatty():
        report("reading the message from the terminal: finish with Ctrl-D")
    yield sys.stdin.buffer
