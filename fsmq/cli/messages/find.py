"""``fsmq find``: in which queue, and in which state, a message is."""

from __future__ import annotations

import sys
import time

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.output import json_option, span
from fsmq.cli.place.place import at_option, open_place
from fsmq.wire import moment


@click.command("find")
@click.argument("message_id", metavar="ID")
@at_option
@json_option
def find(message_id: str, at: str | None, as_json: bool) -> None:
    """Find the queue in which a message is, and its state.

    Prints a line for each queue that has a message with this ID, and its whole id there. Exits with
    3 if there is none: fsmq life shows what the journal has of it.

    \b
    Examples:
      fsmq find order-4711
    """
    with open_place(at) as place:
        found = place.find(message_id)
    if as_json:
        places = [
            {**one._asdict(), "deadline": one.deadline and moment(one.deadline)} for one in found
        ]
        output.document({"id": message_id, "places": places})
    elif found:
        now = time.time()
        output.table(
            ["QUEUE", "ID", "STATE", "DELIVERIES", "ENDS IN"],
            [
                [
                    one.queue,
                    one.id,
                    one.state,
                    "?" if one.deliveries is None else str(one.deliveries),
                    span(None if one.deadline is None else one.deadline - now),
                ]
                for one in found
            ],
            left=3,
        )
    if not found:
        report(
            f"{message_id}: it is in no queue (with a priority or a ttl it has another id);"
            " what happened to it: fsmq life QUEUE/ID"
        )
        sys.exit(Exit.NOT_FOUND)
