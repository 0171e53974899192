"""``fsmq consumer``: list the consumers that work in batches, or forget one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.output import json_option, span
from fsmq.cli.params import CONSUMER
from fsmq.cli.place.place import Root, root_option
from fsmq.spool.consumers.batches import Overview, overview
from fsmq.spool.consumers.batches import forget as forget_consumer
from fsmq.spool.consumers.behind import Behind, behind_by_consumer, total
from fsmq.spool.errors import as_unavailable
from fsmq.words import many, meant, size

_consumer_argument = click.argument("consumer", type=CONSUMER)
_HEAD = ["CONSUMER", "IN USE", "BATCHES", "MESSAGES", "BEHIND", "BYTES", "OLDEST"]


@click.command("list")
@root_option
@json_option
def list_consumers(root: Path, as_json: bool) -> None:
    """List consumers, such as streams of Spark.

    IN USE: a program works as this consumer now. BATCHES, MESSAGES: what it has claimed and not
    committed; it gets the same ones when it starts again. BEHIND, BYTES, OLDEST: the messages that
    wait in the queues it reads, and the age of the oldest; unknown until it has run once.

    \b
    Examples:
      fsmq consumer list
    """
    with Root(root) as place:
        found = overview(place.context)
        listed, rows = _described(place, found)
    if as_json:
        output.document({"consumers": listed})
    elif rows:
        output.table(_HEAD, rows, left=2)
    else:
        report(f"there are no consumers in {root}")


@click.command("show")
@_consumer_argument
@root_option
@json_option
def show(consumer: str, root: Path, as_json: bool) -> None:
    """Show one consumer, as fsmq consumer list does.

    \b
    Examples:
      fsmq consumer show letters
    """
    with Root(root) as place:
        [listed], rows = _described(place, _named(place, consumer))
    if as_json:
        output.document(listed)
    else:
        output.table(_HEAD, rows, left=2)


@click.command("forget")
@_consumer_argument
@root_option
@json_option
def forget(consumer: str, root: Path, as_json: bool) -> None:
    """Forget a consumer that will not start again; no message is lost.

    Its messages return to their queues when the claims end.

    \b
    Examples:
      fsmq consumer forget letters
    """
    with Root(root) as place:
        found = _named(place, consumer)
        forget_consumer(place.context, consumer)
        [listed], _ = _described(place, found)
    if as_json:
        output.document({**listed, "forgotten": True})
        return
    messages = found[consumer].messages
    back = f": {many(messages, 'message')} will return when the claims end"
    click.echo(f"consumer {consumer} forgotten{back if messages else ''}")


def _named(place: Root, consumer: str) -> dict[str, Overview]:
    """The consumer of a name. Raises Failure."""
    found = overview(place.context)
    if consumer not in found:
        problem, near = f"there is no consumer named {consumer!r}", meant(consumer, found)
        raise Failure(
            f"{problem}; {near}" if near else problem,
            Exit.NOT_FOUND,
            "fsmq consumer list lists all",
        )
    return {consumer: found[consumer]}


def _described(
    place: Root, found: Mapping[str, Overview]
) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Consumers for JSON, and as rows of a table."""
    with as_unavailable("cannot look at what waits"):
        waiting = behind_by_consumer(place.context, found)
    now = place.context.clock()
    return (
        [_as_dict(name, seen, waiting.get(name), now) for name, seen in found.items()],
        [_row(name, seen, waiting.get(name), now) for name, seen in found.items()],
    )


def _as_dict(
    name: str, seen: Overview, waiting: dict[str, Behind] | None, now: float
) -> dict[str, Any]:
    found: dict[str, Any] = {"consumer": name, **seen._asdict(), "behind": None}
    if waiting is not None:
        by_queue = {queue: _as_json(of, now) for queue, of in waiting.items()}
        found["behind"] = {**_as_json(total(waiting.values()), now), "queues": by_queue}
    return found


def _as_json(found: Behind, now: float) -> dict[str, Any]:
    return {"messages": found.messages, "bytes": found.bytes, "oldest_seconds": _age(found, now)}


def _age(found: Behind, now: float) -> float | None:
    return None if found.oldest is None else round(max(0.0, now - found.oldest), 3)


def _row(name: str, seen: Overview, waiting: dict[str, Behind] | None, now: float) -> list[str]:
    row = [name, "yes" if seen.in_use else "no", f"{seen.batches:,}", f"{seen.messages:,}"]
    if waiting is None:
        return [*row, "-", "-", "-"]
    found = total(waiting.values())
    return [*row, f"{found.messages:,}", size(found.bytes), span(_age(found, now))]
