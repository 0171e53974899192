"""``fsmq log --to`` and ``--verify``: a log feeds a queue; all of a log is read and checked."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, report
from fsmq.cli.place.place import Place, Root
from fsmq.spool import Unavailable
from fsmq.spool.fsck import printable
from fsmq.spool.fsck.one_log import verify
from fsmq.spool.layout.names import check_queue
from fsmq.spool.log.consuming.forwarding import Feed
from fsmq.spool.log.log_places import From
from fsmq.words import many

_WAIT_S = 5.0


class Feeding:
    """Brings the messages of a log to a queue, by a channel that is made if it is missing.

    start: where that begins. follow: go on until somebody ends it.
    """

    def __init__(self, queue: str, channel: str | None, start: From, follow: bool) -> None:
        self._queue = check_queue(queue)
        self._channel = channel or queue
        self._start = start
        self._follow = follow

    def run(self, place: Place, log: str, as_json: bool) -> None:
        """Do it, and say how many messages were brought."""
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
        """Bring all that there is, or go on until somebody ends it; how many were brought.

        is_held: whether some of it was claimed by others.
        """
        brought = 0
        while True:
            # What another one claimed, who may be dead, comes back when the claim ends.
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


def verified(place: Place, log: str, as_json: bool) -> Exit:
    """Print what is wrong with a log."""
    if not isinstance(place, Root):
        raise click.UsageError("--verify reads the files: give a folder with --at, not a server.")
    found = verify(place.tree, log)
    if as_json:
        listed = [one.as_dict() for one in found]
        output.document({"log": log, "clean": not found, "findings": listed})
    else:
        for one in found:
            click.echo(f"{one.severity.value:8} {one.kind.value}: {printable(one.path)}")
            click.echo(f"         {printable(one.reason)}")
        if not found:
            click.echo("clean")
    return Exit.NOTHING if found else Exit.DONE
