"""A signal stops a job during its work; the next run continues."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from fsmq.cli import main
from fsmq.spool import NewMessage, Spool, prepare
from tests.harness.suite import eventually
from tests.pipeline.archives import archived
from tests.pipeline.processes import PATIENCE_S
from tests.spool.helpers import visible

pytestmark = pytest.mark.timeout(300)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Enough files or batches for a late signal to find the job still running.
AMOUNT, PER_BATCH = 1000, 5
_OF_ONE_FILE = "spark.sql.files.maxPartitionBytes", "64"


@pytest.fixture(autouse=True)
def harmless() -> Iterator[None]:
    """A signal after the job does not kill the tests."""
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def do(root: Path, *words: object) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, words), f"--root={root}", "--json"])


def stopped(
    number: signal.Signals, is_at_work: Callable[[], object], root: Path, *words: object
) -> None:
    """Send a running job a signal; it must exit with code 130 and a hint."""

    def strike() -> None:
        eventually(is_at_work, PATIENCE_S)
        os.kill(os.getpid(), number)

    striker = threading.Thread(target=strike)
    striker.start()
    done = do(root, *words)
    striker.join()
    assert (done.exit_code, done.stdout) == (130, ""), done.output
    assert done.stderr == "fsmq: stopped\n      run it again: it continues where it stopped\n"


def test_a_stopped_load_puts_nothing_and_is_finished_by_the_next(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
    lines = tmp_path / "lines"
    lines.mkdir()
    for number in range(AMOUNT):
        (lines / f"{number}.txt").write_text(f"{number}\n")
    load = ("load", lines, "--format=text", "--queue=jobs")
    staging = root / "staging"
    spark.conf.set(*_OF_ONE_FILE)
    try:
        stopped(signal.SIGTERM, lambda: list(staging.glob(".load-*/*/*")), root, *load)
    finally:
        spark.conf.unset(_OF_ONE_FILE[0])
    # A late task may leave uncommitted files, which are removed later.
    assert list(staging.glob("[!.]*:*")) == []
    assert visible(root) == []
    assert json.loads(do(root, *load).stdout)["messages"] == AMOUNT
    assert len(visible(root)) == AMOUNT


def test_a_stopped_archive_continues(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        posted = jobs.put_many([NewMessage(b"%d" % n) for n in range(AMOUNT)])
        spool.deliver()
        folder = tmp_path / "archive"
        archive = ("archive", "jobs", f"--to={folder}")
        part = f"--batch={PER_BATCH}"
        stopped(signal.SIGINT, lambda: list(folder.glob("queue=*/*/*")), root, *archive, part)
        assert 0 < len(visible(root)) <= AMOUNT
        if json.loads(do(root, *archive).stdout)["hidden"]:
            # It was stopped between a claim and its note: only the timer releases the claim.
            spool.complete(prepare.release_many(spool.context, "jobs"))
            do(root, *archive)
        assert visible(root) == []
    assert Counter(row["id"] for row in archived(folder)) == Counter(posted)
    assert not list((root / "consumers").rglob("*.json"))
