"""Pauses of queues: ``fsmq queue pause`` and ``resume``."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.cli.params import queue_argument
from fsmq.cli.place.place import at_option, open_place
from fsmq.kinds import Until
from fsmq.units import seconds
from fsmq.wire import moment


@click.command("pause")
@queue_argument
@click.option(
    "--until", metavar="MOMENT|SPAN", help="When it ends: 2030-01-31T12:00:00Z, or 2h (from now)."
)
@at_option
@json_option
def pause(queue: str, until: str | None, at: str | None, as_json: bool) -> None:
    """Pause a queue: nothing can be claimed from it.

    Claims wait, and get nothing. Messages claimed before can be renewed, released and acknowledged;
    puts go on. The pause ends with fsmq queue resume, or at the moment --until.

    fsmq queue config has it as the setting paused.

    \b
    Examples:
      fsmq queue pause jobs
      fsmq queue pause jobs --until 2h
    """
    paused = True if until is None else _moment(until)
    _set(queue, paused, at, as_json)


@click.command("resume")
@queue_argument
@at_option
@json_option
def resume(queue: str, at: str | None, as_json: bool) -> None:
    """End the pause of a queue: waiting claims get its messages.

    \b
    Examples:
      fsmq queue resume jobs
    """
    _set(queue, None, at, as_json)


def _set(queue: str, paused: Any, at: str | None, as_json: bool) -> None:
    with open_place(at) as place:
        settings = place.queue(queue).configure(paused=paused)
    if as_json:
        output.document({"queue": queue, "paused": settings.paused})


def _moment(until: str) -> str:
    """The moment that ends a pause, also given as a span from now. Raises UsageError."""
    with suppress(ValueError):
        return moment(time.time() + seconds(until))
    with suppress(ValueError):
        if isinstance(found := Until().parse(until), str):
            return found
    raise click.UsageError(f"--until takes 2030-01-31T12:00:00Z, or a span (2h), not {until!r}.")
