"""The whole id of a message that was asked for by its own id."""

from __future__ import annotations

from collections.abc import Iterable

from fsmq.cli.failures import report
from fsmq.cli.place.place import Place
from fsmq.spool.errors import FsmqError

# A look for one may list all messages.
_MOST = 3


def whole_ids(place: Place, queue: str, message_id: str) -> str:
    """A hint for whoever named a message that is in a queue under a longer id; else empty."""
    try:
        found = [one.id for one in place.find(message_id) if one.queue == queue]
    except FsmqError:
        return ""
    return f"; its whole id is {' or '.join(found)}" if found and message_id not in found else ""


def report_whole_ids(place: Place, queue: str, ids: Iterable[str]) -> None:
    """Print the hint for each of the first ids that have one."""
    for message_id in list(ids)[:_MOST]:
        if hint := whole_ids(place, queue, message_id):
            report(f"{message_id}: it is not there{hint}")
