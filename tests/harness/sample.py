"""The tests that `make test` leaves out; `CI=1 make test` runs all.

Of a function with many cases it runs some. Tests that are long, or need Spark, a booted machine or
a browser, run only if their subject has changed.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# One case in EACH of a function is run, and one in EACH_OF_PROVER of a prover.
EACH, EACH_OF_PROVER = 3, 5
# Prefixes of tests with many cases that prove little each.
PROVERS = (
    "tests/cli/test_closed_files.py",
    "tests/faults/",
    "tests/http/emodb/test_fast_path.py",
    "tests/http/emodb/test_requests.py",
    "tests/http/sqs/test_fast_path.py",
    "tests/http/test_fast_path",
    "tests/http/test_loop",
    "tests/interleave/",
    "tests/power/",
    "tests/replay/",
    "tests/spool/test_crash",
    "tests/spool/test_log.py::test_ids_are_found_by_the_times_of_messages_in_any_order",
    "tests/spool/test_log_turns.py",
    "tests/stories/",
    "tests/test_benchmarks.py",
    "tests/test_pages.py",
)
_KERNEL = ("fsmq/spool/", "fsmq/daemons/")
# Tests and their subjects.
WHERE_CHANGED = {
    "tests/interleave/": _KERNEL,
    "tests/power/": _KERNEL,
    "tests/replay/": _KERNEL,
    "tests/spool/test_crash": _KERNEL,
    "tests/spool/test_log_model.py": ("fsmq/spool/log/",),
    "tests/stories/": _KERNEL,
    "tests/test_benchmarks.py": ("benchmarks/",),
    "tests/test_dist.py": ("packaging/", "pyproject.toml", "README.md"),
    "tests/test_schemathesis.py": ("fsmq/http/",),
    "tests/test_website.py": ("docs/", "website/", "zensical.toml"),
    "tests/pipeline/": ("fsmq/pipeline/", "fsmq/cli/pipeline/", "fsmq/spool/layout/"),
    "tests/systemd/": ("systemd/", "fsmq/daemons/"),
    "tests/http/ui/test_actions.py": ("fsmq/http/ui/", "tests/http/ui/"),
    "tests/http/ui/test_pages_seen.py": ("fsmq/http/ui/", "tests/http/ui/"),
}


@cache
def changed() -> list[str] | None:
    """The files that differ from the published version; None if that is unknown."""
    for published in ("origin/HEAD", "origin/main", "main"):
        base = _git("merge-base", "HEAD", published)
        if base is not None:
            different = _git("diff", "--name-only", *base)
            new = _git("ls-files", "--others", "--exclude-standard")
            return None if different is None or new is None else different + new
    return None


def unchanged(changed: Collection[str] | None) -> list[str]:
    """The tests in `WHERE_CHANGED` that are left out. changed: None if unknown."""
    return [
        about
        for about, places in WHERE_CHANGED.items()
        if changed is not None and not any(file.startswith((about, *places)) for file in changed)
    ]


def left_out(nodeids: Iterable[str]) -> set[str]:
    """The cases that are left out."""
    cases: Counter[str] = Counter()
    out = set()
    for nodeid in nodeids:
        function = nodeid.partition("[")[0]
        if cases[function] % (EACH_OF_PROVER if nodeid.startswith(PROVERS) else EACH):
            out.add(nodeid)
        cases[function] += 1
    return out


def _git(*arguments: str) -> list[str] | None:
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.split()
