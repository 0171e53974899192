"""``fsmq redrive``: dead letters go back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.messages.real_id import report_whole_ids
from fsmq.cli.output import bar, json_option
from fsmq.cli.params import QUEUE, queue_argument
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.spool import Spool
from fsmq.spool.moves.order import Move
from fsmq.spool.verbs.moves.redrive import Redriven
from fsmq.wire import move_as_json
from fsmq.words import many

_LOOK_S = 0.2


@click.command("redrive")
@queue_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option
@click.option("--to", type=QUEUE, help="Where all go.  [each back to its own queue]")
@click.option("--rate", type=float, metavar="N", help="At most this many messages a second.")
@click.option("--follow", is_flag=True, help="Wait until it is done.")
@json_option
def redrive(
    queue: str,
    ids: Sequence[str],
    at: str | None,
    to: str | None,
    rate: float | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Bring dead letters back to the queues from which they were buried: all, or some.

    Their deliveries count from 0 again. A server redrives all of them, or up to 1000 IDs at a rate,
    in the background, even if it is restarted; the reference of the move is printed: see fsmq
    move list. On a folder this command does the work itself.

    Exits with 4 if dead letters stayed: their origin is unknown, is a log, is gone, or has a
    message with the same id. Exits with 3 if one of the IDs is not there.

    \b
    Examples:
      fsmq redrive jobs.dead
      fsmq redrive jobs.dead order-4713
      fsmq redrive jobs.dead --rate 10 --follow
    """
    with open_place(at, create=False) as place:
        if ids and rate is None:
            done = place.queue(queue).redrive(only=ids, to=to)
            if done.moved + done.conflicts + done.no_origin < len(set(ids)):
                report_whole_ids(place, queue, ids)
            _end_of_some(queue, ids, done, as_json)
            return
        move = place.begin_redrive(queue, to=to, rate=rate, only=ids or None)
        if not follow and not isinstance(place, Spool):
            _in_the_background(move, as_json)
            return
        with bar("redriving", 1, wanted=not as_json) as show:
            move = _followed(place, move, lambda now: show(now.moved, now.total))
    _end_of_all(move, as_json)
    if ids and move.status == "complete":
        _report_missing(len(set(ids)) - move.moved)


def _followed(place: Place, move: Move, progress: Callable[[Move], object]) -> Move:
    """Wait for the end of a move, and return it. On a folder this process makes the move."""
    if isinstance(place, Spool):
        return place.make_move(move.ref, progress) or move
    while move.status == "in_progress":
        time.sleep(_LOOK_S)
        move = place.find_move(move.ref) or move
        progress(move)
    return move


def _in_the_background(move: Move, as_json: bool) -> None:
    if as_json:
        output.document(move_as_json(move))
    else:
        click.echo(move.ref)  # alone, for scripts
        report("the server redrives in the background: see fsmq move list, or wait with --follow")


def _end_of_some(queue: str, ids: Sequence[str], done: Redriven, as_json: bool) -> None:
    if as_json:
        output.document({"queue": queue, **done._asdict()})
    else:
        click.echo(f"{many(done.moved, 'message')} redriven from {queue}")
    if stay := done.conflicts + done.no_origin:
        report(
            f"{many(stay, 'message')} stayed: of the same id as one there, or without a queue to"
            " go to (they came from a log, say); name one with --to"
        )
        sys.exit(Exit.EXISTS)
    _report_missing(len(set(ids)) - done.moved)


def _report_missing(count: int) -> None:
    if count:
        report(f"{many(count, 'message')} did not move: not there, or claimed")
        sys.exit(Exit.NOT_FOUND)


def _end_of_all(move: Move, as_json: bool) -> None:
    if as_json:
        output.document(move_as_json(move))
    else:
        click.echo(f"{many(move.moved, 'message')} redriven from {move.source}")
    if move.error is not None:
        report(move.error)
        sys.exit(Exit.EXISTS)
    if move.status == "stopped":
        report("it was stopped before its end")
        sys.exit(Exit.NOTHING)
