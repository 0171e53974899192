"""The jobs that put, as a user runs them: what they print, and what they say of an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fsmq.spool import Spool
from tests.suite import HOME


def fsmq(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fsmq.cli", "pipeline", *words, "--master", "local[2]"],
        cwd=HOME,
        env={"PATH": "/usr/bin:/bin", "FSMQ_ROOT": str(folder / "mq"), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )


def test_a_file_is_loaded_from_a_shell(tmp_path: Path) -> None:
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs")
    (tmp_path / "in.jsonl").write_text('{"body": "one"}\n{"body": null}\n')
    words = ("load", str(tmp_path / "in.jsonl"), "--queue", "jobs", "--root", str(tmp_path / "mq"))
    failed = fsmq(tmp_path, *words)
    assert failed.returncode == 2, failed.stderr
    assert "partition 0, row 1: body: is null (body=None)" in failed.stderr
    assert "Traceback" not in failed.stderr
    done = fsmq(tmp_path, *words, "--bad-rows", str(tmp_path / "bad"), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["messages"], told["bad_rows"], told["done_before"]) == (1, 1, False)
