"""``fsmq log feed``: the messages of a log are put into a queue."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.output import json_option
from fsmq.cli.params import CHANNEL, log_argument, queue_argument
from fsmq.cli.place.place import Place, at_option, open_place
from fsmq.spool import Unavailable
from fsmq.spool.layout.names import check_queue
from fsmq.spool.log.consuming.forwarding import Feed
from fsmq.spool.log.log_places import From, place_in
from fsmq.words import many

_WAIT_S = 5.0


@click.command("feed")
@log_argument
@queue_argument
@click.option("--channel", type=CHANNEL, help="The channel to use.  [named as the queue]")
@click.option(
    "--from", "start", metavar="PLACE", default="first", help="Where a new channel begins.  [first]"
)
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C.")
@at_option
@json_option
def feed(
    log: str,
    queue: str,
    channel: str | None,
    start: str,
    follow: bool,
    at: str | None,
    as_json: bool,
) -> None:
    """Put the messages of a log into a queue, each at least once.

    A message that is stored is marked as done in a channel, which is created if it is missing.

    \b
    Examples:
      fsmq log feed users mails
      fsmq log feed users mails --channel mailer --from last --follow
    """
    feeding = _Feeding(queue, channel, place_in("place", start), follow)
    with open_place(at) as place:
        feeding.run(place, log, as_json)


class _Feeding:
    """Puts the messages of a log into a queue, by a channel that is created if it is missing.

    start: where a new channel begins. follow: go on until Ctrl-C.
    """

    def __init__(self, queue: str, channel: str | None, start: From, follow: bool) -> None:
        self._queue = check_queue(queue)
        self._channel = channel or queue
        self._start = start
        self._follow = follow

    def run(self, place: Place, log: str, as_json: bool) -> None:
        """Put them, and say how many there were."""
        opened = place.log(log)
        queue = place.queue(self._queue)
        channel = opened.channel(self._channel)
        channel.create(self._start)
        with Feed(channel, queue, log, opened.stats().uuid) as feed:
            brought = self._all(feed, lambda: channel.state().in_flight > 0)
        if as_json:
            fields = {"log": log, "channel": channel.name, "queue": self._queue}
            output.document({**fields, "messages": brought})
        else:
            report(f"{many(brought, 'message')} from {log} to {self._queue}")

    def _all(self, feed: Feed, is_held: Callable[[], bool]) -> int:
        """Put all messages, or go on until Ctrl-C; how many were put.

        is_held: whether other consumers have claimed some.
        """
        brought = 0
        while True:
            # Messages of another consumer, which may have died, return when its claims end.
            waits = self._follow or is_held()
            number = self._step(feed, _WAIT_S if waits else 0.0)
            brought += number
            if not number and not waits:
                return brought

    def _step(self, feed: Feed, wait: float) -> int:
        try:
            return feed.step(wait)
        except Unavailable as error:
            if not self._follow:
                raise
            report(f"{error}; tried again")
            time.sleep(error.retry_after)
            return 0
