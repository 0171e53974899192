"""Queues as wholes: ``fsmq queue create``, ``list``, ``show``, ``purge`` and ``delete``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.input import ask, yes_option
from fsmq.cli.output import bar, json_option, span
from fsmq.cli.params import QUEUE, queue_argument
from fsmq.cli.place.place import Place, Queue, at_option, open_place, survey_all
from fsmq.cli.queues.config import changes_argument, parsed, shown
from fsmq.cli.queues.shards import groups, shards_of, shards_option, together
from fsmq.spool import FsmqError, QueueSettings
from fsmq.spool.layout.settings import SETTINGS
from fsmq.spool.verbs.queues.creation import changed
from fsmq.spool.views.counts import Overview
from fsmq.words import limits, many


@click.command("list")
@click.argument("patterns", nargs=-1, type=QUEUE, metavar="[PATTERN]...")
@at_option
@click.option("--names", is_flag=True, help="Print the names alone, one a line.")
@shards_option
@json_option
def list_queues(
    patterns: Sequence[str], at: str | None, names: bool, unfold: bool, as_json: bool
) -> None:
    """List queues with their counts: all, or those that match a PATTERN.

    A PATTERN is as in a shell: 'jobs*'. READY can be claimed, IN FLIGHT is claimed, DELAYED is
    hidden for a time, NEW is not yet delivered; OLDEST is the age of the oldest ready message.
    PAUSED is shown if a queue is paused, DEAD LETTERS OF if one is the dead-letter queue of others.
    The shards of a queue of dyno-queues are one line. Queues that cannot be read are named on
    stderr. Exits with 1 if the PATTERNs match nothing.

    \b
    Examples:
      fsmq queue list
      fsmq queue list 'jobs*' --names
    """
    with open_place(at) as place:
        if names:
            everything = place.queues()
            found = everything if unfold else list(groups(place, everything))
            found = [name for name in found if _matches(name, patterns)]
            for name in found:
                click.echo(name)
        else:
            overviews, unread = survey_all(place)
            for name in unread:
                if _matches(name, patterns):
                    report(f"queue {name} cannot be read: see fsmq doctor")
            if not unfold:
                folded = groups(place, overviews)
                overviews = {name: together(overviews, of) for name, of in folded.items()}
            found = [name for name in overviews if _matches(name, patterns)]
            buriers = _buriers(overviews, found)
            _list({name: overviews[name] for name in found}, buriers, as_json)
        if not found and not patterns:
            report(f"there are no queues in {place.where}: create one with fsmq queue create NAME")
    if patterns and not found:
        sys.exit(Exit.NOTHING)


@click.command("show")
@click.argument("queues", nargs=-1, required=True, type=QUEUE, metavar="QUEUE...")
@at_option
@shards_option
@json_option
def show(queues: Sequence[str], at: str | None, unfold: bool, as_json: bool) -> None:
    """Show one queue, or several: counts, age of the oldest, limits of claims, settings.

    The shards of a queue of dyno-queues are shown together, with the settings of the first.

    \b
    Examples:
      fsmq queue show jobs
      fsmq queue show jobs jobs.dead --json
    """
    now = time.time()
    stats: list[dict[str, Any]] = []
    with open_place(at) as place:
        for name, of in _stated(place, queues, unfold):
            settings = place.queue(of[0]).settings()
            overviews = {queue: place.survey(queue)[queue] for queue in of}
            overview = together(overviews, of)
            stats.append({"queue": name, **as_dict(overview, now), "settings": settings.as_dict()})
    if as_json:
        output.document(stats[0] if len(stats) == 1 else {"queues": stats})
        return
    for number, found in enumerate(stats):
        if number:
            click.echo()
        counts = {name.replace("_", " "): f"{n:,}" for name, n in found["messages"].items()}
        output.facts(
            [
                ("queue", found["queue"]),
                *counts.items(),
                ("oldest", span(found["oldest_seconds"])),
                *(("kept back", mark) for mark in _marks(found)),
                *((name, shown(name, value)) for name, value in found["settings"].items()),
            ]
        )


def _marks(found: Mapping[str, Any]) -> Iterator[str]:
    """What keeps messages from being claimed now, or can do so."""
    if paused := found["paused"]:
        yield "paused" if paused is True else f"paused until {paused}"
    if (most := found["max_in_flight"]) is not None:
        yield f"{found['messages']['in_flight']:,} of {most:,} in flight"
    if (rate := found["max_rate"]) is not None:
        yield f"at most {rate:g} a second"


def _stated(place: Place, queues: Sequence[str], unfold: bool) -> Iterator[tuple[str, list[str]]]:
    """Names to show, each with its queues: one, or its shards."""
    for name in queues:
        shards = shards_of(place, name)
        if unfold and shards:
            yield from ((shard, [shard]) for shard in shards)
        else:
            yield name, shards or [name]


@click.command("create")
@queue_argument
@changes_argument(SETTINGS)
@at_option
@json_option
def create(queue: str, changes: Sequence[str], at: str | None, as_json: bool) -> None:
    """Create a queue, with settings if some are given.

    fsmq queue config --help lists them. If the queue exists already, only the settings are changed.
    If a setting is refused, no queue is created.
    A FOLDER that is not a spool yet becomes one.

    \b
    Examples:
      fsmq queue create jobs
      fsmq queue create jobs max_deliveries=5 dead_letter_queue=jobs.dead
    """
    wanted = parsed(changes)
    index, fifo = (wanted.pop(name, False) is True for name in ("index", "fifo"))
    with open_place(at, create=True) as place:
        if wanted and not place.has_queue(queue):
            changed(queue, QueueSettings.of({"index": index, "fifo": fifo}), wanted)  # or raises
        created = place.create_queue(queue, index=index, fifo=fifo)
        try:
            if wanted:
                place.queue(queue).configure(**wanted)
        except FsmqError:
            # A server may refuse more: a key without rights, or an older version.
            if created and not place.queue(queue).counts().total:
                place.queue(queue).delete()
            raise
    if as_json:
        output.document({"queue": queue, "created": created})
    elif not created and not wanted:
        report(f"queue {queue} exists already")


@click.command("purge")
@queue_argument
@at_option
@yes_option
@json_option
def purge(queue: str, at: str | None, yes: bool, as_json: bool) -> None:
    """Remove all messages of a queue.

    Those in flight, too; the queue and its settings stay.

    Asks first if there is a terminal; scripts give --yes.

    \b
    Examples:
      fsmq queue purge jobs --yes
    """
    with open_place(at) as place:
        opened = place.queue(queue)
        total = _confirmed(opened, queue, "Remove", yes)
        with bar("purging", total, wanted=not as_json) as show:
            opened.purge(progress=show)
    if as_json:
        output.document({"queue": queue, "purged": True, "messages": total})
    else:
        click.echo(f"{many(total, 'message')} removed from {queue}")


@click.command("delete")
@queue_argument
@at_option
@yes_option
@json_option
def delete(queue: str, at: str | None, yes: bool, as_json: bool) -> None:
    """Delete a queue, its settings and all its messages.

    Asks first if there is a terminal; scripts give --yes.

    \b
    Examples:
      fsmq queue delete jobs --yes
    """
    with open_place(at) as place:
        opened = place.queue(queue)
        total = _confirmed(opened, queue, "Delete the queue and", yes)
        opened.delete()
    if as_json:
        output.document({"queue": queue, "deleted": True, "messages": total})
    else:
        click.echo(f"queue {queue} deleted, with {many(total, 'message')}")


def _buriers(overviews: Mapping[str, Overview], names: Sequence[str]) -> dict[str, list[str]]:
    """For each of the names, the queues whose dead-letter queue it is."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for name, overview in overviews.items():
        if overview.dead_letter_queue in found:
            found[overview.dead_letter_queue].append(name)
    return found


def _list(
    overviews: Mapping[str, Overview], buriers: Mapping[str, Sequence[str]], as_json: bool
) -> None:
    now = time.time()
    if as_json:
        described = [
            {"queue": n, **as_dict(o, now), "dead_letters_of": buriers[n]}
            for n, o in overviews.items()
        ]
        output.document({"queues": described})
    elif overviews:
        head = ["QUEUE", "READY", "IN FLIGHT", "DELAYED", "NEW", "OLDEST"]
        rows = [_row(n, o, now) for n, o in overviews.items()]
        if any(overview.paused for overview in overviews.values()):
            head.append("PAUSED")
            for row, overview in zip(rows, overviews.values(), strict=True):
                row.append(pause_of(overview))
        if any(buriers.values()):
            head.append("DEAD LETTERS OF")
            for row, name in zip(rows, overviews, strict=True):
                row.append(", ".join(buriers[name]))
        if any(limits_of(overview) for overview in overviews.values()):
            head.append("LIMITS")
            for row, overview in zip(rows, overviews.values(), strict=True):
                row.append(limits_of(overview))
        output.table(head, rows)


def as_dict(overview: Overview, now: float) -> dict[str, Any]:
    """Counts and age for JSON."""
    oldest = overview.oldest
    age = None if oldest is None else round(max(0.0, now - oldest), 3)
    return {
        "messages": overview.counts._asdict(),
        "oldest_seconds": age,
        "paused": overview.paused,
        "max_in_flight": overview.max_in_flight,
        "max_rate": overview.max_rate,
    }


def pause_of(overview: Overview) -> str:
    """Until when a queue is paused, for people; empty if it is not."""
    return "yes" if overview.paused is True else overview.paused or ""


def limits_of(overview: Overview) -> str:
    """How many may be claimed, for people; empty if there is no limit."""
    return limits(overview.max_in_flight, overview.max_rate)


def _row(name: str, overview: Overview, now: float) -> list[str]:
    counts = overview.counts
    numbers = (counts.ready, counts.in_flight, counts.delayed, counts.new)
    age = None if overview.oldest is None else now - overview.oldest
    return [name, *(f"{n:,}" for n in numbers), span(age)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _confirmed(queue: Queue, name: str, deed: str, yes: bool) -> int:
    """Count the messages; exit unless the user agrees to lose them."""
    total = queue.counts().total
    ask(f"{deed} {many(total, 'message')} of {name}, for good?", yes)
    return total
