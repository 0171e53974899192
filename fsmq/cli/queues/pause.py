"""Pauses of queues: ``fsmq pause`` and ``resume``."""

from __future__ import annotations

import time
from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.cli.params import queue_argument, seconds
from fsmq.cli.place.place import at_option, open_place
from fsmq.wire import moment


@click.command("pause")
@queue_argument
@click.option(
    "--until", metavar="MOMENT|SPAN", help="When it ends: 2030-01-31T12:00:00Z, or 2h from now."
)
@at_option
@json_option
def pause(queue: str, until: str | None, at: str | None, as_json: bool) -> None:
    """Let nothing be claimed from a queue.

    Who asks for messages waits, and gets none. What is claimed already can be renewed, released and
    acknowledged; puts go on. It ends with fsmq resume, or at the moment --until.

    It is the setting paused of fsmq config.
    """
    paused: bool | str = True if until is None else _moment(until)
    _set(queue, paused, at, as_json)


@click.command("resume")
@queue_argument
@at_option
@json_option
def resume(queue: str, at: str | None, as_json: bool) -> None:
    """End the pause of a queue: who waits gets its messages."""
    _set(queue, None, at, as_json)


def _set(queue: str, paused: Any, at: str | None, as_json: bool) -> None:
    with open_place(at) as place:
        settings = place.queue(queue).configure(paused=paused)
    if as_json:
        output.document({"queue": queue, "paused": settings.paused})


def _moment(until: str) -> str:
    """A moment, also of a span from now; what is neither the spool refuses."""
    try:
        return moment(time.time() + seconds(until))
    except ValueError:
        return until
