"""Fuzzing from the OpenAPI document with schemathesis."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness.rounds import part_of
from tests.harness.suite import Suite

pytestmark = pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="schemathesis is not installed"
)

_SAME = "--generation-deterministic"
_WAIT = ("claim", "read_log", "claim_from_channel")


def test_no_generated_request_causes_a_server_error(tmp_path: Path) -> None:
    """One request for each operation, the same in each run; 20 others in ``make soak-models``."""
    examples = part_of(["--max-examples=1", _SAME], ["--max-examples=20"])
    options = ["--sync=none", "--read-timeout=2"]
    with Suite(tmp_path / "mq", mq_options=options) as suite:
        (suite.root / "queues" / "jobs").mkdir()
        command = [Path(sys.executable).with_name("schemathesis"), "run"]
        command += [f"{suite.url}/_openapi.json", "--checks=not_a_server_error"]
        command += ["--phases=fuzzing", "--request-timeout=30", *examples]
        # These wait for up to 20 s; tests/soak/fuzz.py sends them with shorter waits.
        command += [
            *(f"--exclude-operation-id={name}" for name in _WAIT),
            "--suppress-health-check=all",
            "--workers=1",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        # 503 is an expected answer, for example to two concurrent puts with one id.
        assert done.returncode == 0 or "[503]" in done.stdout, done.stdout[-5000:]
        assert "[500]" not in done.stdout, done.stdout[-5000:]
        assert not [e for e in suite.logs("mq") if e.get("level") == "error"], suite.logs("mq")
