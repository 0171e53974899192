"""``fsmq consumers``: who works in batches, and to forget one that will not come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.output import json_option, span
from fsmq.cli.params import CONSUMER
from fsmq.cli.place.place import Root, root_option
from fsmq.spool.consumers.batches import Overview, forget, overview
from fsmq.spool.consumers.behind import Behind, behind_by_consumer, total
from fsmq.spool.errors import as_unavailable
from fsmq.words import many, size


@click.command("consumers")
@click.argument("consumer", required=False, type=CONSUMER)
@root_option
@click.option("--forget", "forgets", is_flag=True, help="Forget the CONSUMER; no message is lost.")
@json_option
def consumers(consumer: str | None, root: Path, forgets: bool, as_json: bool) -> None:
    """List consumers, such as streams of Spark; or one CONSUMER.

    IN USE: a program works as this consumer now. BATCHES, MESSAGES: what it was given and has not
    committed; it is given the same again when it starts again. BEHIND, BYTES, OLDEST: what waits in
    the queues that it reads, and the age of the oldest; unknown until it has run once.

    Forget a consumer that will not start again: its messages return to their queues when the claims
    end.
    """
    if forgets and consumer is None:
        raise click.UsageError("Name the consumer to forget.")
    with Root(root) as place:
        found = overview(place.context)
        if consumer is not None:
            if consumer not in found:
                raise Failure(
                    f"there is no consumer named {consumer!r}",
                    Exit.NOT_FOUND,
                    "fsmq consumers lists all",
                )
            found = {consumer: found[consumer]}
        if forgets and consumer is not None:
            forget(place.context, consumer)
        with as_unavailable("cannot look at what waits"):
            waiting = behind_by_consumer(place.context, found)
        now = place.context.clock()
    if as_json:
        listed = [_as_dict(name, seen, waiting.get(name), now) for name, seen in found.items()]
        whole = {"consumers": listed} if consumer is None else listed[0]
        output.document(whole | ({"forgotten": True} if forgets else {}))
    elif forgets:
        [seen] = found.values()
        back = f": {many(seen.messages, 'message')} will return when the claims end"
        click.echo(f"consumer {consumer} forgotten{back if seen.messages else ''}")
    elif found:
        head = ["CONSUMER", "IN USE", "BATCHES", "MESSAGES", "BEHIND", "BYTES", "OLDEST"]
        rows = [_row(name, seen, waiting.get(name), now) for name, seen in found.items()]
        output.table(head, rows, left=2)
    else:
        report(f"there are no consumers in {root}")


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
