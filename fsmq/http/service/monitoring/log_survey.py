"""The state of all logs and channels, for the page of metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

from fsmq.spool import Spool
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import ChannelState, LogStats


class LogOverview(NamedTuple):
    """A log, and each of its channels, at a moment in Unix seconds."""

    at: float
    stats: LogStats
    channels: dict[str, ChannelState]


OF_LOG: dict[str, tuple[str, Callable[[LogStats], float]]] = {
    "messages": ("Messages that a log holds", lambda stats: stats.next - stats.first),
    "bytes": ("Bytes that a log holds, about", lambda stats: stats.bytes),
    "segments": ("Files that hold the messages of a log", lambda stats: stats.segments),
}
OF_CHANNEL: dict[str, tuple[str, Callable[[ChannelState], float]]] = {
    "lag_messages": ("Messages that a channel has not finished", attrgetter("lag")),
    "lag_bytes": ("Their bytes, about", attrgetter("lag_bytes")),
    "lag_seconds": ("Age of the oldest of them", attrgetter("lag_seconds")),
    "in_flight_messages": ("Messages that are claimed", attrgetter("in_flight")),
    "delayed_messages": ("Messages that were released with a delay", attrgetter("delayed")),
    "lost_messages": ("Messages that were gone before they were finished", attrgetter("lost")),
    "blocked": (
        "1 where a message whose deliveries are used up holds others back",
        lambda state: state.blocked_at is not None,
    ),
    "unburied": (
        "1 where the dead-letter queue does not take a message, which is tried again",
        lambda state: state.unburied_at is not None,
    ),
}


def overview_of(spool: Spool, name: str) -> LogOverview:
    """One log, with those of its channels that can be read. Raises NoSuchLog, Unavailable."""
    log = spool.log(name)
    found = LogOverview(spool.context.clock(), log.stats(), {})
    for channel in found.stats.channels:
        with suppress(FsmqError):
            found.channels[channel] = log.channel(channel).state()
    return found


def survey_logs(spool: Spool) -> dict[str, LogOverview]:
    """All logs, except for those that are deleted during the survey, or cannot be read."""
    found: dict[str, LogOverview] = {}
    for name in spool.logs():
        with suppress(FsmqError):
            found[name] = overview_of(spool, name)
    return found
