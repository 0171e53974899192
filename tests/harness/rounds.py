"""How much of a long test is run.

`CI=1 make test` runs a part of each, always the same; `make soak-models` sets TEST_ALL and runs
everything.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
ALL = os.environ.get("TEST_ALL") == "1"


def part_of(part: T, everything: T) -> T:
    """The part for this run."""
    return everything if ALL else part
