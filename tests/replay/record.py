"""Records a scenario and prints the record, for a comparison with strace.

python -m tests.replay.record put claim remove_held
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.replay.recorder import Mark
from tests.replay.scenario import record


def main() -> None:
    scenario = record(sys.argv[1:])
    steps = [
        (type(step).__name__, asdict(step)) for step in scenario.steps if not isinstance(step, Mark)
    ]
    for step in steps:
        step[1].pop("data", None)
        step[1].pop("value", None)
    print(json.dumps(steps))


if __name__ == "__main__":
    main()
