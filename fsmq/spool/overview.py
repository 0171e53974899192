"""What a spool shows of all its queues at once, and changes nothing."""

from __future__ import annotations

from typing import Any

from .cluster import look_at_cluster
from .context import Context
from .durability.sync import Syncer
from .errors import as_unavailable
from .layout.filesystem import Filesystem
from .layout.names import check_queue
from .layout.settings import check_number
from .log.of_spool import LogsOfSpool
from .records.history import EVERY_S, HISTORY_S, MAX_STEP_S, Moment, read_history, step_of
from .records.peers import host_name
from .views.places import Place, places


class OverviewOfSpool(LogsOfSpool):
    """The methods of a spool that look at it as a whole."""

    context: Context
    syncer: Syncer
    filesystem: Filesystem

    @property
    def polls(self) -> bool:
        """Whether arrivals are found by listings instead of events."""
        return self.context.ready.polls

    def find(self, message_id: str) -> list[Place]:
        """In which queues, and in which states, messages of this id are; empty if nowhere."""
        return places(self.context, message_id)

    def cluster(self) -> dict[str, Any]:
        """The hosts and programs on the spool, and what its filesystem has, for people.

        ``GET /_cluster`` in docs/http.md describes it; members may come.
        """
        return look_at_cluster(self, host_name())

    def history(
        self, queue: str | None = None, *, since: float | None = None, step: float | None = None
    ) -> dict[str, list[Moment]]:
        """How many messages queues had, and how many came and went, from the history.

        queue: None is all. since: Unix seconds; None is three hours ago. step: seconds, at least
        60; None is a minute, or ten where it is about more than six hours.
        """
        now = self.context.clock()
        since = now - HISTORY_S if since is None else since
        if step is not None:
            check_number("step", round(step), round(EVERY_S), round(MAX_STEP_S))
        with as_unavailable("cannot read the history"):
            queues = self.context.tree.queues() if queue is None else [check_queue(queue)]
            step = step_of(since, now, len(queues), step)
            return read_history(self.context.tree, queues, since, now, step)
