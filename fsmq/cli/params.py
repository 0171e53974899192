"""Options and arguments that several verbs share, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fsmq.spool import FsmqError
from fsmq.spool.layout.topics.topics import subscriber_of
from fsmq.units import seconds

_OFFERED = 50  # ids that a shell completes


def body_bytes(text: str) -> bytes:
    """A body from the command line, byte for byte, even if it is not UTF-8."""
    return text.encode(errors="surrogateescape")


class Span(click.ParamType[float]):
    """A span of time, in seconds or with a unit. unit: that of a number alone."""

    name = "time"

    def __init__(self, low: float = 0, unit: str = "s") -> None:
        self._low, self._unit = low, unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        try:
            found = seconds(str(value), self._unit)
        except ValueError:
            self.fail(f"{value!r} is not a span of time: 30, 1.5, 500ms, 10m, 2h or 7d", param, ctx)
        if found < self._low:
            self.fail(f"{value} is too short: at least {self._low:g} s", param, ctx)
        return found


class Completed(click.ParamType[str]):
    """A text that a shell can complete; the spool or the server checks it."""

    def __init__(self, name: str, offers: Callable[[click.Context], Iterable[str]]) -> None:
        self.name = name
        self._offers = offers

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The offers that begin with ``incomplete``; none if the place cannot be reached."""
        try:
            return [CompletionItem(o) for o in self._offers(ctx) if o.startswith(incomplete)]
        except (FsmqError, click.ClickException, OSError, KeyError, TypeError):
            return []


def _queues(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import open_place

    with open_place(ctx.params.get("at"), patience=1.0) as place:
        return place.queues()


def _ids_in_flight(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import open_place

    with open_place(ctx.params.get("at"), patience=1.0) as place:
        queue = place.queue(ctx.params["queue"])
        return [message.id for message in queue.peek(_OFFERED, state="in_flight")]


def _consumers(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import Root
    from fsmq.spool.consumers.batches import overview

    with Root(ctx.params["root"]) as place:
        return list(overview(place.context))


def _logs(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import open_place

    with open_place(ctx.params.get("at"), patience=1.0) as place:
        return place.logs()


def _channels(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import open_place

    with open_place(ctx.params.get("at"), patience=1.0) as place:
        return place.log(ctx.params["log"]).channels()


def _schedules(ctx: click.Context) -> list[str]:
    from fsmq.cli.place.place import open_place

    with open_place(ctx.params.get("at"), patience=1.0) as place:
        return [state.name for state in place.schedules()]


SPAN = Span()
LOG = Completed("log", _logs)
SCHEDULE = Completed("schedule", _schedules)
CHANNEL = Completed("channel", _channels)
QUEUE = Completed("queue", _queues)
SUBSCRIBER = Completed("queue", lambda ctx: [*_queues(ctx), *map(subscriber_of, _logs(ctx))])
ID = Completed("id", _ids_in_flight)
CONSUMER = Completed("consumer", _consumers)

queue_argument = click.argument("queue", type=QUEUE)
claimable_argument = click.argument("queue", type=QUEUE, metavar="QUEUE|LOG/CHANNEL")
log_argument = click.argument("log", type=LOG)
channel_argument = click.argument("channel", type=CHANNEL)


# Options of a message that is put or published.
body_option = click.option(
    "--body", "-b", metavar="TEXT", help="The message itself, instead of a FILE."
)
file_argument = click.argument(
    "file", required=False, type=click.Path(path_type=Path, allow_dash=True), metavar="[FILE]"
)
priority_option = click.option(
    "--priority", type=int, default=0, help="0 (first) to 99 (last).  [0]"
)
ttl_option = click.option("--ttl", type=SPAN, help="Time to live; then it expires.  [never]")
group_option = click.option(
    "--group", metavar="KEY", help="Its group: a fifo queue keeps the order within it."
)
dedup_id_option = click.option(
    "--dedup-id",
    metavar="ID",
    help="Store nothing if a fifo queue got this ID less than 5 minutes ago.",
)
content_type_option = click.option(
    "--content-type", metavar="TYPE", help="For example application/json."
)
attribute_option = click.option(
    "--attribute",
    "-a",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="May be given several times.",
)


def attributes_of(pairs: Sequence[str]) -> dict[str, str]:
    """The attributes given by ``--attribute``. Raises UsageError."""
    attributes = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--attribute takes NAME=VALUE, not {pair!r}.")
        if name in attributes:
            raise click.UsageError(f"--attribute {name} is given twice.")
        attributes[name] = value
    return attributes
