"""Reports when a limit of the kernel keeps a program from watching folders; it lists them then."""

from fsmq.daemons.process.logs import get_logger
from fsmq.spool.index.events import unwatched
from fsmq.spool.records.metrics import Metrics

log = get_logger(__name__)


class Unwatched:
    """Checks which limits are reached, counts the folders, and logs changes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: set[str] = set()

    def look(self) -> None:
        """To be called when the program starts, and every few seconds."""
        found = unwatched()
        for limit in self._known | found.keys():
            self._metrics.set(("unwatched", limit), found.get(limit, 0))
        for limit in found.keys() - self._known:
            log.warning(
                "folders cannot be watched and are listed instead",
                limit=limit,
                folders=found[limit],
                advice="raise the limit (sysctl -w), and restart what runs without events",
            )
        for limit in self._known - found.keys():
            log.info("folders are watched again", limit=limit)
        self._known = set(found)
