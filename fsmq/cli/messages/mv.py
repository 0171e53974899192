"""``fsmq mv``: messages from one queue to another."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.messages.real_id import report_whole_ids
from fsmq.cli.output import bar, json_option
from fsmq.cli.params import QUEUE
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.cli.queues.shards import shards_of
from fsmq.spool import Moved
from fsmq.words import many


@click.command("mv")
@click.argument("source", type=QUEUE)
@click.argument("target", type=QUEUE)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option
@click.option("--in-flight", is_flag=True, help="Also move claimed and delayed messages.")
@click.option("--rate", type=float, metavar="N", help="At most this many messages a second.")
@click.option("--create", is_flag=True, help="Create the TARGET if it is missing.")
@json_option
def mv(
    source: str,
    target: str,
    ids: Sequence[str],
    at: str | None,
    in_flight: bool,
    rate: float | None,
    create: bool,
    as_json: bool,
) -> None:
    """Move messages to another queue: all that are ready, or some.

    Each message moves by one rename, with its id, age and deliveries. Claimed and delayed
    messages stay, unless --in-flight is given. The shards of a queue of dyno-queues move to those
    of TARGET, or to TARGET if it is a queue itself.

    Exits with 3 if one of the IDs did not move, with 4 if messages stayed because the target has
    their ids already.

    \b
    Examples:
      fsmq mv jobs slow
      fsmq mv jobs slow order-4712
      fsmq mv jobs slow --rate 100 --create
    """
    with open_place(at, create=False) as place:
        moved = Moved()
        for one, other in _pairs(place, source, target, create):
            opened = place.queue(one)
            total = len(ids) or opened.counts().total
            with bar("moving", total, wanted=not as_json) as show:
                done = opened.move_to(
                    other, only=ids or None, in_flight=in_flight, rate=rate, progress=show
                )
            if ids and done.moved + done.conflicts < len(ids):
                report_whole_ids(place, one, ids)
            moved = Moved(moved.moved + done.moved, moved.conflicts + done.conflicts)
    if as_json:
        output.document({"source": source, "target": target, **moved._asdict()})
    elif not ids or moved.moved != 1:
        click.echo(f"{many(moved.moved, 'message')} moved from {source} to {target}")
    if moved.conflicts:
        report(
            f"{many(moved.conflicts, 'message')} stayed: {target} has one of the same id already,"
            " its name leaves no room for the id, or they cannot be read"
        )
        sys.exit(Exit.EXISTS)
    if ids and moved.moved < len(ids):
        report(f"{many(len(ids) - moved.moved, 'message')} did not move: not there, or in flight")
        sys.exit(Exit.NOT_FOUND)


def _pairs(place: Place, source: str, target: str, create: bool) -> list[tuple[str, str]]:
    """Pairs of source and target queues; shards move to shards of the same name."""
    shards = shards_of(place, source)
    if not shards or place.has_queue(target):
        if create:
            place.create_queue(target)
        return [(one, target) for one in shards or [source]]
    pairs = [(one, target + one.removeprefix(source)) for one in shards]
    if create:
        for _, other in pairs:
            place.create_queue(other, index=True)
    return pairs
