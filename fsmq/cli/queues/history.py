"""``fsmq queue history``: how many messages a queue had, and how many came and went."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.output import json_option, span
from fsmq.cli.params import SPAN, queue_argument
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool.records.history import HISTORY_S, Moment

_HEAD = ["TIME", "READY", "IN FLIGHT", "DELAYED", "NEW", "OLDEST"]
_HAPPENED = ["SENT", "RECEIVED", "DELETED", "REDELIVERED", "BURIED"]


@click.command("history")
@queue_argument
@at_option
@click.option(
    "--since", type=SPAN, default=HISTORY_S, help="How far back to begin.  [3h]", metavar="TIME"
)
@click.option("--step", type=SPAN, help="The time that a line covers.  [1m; 10m for more than 6h]")
@json_option
def history(queue: str, at: str | None, since: float, step: float | None, as_json: bool) -> None:
    """Show how many messages a queue had, and how many came and went.

    A line for each minute, or for each --step: the counts at its end, and what happened in it. mq
    keeps them for three days. Exits with 1 if nothing is known of this time.

    \b
    Examples:
      fsmq queue history jobs
      fsmq queue history jobs --since 2d --step 1h
    """
    with open_place(at) as place:
        begin = time.time() - since
        moments = place.history(queue, since=begin, step=step)[queue]
    if as_json:
        rows = [{"at": round(m.at * 1000), **m.figures._asdict()} for m in moments]
        output.document({"queue": queue, "moments": rows})
    elif moments:
        output.table([*_HEAD, *_HAPPENED], _rows(moments))
    if not moments:
        report(f"nothing is known of {queue}: does mq run, and with --history on?")
        sys.exit(Exit.NOTHING)


def _rows(moments: Sequence[Moment]) -> list[list[str]]:
    rows = []
    for at, figures in moments:
        counts = (figures.ready, figures.in_flight, figures.delayed, figures.new)
        shown = [f"{number:,}" for number in (*counts, *figures.happened.values())]
        when = datetime.fromtimestamp(at).isoformat(" ", "minutes")
        rows.append([when, *shown[:4], span(figures.oldest), *shown[4:]])
    return rows
