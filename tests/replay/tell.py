"""Tells one story in a process of its own and prints its record: for strace to watch.

python -m tests.replay.tell put claim remove_held
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.replay.recorder import Mark
from tests.replay.story import record


def main() -> None:
    story = record(sys.argv[1:])
    steps = [
        (type(step).__name__, asdict(step)) for step in story.steps if not isinstance(step, Mark)
    ]
    for step in steps:
        step[1].pop("data", None)
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
