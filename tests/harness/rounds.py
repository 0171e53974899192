"""How much is done of what has many rounds, or many kinds of each of many things.

`CI=1 make test` does a part: it comes to each kind once, in the same order each time, and
`make soak-models` does all, and sets TEST_ALL for that.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
ALL = os.environ.get("TEST_ALL") == "1"


def part_of(part: T, everything: T) -> T:
    """What is done of it in this run."""
    return everything if ALL else part
