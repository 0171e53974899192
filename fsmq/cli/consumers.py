"""``fsmq consumers``: who works in batches, and to forget one that will not come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.output import json_option
from fsmq.cli.params import CONSUMER
from fsmq.cli.place.place import Root, root_option
from fsmq.spool.consumers.batches import Overview, forget, overview
from fsmq.words import many


@click.command("consumers")
@click.argument("consumer", required=False, type=CONSUMER)
@root_option
@click.option("--forget", "forgets", is_flag=True, help="Forget the CONSUMER; no message is lost.")
@json_option
def consumers(consumer: str | None, root: Path, forgets: bool, as_json: bool) -> None:
    """List consumers, such as streams of Spark; or one CONSUMER.

    IN USE: a program works as this consumer now. BATCHES, MESSAGES: what it was given and has not
    committed; it is given the same again when it starts again.

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
    if as_json:
        listed = [_as_dict(name, seen) for name, seen in found.items()]
        whole = {"consumers": listed} if consumer is None else listed[0]
        output.document(whole | ({"forgotten": True} if forgets else {}))
    elif forgets:
        [seen] = found.values()
        back = f": {many(seen.messages, 'message')} will return when the claims end"
        click.echo(f"consumer {consumer} forgotten{back if seen.messages else ''}")
    elif found:
        head = ["CONSUMER", "IN USE", "BATCHES", "MESSAGES"]
        output.table(head, [_row(name, seen) for name, seen in found.items()], left=2)
    else:
        report(f"there are no consumers in {root}")


def _as_dict(name: str, seen: Overview) -> dict[str, Any]:
    return {"consumer": name, **seen._asdict()}


def _row(name: str, seen: Overview) -> list[str]:
    return [name, "yes" if seen.in_use else "no", f"{seen.batches:,}", f"{seen.messages:,}"]
