"""Python without some packages: see `tests/harness/without/sitecustomize.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from tests.harness.suite import HOME


def environment(packages: Iterable[str]) -> dict[str, str]:
    """An environment in which Python cannot import these packages."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FSMQ_", "PYTEST_"))}
    folders = (str(HOME / "tests" / "harness" / "without"), str(HOME), clean.get("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, folders))
    return {**clean, "PYTHONPATH": path, "TEST_WITHOUT": ",".join(packages)}


def run_without(packages: Iterable[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=HOME,
        env=environment(packages),
        capture_output=True,
        text=True,
    )
