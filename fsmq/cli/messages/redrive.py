"""``fsmq redrive`` and ``fsmq moves``: dead letters go back; what moves in the background."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.output import bar, json_option
from fsmq.cli.params import QUEUE, queue_argument
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.spool import Spool
from fsmq.spool.moves.order import MAX_LISTED, Move
from fsmq.spool.verbs.moves.redrive import Redriven
from fsmq.wire import move_as_json
from fsmq.words import many

_LOOK_S = 0.2


@click.command("redrive")
@queue_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option
@click.option("--to", type=QUEUE, help="Where all go.  [each to where it was buried]")
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

    \b
    fsmq redrive jobs.dead                  all that are ready
    fsmq redrive jobs.dead 019a… 019b…      only these
    fsmq redrive jobs.dead --rate 10 --follow

    Their deliveries count from 0 again. A server redrives all in the background, or up to 1000 IDs
    at a rate, goes on after a kill, and its reference is printed: see fsmq moves. On a folder this
    command does it.

    Exits with 4 if dead letters stayed: nothing says where they came from, it was a log, or that
    queue is gone, or has one of the same id. Exits with 3 if one of the IDs is not there.
    """
    with open_place(at, create=False) as place:
        if ids and rate is None:
            done = place.queue(queue).redrive(only=ids, to=to)
            _end_of_some(queue, ids, done, as_json)
            return
        move = place.begin_redrive(queue, to=to, rate=rate, only=ids or None)
        if not follow and not isinstance(place, Spool):
            output.document(move_as_json(move)) if as_json else click.echo(move.ref)
            return
        with bar("redriving", 1, wanted=not as_json) as show:
            move = _followed(place, move, lambda now: show(now.moved, now.total))
    _end_of_all(move, as_json)
    if ids and move.status == "complete":
        _report_missing(len(set(ids)) - move.moved)


def _followed(place: Place, move: Move, progress: Callable[[Move], object]) -> Move:
    """A move when it has ended. On a folder this process makes it."""
    if isinstance(place, Spool):
        return place.make_move(move.ref, progress) or move
    while move.status == "in_progress":
        time.sleep(_LOOK_S)
        move = place.find_move(move.ref) or move
        progress(move)
    return move


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


@click.command("moves")
@click.argument("refs", nargs=-1, metavar="[REF]...")
@at_option
@click.option("--stop", is_flag=True, help="End these moves early; what has moved stays.")
@click.option("--count", "-n", type=click.IntRange(1, MAX_LISTED), default=100, show_default=True)
@json_option
def moves(refs: Sequence[str], at: str | None, stop: bool, count: int, as_json: bool) -> None:
    """List the moves in the background, the newest first; or show some, or stop them.

    They are begun by fsmq redrive and over HTTP. Exits with 3 if one of the REFs does not exist.
    """
    if stop and not refs:
        raise click.UsageError("Give the REF of each move to be stopped.")
    with open_place(at) as place:
        if refs:
            given = [place.stop_move(ref) if stop else place.find_move(ref) for ref in refs]
        else:
            given = list(place.moves(count))
    found = [move for move in given if move is not None]
    if as_json:
        output.document({"moves": [move_as_json(move) for move in found]})
    elif found:
        _table(found)
    for ref, move in zip(refs, given, strict=False):
        if move is None:
            report(f"{ref}: there is no such move")
    if len(found) < len(refs):
        sys.exit(Exit.NOT_FOUND)


def _table(found: Sequence[Move]) -> None:
    output.table(
        ["MOVE", "FROM", "TO", "STATUS", "MOVED", "OF", "STAY", "RATE"],
        [
            [
                move.ref,
                move.source,
                move.target or "(each home)",
                move.status.replace("_", " "),
                str(move.moved),
                "?" if move.total is None else str(move.total),
                str(move.conflicts + move.no_origin),
                "-" if move.rate is None else f"{move.rate:g}/s",
            ]
            for move in found
        ],
        left=4,
    )
