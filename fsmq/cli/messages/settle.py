"""What ends or prolongs a claim (``fsmq ack``, ``renew``, ``release``, ``bury``); ``priority``,
``remove``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.messages.real_id import whole_ids
from fsmq.cli.output import json_option
from fsmq.cli.params import ID, SPAN, claimable_argument, queue_argument
from fsmq.cli.place.claimable import open_claimable
from fsmq.cli.place.place import Place, Queue, at_option, open_place
from fsmq.spool.errors import CLAIM_OVER
from fsmq.spool.layout.claim_names import claim_seen
from fsmq.wire import moment

F = TypeVar("F", bound=Callable[..., Any])

_TOGETHER = 1000  # removals that share one sync
_PROBLEMS = {
    "removed": None,
    "missing": "it is not there",
    "ended": "this claim has ended; another consumer may have the message",
}


def _ids(command: F) -> F:
    command = json_option(at_option(command))
    command = click.option(
        "--claim", metavar="CLAIM", help="Only if this claim, of fsmq get --json, holds; one ID."
    )(command)
    command = click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")(command)
    return claimable_argument(command)


@click.command("ack")
@_ids
def ack(queue: str, ids: Sequence[str], at: str | None, as_json: bool, claim: str | None) -> None:
    """Acknowledge claimed messages: the work is done, remove them.

    Whoever has claimed them, or with --claim only while that claim holds. In a channel
    (fsmq ack users/mailer 17) the ids are offsets of claimed messages. Without an ID, ids are read
    from standard input, one a line. Prints nothing, or with --json a line
    {"queue": …, "id": …, "done": true} for each. Exits with 3 if one of them is not in flight; the
    others are removed. fsmq remove removes messages in any state.

    \b
    Examples:
      fsmq ack jobs order-4711
      fsmq ack users/mailer 17
    """
    with open_place(at) as place:
        opened = open_claimable(place, queue)
        outcomes = _Outcomes(place, queue, as_json)
        for part in _parts(_given(ids, claim), _TOGETHER):
            claims = [(message_id, claim) for message_id in part]
            if claim is None and "/" not in queue:
                found = [(one, _claim_of(opened, one, outcomes)) for one in part]
                claims = [(one, name) for one, name in found if name is not None]
            if not claims:
                continue
            ids, names = zip(*claims, strict=True)
            for message_id, what in zip(ids, opened.ack_each(ids, names), strict=True):
                outcomes.of(message_id, _PROBLEMS[what])
    outcomes.end()


def _claim_of(opened: Queue, message_id: str, outcomes: _Outcomes) -> str | None:
    """The name of the claim of a message; None if it has none, which is reported."""
    message = opened.find(message_id)
    if message is None:
        outcomes.of(message_id, _PROBLEMS["missing"])
    elif message.state != "in_flight" or message.deadline is None:
        how = f"to remove it all the same: fsmq remove {opened.name} {message_id}"
        outcomes.of(message_id, f"it is {message.state}, not in flight; {how}")
    else:
        return claim_seen(message.deliveries, message.deadline)
    return None


@click.command("remove")
@queue_argument
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@at_option
@json_option
def remove(queue: str, ids: Sequence[str], at: str | None, as_json: bool) -> None:
    """Remove messages in any state, also those that nobody has claimed.

    A consumer that has one of them loses its claim. Without an ID, ids are read from standard
    input, one a line. Prints nothing, or with --json a line {"queue": …, "id": …, "done": true} for
    each. Exits with 3 if one of them was not there; the others are removed.

    \b
    Examples:
      fsmq remove jobs order-4711
    """
    with open_place(at) as place:
        opened = place.queue(queue)
        outcomes = _Outcomes(place, queue, as_json)
        for part in _parts(_given(ids, None), _TOGETHER):
            for message_id, done in zip(part, opened.remove_each(part), strict=True):
                outcomes.of(message_id, None if done else _PROBLEMS["missing"])
    outcomes.end()


@click.command("renew")
@_ids
@click.option(
    "--visibility",
    type=SPAN,
    help="How long the claim lasts from now.  [the queue's visibility_timeout]",
)
def renew(
    queue: str,
    ids: Sequence[str],
    at: str | None,
    visibility: float | None,
    as_json: bool,
    claim: str | None,
) -> None:
    """Renew claims: the work goes on.

    Prints the new deadline of each. A message whose claim has ended, and which nobody has claimed
    since, is claimed again, unless --claim is given. Exits with 3 if one of them is not there.

    \b
    Examples:
      fsmq renew jobs order-4711 --visibility 10m
    """

    def do(opened: Any, message_id: str) -> dict[str, Any]:
        deadline = opened.renew(message_id, visibility=visibility, claim=claim)
        return {"deadline": moment(deadline)}

    _each(queue, _given(ids, claim), at, as_json, do, shown="deadline")


@click.command("release")
@_ids
@click.option("--delay", type=SPAN, default=0.0, help="How long to hide it first.  [0]")
@click.option("--reason", metavar="TEXT", help="Why, for those that become dead letters.")
def release(
    queue: str,
    ids: Sequence[str],
    at: str | None,
    delay: float,
    reason: str | None,
    as_json: bool,
    claim: str | None,
) -> None:
    """End claims early: the messages can be claimed again, at once or after a delay.

    A message delivered max_deliveries times goes to the dead-letter queue. Exits with 3 if one of
    them is not in flight.

    \b
    Examples:
      fsmq release jobs order-4711 --delay 5m
    """
    given, how = _given(ids, claim), {"delay": delay, "claim": claim, "reason": reason}
    _each(queue, given, at, as_json, lambda opened, i: opened.release(i, **how))


@click.command("bury")
@_ids
@click.option("--reason", metavar="TEXT", help="Why; peek and GET of a message show it.")
def bury(
    queue: str,
    ids: Sequence[str],
    at: str | None,
    reason: str | None,
    as_json: bool,
    claim: str | None,
) -> None:
    """Move claimed messages to the dead-letter queue.

    The queue needs a dead-letter queue: see fsmq queue config. Exits with 3 if one of them is not
    in flight.

    \b
    Examples:
      fsmq bury jobs order-4711 --reason 'no such customer'
    """
    given = _given(ids, claim)
    _each(queue, given, at, as_json, lambda opened, i: opened.bury(i, reason=reason, claim=claim))


@click.command("priority")
@queue_argument
@click.argument("priority", type=int)
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@at_option
@json_option
def priority(queue: str, priority: int, ids: Sequence[str], at: str | None, as_json: bool) -> None:
    """Give messages that are ready another priority: 0 is claimed first, 99 last.

    The priority is part of an id, which changes: the new one is printed. Without an ID, ids are
    read from standard input, one a line. Exits with 3 if one of them is not ready.

    \b
    Examples:
      fsmq priority jobs 0 019a2c3e-7b1d-7c4a-9f00-5d2b8c1e6f42
    """

    def do(opened: Any, message_id: str) -> dict[str, Any]:
        return {"priority": priority, "new_id": opened.set_priority(message_id, priority)}

    _each(queue, _given(ids, None), at, as_json, do, shown="new_id")


def _each(
    queue: str,
    ids: Iterable[str],
    at: str | None,
    as_json: bool,
    do: Callable[[Any, str], dict[str, Any] | None],
    shown: str = "",
) -> None:
    """Do something to each message. shown: which member of its result is printed."""
    with open_place(at) as place:
        opened = open_claimable(place, queue)
        outcomes = _Outcomes(place, queue, as_json)
        for message_id in ids:
            try:
                given = do(opened, message_id) or {}
            except CLAIM_OVER as error:
                outcomes.of(message_id, str(error))
            else:
                outcomes.of(message_id, None, **given)
                if shown and not as_json:
                    click.echo(given[shown])
    outcomes.end()


class _Outcomes:
    """What became of each id."""

    def __init__(self, place: Place, queue: str, as_json: bool) -> None:
        self._place = place
        self._queue = queue
        self._as_json = as_json
        self._missing = False

    def of(self, message_id: str, problem: str | None, **more: Any) -> None:
        """Report one id. problem: why nothing was done, or None."""
        if self._as_json:
            output.line({"queue": self._queue, "id": message_id, "done": problem is None, **more})
        if problem is not None:
            if not self._missing and "whole id" not in problem:  # it may take a long look
                problem += whole_ids(self._place, self._queue, message_id)
            self._missing = True
            report(f"{message_id}: {problem}")

    def end(self) -> None:
        """Exit with an error if nothing was done for one of the ids."""
        if self._missing:
            sys.exit(Exit.NOT_FOUND)


def _given(ids: Sequence[str], claim: str | None) -> Iterable[str]:
    if claim is not None and len(ids) != 1:
        raise click.UsageError("--claim belongs to one ID: give that.")
    if ids:
        return ids
    if sys.stdin.isatty():
        raise click.UsageError("Give an ID, or ids on standard input, one a line.")
    return (stripped for line in sys.stdin if (stripped := line.strip()))


def _parts(ids: Iterable[str], length: int) -> Iterator[list[str]]:
    part: list[str] = []
    for message_id in ids:
        part.append(message_id)
        if len(part) == length:
            yield part
            part = []
    if part:
        yield part
