"""When a request is sent again, and how long a client waits before."""

from __future__ import annotations

import random
import time

from .errors import ConnectionFailed, error_of
from .exchange import Answer, Outcome, Pause, Request, Verb

# After these nothing was done.
_REFUSED = {408, 429}
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


def persist(request: Request, retry_for: float) -> Verb[Outcome]:
    """Send a request until an answer is final, for at most ``retry_for`` seconds.

    Raises:
        Unavailable, ConnectionFailed: so it was to the end.
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
        yield Pause(min(back_off(tries, asked), left))
        tries += 1


def back_off(tries: int, asked: float | None = None) -> float:
    """Seconds until the next try: longer each time, and never two clients at the same moment.

    asked: what the server wants at least.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 16))
    pause = random.uniform(longest / 2, longest)
    return pause if asked is None else max(pause, asked + random.uniform(0, longest))
