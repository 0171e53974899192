"""The main job at a small size; `make soak` runs it in full."""

import os
import subprocess
import sys

from tests.harness.suite import HOME


def test_real_files_are_delivered_whole_while_daemons_and_consumers_are_killed() -> None:
    environment = os.environ | {"PYTHONPATH": str(HOME)}
    command = [sys.executable, "-m", "tests.harness.real_input", "--files=500", "--kills=6"]
    done = subprocess.run(
        command, cwd=HOME, env=environment, capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "500 files" in done.stdout
    assert "came out byte for byte" in done.stdout
    assert "clean" in done.stdout.splitlines()[-1]
