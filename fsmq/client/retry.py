"""Which requests are sent again, and how long a client waits before that."""

from __future__ import annotations

import time

from fsmq.spool.worker.patience import backoff

from .errors import ConnectionFailed, error_of
from .exchange import Answer, Outcome, Pause, Request, Verb

# With these answers the server has done nothing.
_REFUSED = {408, 429}


def persist(request: Request, retry_for: float) -> Verb[Outcome]:
    """Send a request until an answer is final, for at most ``retry_for`` seconds.

    Raises:
        Unavailable, ConnectionFailed: no try got a final answer.
    """
    end = time.monotonic() + retry_for
    again = False
    tries = 0
    while True:
        failure: Exception
        asked: float | None = None
        try:
            answer: Answer = yield request
        except ConnectionFailed as error:
            if error.lasting:
                raise
            failure = error
            again = again or error.maybe_done
        else:
            if not answer.is_temporary:
                return Outcome(answer, again)
            failure = error_of(answer)
            asked = answer.retry_after
            again = again or answer.status not in _REFUSED
        left = end - time.monotonic()
        if left <= 0 or (asked is not None and asked > left):
            raise failure
        yield Pause(min(backoff(tries, asked), left))
        tries += 1
