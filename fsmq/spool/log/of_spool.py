"""The methods of a spool about its logs."""

from __future__ import annotations

from collections.abc import Callable

from ..layout.messages.message import NewMessage
from ..layout.names import check_queue
from .log import Log
from .logs import Logs
from .upkeep import Upkeep


class LogsOfSpool:
    """The methods of a spool about its logs. open_logs: those that are in use, opened."""

    open_logs: Logs

    def log(self, name: str, *, create: bool = False) -> Log:
        """An ordered log to work with. This creates nothing, unless ``create`` is given.

        Its verbs raise NoSuchLog if there is none of this name.
        """
        log = Log(self.open_logs.spool, self.open_logs, check_queue(name, "log"))
        if create:
            log.create()
        return log

    def _taking(self, log: str, message: NewMessage) -> Callable[[], int]:
        """A function that publishes a message of a topic in a log. Raises what a publish would."""
        return self.log(log)._taking(message)

    def logs(self) -> list[str]:
        """The names of all logs, sorted."""
        return self.open_logs.names()

    def tend_logs(self) -> None:
        """Do the mover's work on logs once, for programs that run alone.

        Sync what killed writers left, apply retention, bury poison. Raises Unavailable.
        """
        Upkeep(self.open_logs).step()
