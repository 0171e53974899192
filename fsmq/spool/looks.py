"""What a spool shows of all its queues at once, and changes nothing."""

from __future__ import annotations

from .context import Context
from .log.of_spool import LogsOfSpool
from .views.places import Place, places


class LooksOfSpool(LogsOfSpool):
    """The methods of a spool that look at it as a whole."""

    context: Context

    def find(self, message_id: str) -> list[Place]:
        """In which queues, and in which states, messages of this id are; empty if nowhere."""
        return places(self.context, message_id)
