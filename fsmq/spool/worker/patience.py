"""Delays between retries."""

from __future__ import annotations

import random

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


def backoff(tries: int, asked: float | None = None) -> float:
    """Seconds until the next try: longer each time, and random, so that programs spread out.

    asked: the minimum that a server or a disk asked for.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 16))
    pause = random.uniform(longest / 2, longest)
    return pause if asked is None else max(pause, asked + random.uniform(0, longest))
