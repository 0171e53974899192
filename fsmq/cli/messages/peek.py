"""``fsmq peek``: look at messages without claiming them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.messages.real_id import whole_ids
from fsmq.cli.output import json_option, span
from fsmq.cli.params import SPAN, attribute_option, attributes_of, queue_argument
from fsmq.cli.place.place import Place, Queue, at_option, open_place
from fsmq.spool import Message
from fsmq.spool.fsck import printable
from fsmq.spool.layout.messages.dead_letter import DeadLetter
from fsmq.words import size

_STATES = ("ready", "new", "in_flight", "delayed")
_PREVIEW = 40
# The most messages, and seconds, of one request to a server.
_PAGE, _PAGE_S = 1000, 2.0


@click.command("peek")
@queue_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@at_option
@click.option("--state", type=click.Choice(_STATES), default="ready", show_default=True)
@click.option("--count", "-n", type=click.IntRange(1), default=10, show_default=True)
@click.option("--after", metavar="ID", default="", help="Begin after this message.")
@attribute_option
@click.option("--contains", metavar="TEXT", help="Only messages with this text in their body.")
@click.option("--older-than", type=SPAN, help="Only messages that were put longer ago than this.")
@click.option("--budget", type=SPAN, default=20, help="How long to look for them.  [20s]")
@click.option("--raw", is_flag=True, help="Print the bodies, and nothing else.")
@json_option
def peek(
    queue: str,
    ids: Sequence[str],
    at: str | None,
    state: str,
    count: int,
    after: str,
    pairs: Sequence[str],
    contains: str | None,
    older_than: float | None,
    budget: float,
    raw: bool,
    as_json: bool,
) -> None:
    """Look at messages without claiming them.

    Shows the first ones of a state, or those with the IDs: a line for each, with the beginning of
    its body, and from where and why dead letters were buried. --raw prints the bodies as they are,
    --json a line of JSON for each message. With --attribute, --contains and --older-than it shows
    those that match, and says where it stopped if there are more to look at. Exits with 1 if there
    is nothing, with 3 if one of the IDs is not there.

    \b
    Examples:
      fsmq peek jobs
      fsmq peek jobs order-4711 --raw
      fsmq peek jobs.dead --contains refund --older-than 1d
    """
    with open_place(at) as place:
        opened = place.queue(queue)
        if ids:
            found = list(_named(place, opened, ids))
        elif pairs or contains is not None or older_than is not None:
            found = _search(opened, count, state, after, pairs, contains, older_than, budget)
        else:
            found = opened.peek(count, state=state, after=after)
    if raw:
        for message in found:
            output.raw(message.body)
    elif as_json:
        for message in found:
            output.line(output.of_message(message))
    elif found:
        _show(found)
    if len(found) < len(ids):
        sys.exit(Exit.NOT_FOUND)
    if not found:
        sys.exit(Exit.NOTHING)


def _search(
    queue: Queue,
    count: int,
    state: str,
    after: str,
    pairs: Sequence[str],
    contains: str | None,
    older_than: float | None,
    budget: float,
) -> list[Message]:
    """Messages that match; the server is asked again until the budget is used up."""
    attributes = attributes_of(pairs)
    end = time.monotonic() + budget
    found: list[Message] = []
    following: str | None = after
    while following is not None and len(found) < count and (left := end - time.monotonic()) > 0:
        part, following = queue.search(
            min(count - len(found), _PAGE),
            state=state,
            after=following,
            attributes=attributes,
            contains=contains,
            older_than=older_than,
            budget=min(left, _PAGE_S),
        )
        found += part
    if following is not None:
        report(f"there may be more: go on with --after {following}")
    return found


def _named(place: Place, queue: Queue, ids: Sequence[str]) -> Iterator[Message]:
    for message_id in ids:
        message = queue.find(message_id)
        if message is not None:
            yield message
        else:
            hint = whole_ids(place, queue.name, message_id)
            report(f"{message_id}: it is in no state{hint}")


def _show(messages: Sequence[Message]) -> None:
    now = time.time()
    has_dead = any(message.dead_letter is not None for message in messages)
    of_dead = ["BURIED FROM", "REASON"] if has_dead else []
    output.table(
        ["ID", "STATE", "BODY", *of_dead, "SIZE", "DELIVERIES", "AGE", "ENDS IN"],
        [
            [
                printable(message.id),
                message.state,
                _preview(message.body),
                *(_of_dead(message.dead_letter) if has_dead else ()),
                size(len(message.body)),
                _deliveries(message),
                span(None if message.created_at is None else now - message.created_at),
                span(None if message.deadline is None else message.deadline - now),
            ]
            for message in messages
        ],
        left=3 + len(of_dead),
    )


def _deliveries(message: Message) -> str:
    """How often it was delivered; of a dead letter, before its burial and since."""
    here = "?" if message.deliveries is None else str(message.deliveries)
    dead = message.dead_letter
    if dead is None or dead.deliveries is None:
        return here
    return f"{dead.deliveries}, {here} since" if message.deliveries else str(dead.deliveries)


def _of_dead(dead: DeadLetter | None) -> tuple[str, str]:
    if dead is None:
        return "-", "-"
    return dead.queue, _short(dead.reason or "-")


def _preview(body: bytes) -> str:
    return _short(body[: 4 * _PREVIEW].decode("utf-8", "replace").split("\n", 1)[0])


def _short(begin: str) -> str:
    shown = "".join(c if c.isprintable() else "·" for c in begin)
    return shown if len(shown) <= _PREVIEW else shown[: _PREVIEW - 1] + "…"
