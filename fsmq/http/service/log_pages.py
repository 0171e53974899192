"""Pages of a log, read in portions so that they count for what they have, and for no more."""

from __future__ import annotations

from fsmq.spool import Log
from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import LogBatch
from fsmq.spool.prepare import LARGE_BYTES

from ..guard.admission import Admission


def read_page(
    admission: Admission, account: str | None, log: Log, start: int, count: int, most: int
) -> LogBatch:
    """Up to ``count`` messages, and ``most`` bytes of bodies, of which the last may exceed it.

    What was read, and the next portion, count as held until the page is complete, so that others
    read less meanwhile. For all that the log may not have others would be refused for nothing.

    Raises OffsetGone, NoSuchLog, Unavailable.
    """
    page = LogBatch([], start, 0)
    held = 0
    try:
        while True:
            # The first one is always read: requests that wait for messages have begun.
            admission.hold(account, LARGE_BYTES, sure=not page.messages)
            held += LARGE_BYTES
            part = log.page(page.next, count - len(page.messages), LARGE_BYTES)
            size = sum(len(message.body) for message in part.messages)
            beyond = max(0, size - LARGE_BYTES)  # the last message can be large
            admission.hold(account, beyond, sure=True)
            held += beyond
            page = LogBatch(page.messages + part.messages, part.next, page.lost + part.lost)
            if size < LARGE_BYTES or held >= most or len(page.messages) == count:
                return page
    except FsmqError:
        if not page.messages:
            raise
        return page  # the next request gets the rest, or is told why not
    finally:
        admission.free(account, held)
