"""``fsmq mv``: messages from one queue to another."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.output import bar, json_option
from fsmq.cli.params import QUEUE
from fsmq.cli.place.place import at_option, open_place
from fsmq.words import many


@click.command("mv")
@click.argument("source", type=QUEUE)
@click.argument("target", type=QUEUE)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option
@click.option("--in-flight", is_flag=True, help="Also move claimed and delayed messages.")
@click.option("--create", is_flag=True, help="Create the TARGET if it is missing.")
@json_option
def mv(
    source: str,
    target: str,
    ids: Sequence[str],
    at: str | None,
    in_flight: bool,
    create: bool,
    as_json: bool,
) -> None:
    """Move messages to another queue: all that are ready, or some.

    \b
    fsmq mv jobs.dead jobs              try buried messages again
    fsmq mv jobs slow 019a… 019b…       only these

    Each message moves by one rename, with its id, age and deliveries. Claimed and delayed
    messages stay, unless --in-flight is given. Exits with 3 if one of the IDs did not move, with 4
    if messages stayed because the target has their ids already.
    """
    with open_place(at, create=False) as place:
        if create:
            place.create_queue(target)
        opened = place.queue(source)
        total = len(ids) or opened.counts().total
        with bar("moving", total, wanted=not as_json) as show:
            moved = opened.move_to(target, only=ids or None, in_flight=in_flight, progress=show)
    if as_json:
        output.document({"source": source, "target": target, **moved._asdict()})
    elif not ids or moved.moved != 1:
        click.echo(f"{many(moved.moved, 'message')} moved from {source} to {target}")
    if moved.conflicts:
        report(
            f"{many(moved.conflicts, 'message')} stayed: {target} has one of the same id already,"
            " or its name leaves no room for the id"
        )
        sys.exit(Exit.EXISTS)
    if ids and moved.moved < len(ids):
        report(f"{many(len(ids) - moved.moved, 'message')} did not move: not there, or in flight")
        sys.exit(Exit.NOT_FOUND)
