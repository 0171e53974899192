"""Celery on fsmq: a chain with retries and an ETA, and killed workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.harness.rounds import part_of
from tests.harness.suite import Suite, eventually

celery = pytest.importorskip("celery", reason="celery is not installed")
pytest.importorskip("pycurl", reason="what Celery needs for SQS is not installed")

_STEPS = part_of(8, 1000)
_PATIENCE_S = part_of(60.0, 240.0)
_COMMAND = (
    sys.executable,
    "-m",
    "celery",
    "-A",
    "tests.http.sqs.celery_app",
    "worker",
    "--pool=solo",
    "--loglevel=WARNING",
)


class Workers:
    """Workers of one application, and the lines that their tasks have written."""

    def __init__(self, folder: Path, port: int) -> None:
        self.notes = folder / "notes"
        self.environ = {
            **os.environ,
            "TASKS_BROKER": f"sqs://any:any@127.0.0.1:{port}//",
            "TASKS_NOTES": str(self.notes),
        }
        self._log = folder / "workers.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        with self._log.open("ab") as log:
            one = subprocess.Popen(_COMMAND, env=self.environ, stdout=log, stderr=log)
        self._started.append(one)

    def kill(self, pid: int) -> None:
        [worker] = [one for one in self._started if one.pid == pid]
        worker.kill()
        worker.wait()

    def noted(self, kind: str, number: int) -> list[int]:
        """The processes that have run a step."""
        if not self.notes.exists():
            return []
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return [int(line[2]) for line in lines if line[:2] == [kind, str(number)]]

    def close(self) -> None:
        for one in self._started:
            one.kill()
            one.wait()


@pytest.fixture
def workers(tmp_path: Path, suite: Suite) -> Iterator[Workers]:
    found = Workers(tmp_path, suite.port)
    yield found
    found.close()


def test_a_chain_goes_on_when_workers_are_killed(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKS_BROKER", workers.environ["TASKS_BROKER"])
    from tests.http.sqs.celery_app import app, is_held, is_retried, later, step

    app.conf.broker_url = workers.environ["TASKS_BROKER"]
    workers.start()
    workers.start()
    celery.chain(*(step.si(number) for number in range(_STEPS))).apply_async()
    due = datetime.now(UTC) + timedelta(seconds=1)
    later.apply_async((due.timestamp(),), eta=due)
    for number in filter(is_held, range(_STEPS)):
        [held] = eventually(lambda number=number: workers.noted("begin", number), _PATIENCE_S)
        workers.notes.with_name(f"notes.killed.{number}").touch()
        workers.kill(held)
        workers.start()
        assert held not in workers.noted("end", number)
    eventually(lambda: workers.noted("end", _STEPS - 1), _PATIENCE_S)
    eventually(lambda: workers.noted("later", 0), 60.0)
    assert workers.noted("early", 0) == []
    for number in filter(is_retried, range(_STEPS)):
        assert len(workers.noted("begin", number)) >= 2
    ends = [workers.noted("end", number) for number in range(_STEPS)]
    assert all(ends), ends
