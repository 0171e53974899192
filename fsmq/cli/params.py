"""What the verbs' options take: spans of time, names of queues."""

from __future__ import annotations

import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from fsmq.spool import FsmqError

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|min|h|d|w|)")
_SECONDS = {"ms": 0.001, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(raw: str) -> float:
    """The seconds of ``30``, ``1.5``, ``500ms``, ``10m``, ``2h``, ``7d``; ValueError otherwise."""
    match = _SPAN.fullmatch(raw.strip())
    if match is None:
        raise ValueError(raw)
    return float(match[1]) * _SECONDS[match[2]]


def body_bytes(text: str) -> bytes:
    """A body of the command line, byte for byte: what is no UTF-8, too."""
    return text.encode(errors="surrogateescape")


class Span(click.ParamType[float]):
    """A span of time, in seconds or with a unit."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return seconds(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a span of time: 30, 1.5, 500ms, 10m, 2h or 7d", param, ctx)


class QueueName(click.ParamType[str]):
    """The name of a queue; a shell completes it from the place that ``--at`` names."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is: the spool or the server checks it."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The queues that begin so; none where the place cannot be reached."""
        from fsmq.cli.place.place import open_place

        try:
            with open_place(ctx.params.get("at"), patience=1.0) as place:
                return [CompletionItem(q) for q in place.queues() if q.startswith(incomplete)]
        except (FsmqError, click.ClickException, OSError):
            return []


class ConsumerName(click.ParamType[str]):
    """The name of a consumer; a shell completes it from the folder that ``--root`` names."""

    name = "consumer"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The consumers that begin so; none where there is no folder."""
        from fsmq.cli.place.place import Root
        from fsmq.spool.consumers.batches import overview

        try:
            with Root(ctx.params["root"]) as place:
                found = overview(place.context)
        except (FsmqError, click.ClickException, OSError, KeyError, TypeError):
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


SPAN = Span()
QUEUE = QueueName()
CONSUMER = ConsumerName()

queue_argument = click.argument("queue", type=QUEUE)
