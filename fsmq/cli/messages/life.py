"""``fsmq life``: what happened to a message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.messages.real_id import whole_ids
from fsmq.cli.output import json_option
from fsmq.cli.place.place import Place, Root, RootQueue, at_option, open_place
from fsmq.spool import NoSuchQueue
from fsmq.spool.fsck import printable
from fsmq.spool.records.life import LifeStep, in_order
from fsmq.spool.records.life_words import details, gap, label, span


@click.command("life")
@click.argument("message", metavar="QUEUE/ID")
@click.argument("own", required=False, metavar="")
@at_option
@json_option
def life(message: str, own: str | None, at: str | None, as_json: bool) -> None:
    """Show what happened to a message, from the journal.

    Prints a line for each step, with the time since the step before; across moves, and for messages
    that are gone, too. QUEUE and ID can also be two words. Exits with 3 if the journal has nothing
    of it.

    \b
    Examples:
      fsmq life jobs/order-4711
    """
    queue, slash, message_id = message.partition("/") if own is None else (message, "/", own)
    if not slash:
        raise click.UsageError("give the queue and the id: fsmq life QUEUE/ID")
    with open_place(at) as place:
        steps = in_order(_steps(place, queue, message_id))
        most = _max_deliveries(place, queue)
        hint = "" if steps else whole_ids(place, queue, message_id)
    if as_json:
        for step in steps:
            output.line(step.as_json())
    else:
        _show(steps, most)
    missing = gap(steps)
    if missing is not None:
        report(f"{message_id}: {missing}{hint}")
    if not steps:
        sys.exit(Exit.NOT_FOUND)


def _steps(place: Place, queue: str, message_id: str) -> Iterator[LifeStep]:
    # The queue may have been deleted: its messages still have a history.
    opened = RootQueue(place, queue) if isinstance(place, Root) else place.queue(queue)
    after: str | None = ""
    while after is not None:
        steps, after = opened.life(message_id, after=after)
        yield from steps


def _max_deliveries(place: Place, queue: str) -> int | None:
    try:
        return place.queue(queue).settings().max_deliveries
    except NoSuchQueue:
        return None


def _show(steps: list[LifeStep], max_deliveries: int | None) -> None:
    before: LifeStep | None = None
    rows: list[tuple[str, str, str]] = []
    for step in steps:
        since = f"+{span(max(0.0, step.at - before.at))}" if before else _moment(step.at)
        rows.append((since, label(step, max_deliveries), printable(details(step, before))))
        before = step
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    for since, what, how in rows:
        click.echo(f"{since:{widths[0]}}  {what:{widths[1]}}  {how}".rstrip())


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "milliseconds")
