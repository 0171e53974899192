"""``fsmq log publish``: a file, standard input or its lines become messages of a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fsmq.cli import output
from fsmq.cli.input import parts_of
from fsmq.cli.messages.put import body_of, opened
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    attribute_option,
    attributes_of,
    body_option,
    content_type_option,
    file_argument,
    log_argument,
)
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool import LogEntry

# How many messages share a sync at most; HTTP takes no more in one request.
_TOGETHER = 1000


@click.command("publish")
@log_argument
@file_argument
@at_option
@body_option
@click.option("--key", help="Messages of one key stay in order.")
@click.option("--id", "own_id", metavar="ID", help="An ID published before stores nothing.")
@click.option("--lines", is_flag=True, help="Every line is a message.")
@click.option("--null", "-0", is_flag=True, help="Every message ends with a zero byte.")
@content_type_option
@attribute_option
@json_option
def publish(
    log: str,
    file: Path | None,
    at: str | None,
    body: str | None,
    key: str | None,
    own_id: str | None,
    lines: bool,
    null: bool,
    content_type: str | None,
    pairs: Sequence[str],
    as_json: bool,
) -> None:
    """Publish messages to a log, and print their offsets.

    The body is FILE, --body or standard input. An offset is printed once its message is on stable
    storage.

    \b
    Examples:
      fsmq log publish users --key user-7 --body created
      tail -f events | fsmq log publish users --lines
    """
    separator = b"\0" if null else b"\n" if lines else None
    if own_id is not None and separator is not None:
        raise click.UsageError("--id names one message: give no --lines and no --null.")
    attributes = attributes_of(pairs)
    with open_place(at) as place:
        opened_log = place.log(log)

        def store(bodies: Sequence[bytes]) -> None:
            entries = [LogEntry(one, key, own_id, content_type, attributes) for one in bodies]
            for offset in opened_log.publish_many(entries):
                if as_json:
                    output.line({"log": log, "offset": offset})
                else:
                    click.echo(offset)

        if separator is None or body is not None:
            store([body_of(body, file)])
            return
        with opened(file or Path("-")) as source:
            for bodies in parts_of(source, separator, _TOGETHER):
                store(bodies)
