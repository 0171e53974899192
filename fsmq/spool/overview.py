"""Read-only views of a whole spool."""

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
    """The methods of a spool that show it as a whole."""

    context: Context
    syncer: Syncer
    filesystem: Filesystem

    @property
    def polls(self) -> bool:
        """Whether new messages are found by listing instead of by events."""
        return self.context.ready.polls

    def find(self, message_id: str) -> list[Place]:
        """The queues and states in which messages of this id are; empty if there are none."""
        return places(self.context, message_id)

    def cluster(self) -> dict[str, Any]:
        """The hosts and programs of the spool, and the state of its filesystem, for people.

        See ``GET /_cluster`` in docs/http.md; members may be added.
        """
        return look_at_cluster(self, host_name())

    def history(
        self, queue: str | None = None, *, since: float | None = None, step: float | None = None
    ) -> dict[str, list[Moment]]:
        """How many messages queues had, and how many arrived and left, from the history.

        queue: None for all. since: Unix seconds; None is three hours ago. step: seconds, at least
        60; None is a minute, or ten minutes if the period is longer than six hours.
        """
        now = self.context.clock()
        since = now - HISTORY_S if since is None else since
        if step is not None:
            check_number("step", round(step), round(EVERY_S), round(MAX_STEP_S))
        with as_unavailable("cannot read the history"):
            queues = self.context.tree.queues() if queue is None else [check_queue(queue)]
            step = step_of(since, now, len(queues), step)
            return read_history(self.context.tree, queues, since, now, step)
