"""``fsmq move``: the moves in the background."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.output import json_option
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool.moves.order import MAX_LISTED, Move
from fsmq.wire import move_as_json


@click.command("list")
@click.argument("refs", nargs=-1, metavar="[REF]...")
@at_option
@click.option("--count", "-n", type=click.IntRange(1, MAX_LISTED), default=100, show_default=True)
@json_option
def list_moves(refs: Sequence[str], at: str | None, count: int, as_json: bool) -> None:
    """List the moves in the background, the newest first, or some of them.

    They are begun by fsmq redrive and over HTTP. Exits with 3 if one of the REFs does not exist.

    \b
    Examples:
      fsmq move list
    """
    with open_place(at) as place:
        found = [place.find_move(ref) for ref in refs] if refs else list(place.moves(count))
    _show(refs, found, as_json)


@click.command("stop")
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@at_option
@json_option
def stop(refs: Sequence[str], at: str | None, as_json: bool) -> None:
    """End moves early; what has moved stays. Exits with 3 if one of the REFs does not exist.

    \b
    Examples:
      fsmq move stop 019a2c3e-7b1d-7c4a-9f00-5d2b8c1e6f42
    """
    with open_place(at) as place:
        found = [place.stop_move(ref) for ref in refs]
    _show(refs, found, as_json)


def _show(refs: Sequence[str], given: Sequence[Move | None], as_json: bool) -> None:
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
