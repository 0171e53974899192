"""A server as the place of a verb."""

from __future__ import annotations

import time
from collections import Counter
from http import HTTPStatus

from fsmq.client._sync.client import Client
from fsmq.client.errors import ConnectionFailed
from fsmq.client.exchange import Answer, Request, Verb
from fsmq.spool import NoSuchQueue, Unavailable
from fsmq.spool.views.counts import Overview

# Long enough for a server to be restarted.
_PATIENCE_S = 5.0
# How long a server that is alive takes to answer.
_KNOCK_S = 3.0
_CAME = "fsmq_messages_sent_total"
_LEFT = ("fsmq_messages_deleted_total", "fsmq_messages_expired_total")
# The first messages of these states are looked at for the age of the oldest.
_WAITING = ("new", "ready")


class Server(Client):
    """A server of fsmq; the key comes from FSMQ_KEY."""

    def __init__(self, url: str, patience: float | None = None) -> None:
        """Take a URL. Raises InvalidValue."""
        super().__init__(url, retry_for=_PATIENCE_S if patience is None else patience)
        self.where = self.options.origin + self.options.prefix

    def survey(self, queue: str | None = None) -> dict[str, Overview]:
        """Counts of all queues, or of one, and the age of the first message in each.

        If messages have priorities, another one may be older. Queues that the server cannot read
        are left out, if all are asked for.
        """
        found = {}
        failed: Unavailable | None = None
        for name in [queue] if queue is not None else self.queues():
            opened = self.queue(name)
            try:
                counts, settings = opened.counts(), opened.settings()
                waiting = [s for s in _WAITING if getattr(counts, s)]
                first = [m for state in waiting for m in opened.peek(1, state=state)]
            except NoSuchQueue:
                if queue is not None:
                    raise
                continue  # deleted meanwhile
            except Unavailable as error:
                if queue is not None:
                    raise
                failed = error
                continue
            ages = (m.created_at for m in first)
            oldest = min((age for age in ages if age is not None), default=None)
            paused, dead = settings.pause_at(time.time()), settings.dead_letter_queue
            most, rate = settings.max_in_flight, settings.max_rate
            found[name] = Overview(counts, oldest, paused, dead, most, rate)
        if failed is not None and not found:
            raise failed
        return found

    def page(self, path: str, timeout: float | None = None) -> tuple[int, bytes]:
        """The status and the body of a page about the server, whatever the status.

        timeout: seconds; None: those of the client. Raises ConnectionFailed.
        """

        def ask() -> Verb[Answer]:
            url = self.options.prefix + path
            answer: Answer = yield Request("GET", url, timeout or self.options.timeout)
            return answer

        answer = self.run(ask())
        return answer.status, answer.body

    def knock(self) -> str | None:
        """Why no connection can be made now; None if one can."""
        try:
            self.page("/_health/live", _KNOCK_S)
        except ConnectionFailed as error:
            return str(error)
        return None


class ServerTraffic:
    """Messages that come and go, by the server's counters for all processes of its host."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last: tuple[Counter[str], Counter[str]] | None = None

    def take_in(self) -> None:
        """Nothing: the server counts."""

    def totals(self) -> tuple[Counter[str], Counter[str]] | None:
        """How many came and left since the last call; None if it is not known."""
        counted, last = self._counted(), self._last
        self._last = counted
        if counted is None or last is None:
            return None
        came, left = (Counter(now) for now in counted)
        came.subtract(last[0])
        left.subtract(last[1])
        # Less than before: a process was restarted, and counts from 0.
        return None if min([0, *came.values(), *left.values()]) < 0 else (came, left)

    def _counted(self) -> tuple[Counter[str], Counter[str]] | None:
        # Imported here, because it takes long to load and only `top` needs it.
        from prometheus_client.parser import text_string_to_metric_families

        status, body = self._server.page("/_metrics")
        if status != HTTPStatus.OK:
            return None
        came: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                counter = {_CAME: came}.get(sample.name, left if sample.name in _LEFT else None)
                if counter is not None:
                    counter[sample.labels["queue"]] += int(sample.value)
        return came, left
