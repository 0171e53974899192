"""``fsmq log read``: the messages of a log, without a channel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit
from fsmq.cli.output import json_option
from fsmq.cli.params import log_argument
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.spool import LogMessage
from fsmq.spool.log.log_places import place_in
from fsmq.wire import log_facts, with_body


@click.command("read")
@log_argument
@at_option
@click.option("--from", "start", metavar="PLACE", default="first", help="Where to begin.  [first]")
@click.option("--follow", "-f", is_flag=True, help="Wait at the end for more, until Ctrl-C.")
@click.option("--count", "-n", type=click.IntRange(1), help="At most this many.  [all]")
@click.option("--lines", is_flag=True, help="Print a line feed after each body.")
@json_option
def read(
    log: str,
    at: str | None,
    start: str,
    follow: bool,
    count: int | None,
    lines: bool,
    as_json: bool,
) -> None:
    """Print the messages of a LOG; this needs no channel, and changes nothing.

    A PLACE is an offset, a time with a time zone, first or last. Exits with 1 if there was no
    message, and with 3 if retention has removed those at PLACE.

    \b
    Examples:
      fsmq log read users --lines
      fsmq log read users --from 17 -n 1 --json
      fsmq log read users --from 2030-01-31T12:00Z --follow --lines
    """
    given = 0
    with open_place(at) as place:
        for message in _messages(place, log, start, follow, count):
            given += 1
            if as_json:
                output.line({"log": log, **of_log_message(message)})
            else:
                output.raw(message.body + b"\n" if lines else message.body)
    if not given:
        sys.exit(Exit.NOTHING)


def _messages(
    place: Place, log: str, start: str, follow: bool, count: int | None
) -> Iterator[LogMessage]:
    left = count
    size = 1000 if count is None else min(count, 1000)
    for batch in place.log(log).batches(place_in("place", start), follow=follow, count=size):
        yield from batch[:left]
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def of_log_message(message: LogMessage) -> dict[str, Any]:
    """A message of a log for JSON, with the members that docs/logs.md describes."""
    return with_body(log_facts(message), message.body)
