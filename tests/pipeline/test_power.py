"""A power cut removes what Spark did not sync; no committed row may be written twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.spool import Spool
from tests.power.disk import CannotMount, Disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        with Disk(tmp_path / "power", "ext4") as mounted:
            yield mounted
    except CannotMount as error:
        pytest.skip(str(error))


def test_a_stream_whose_checkpoint_was_not_synced_writes_each_row_once(
    spark: SparkSession, disk: Disk, tmp_path: Path
) -> None:
    # The spool is on another disk: its syncs would also write the checkpoint.
    root, source = tmp_path / "mq", tmp_path / "in"
    source.mkdir()
    with Spool(root) as spool:
        spool.create_queue("jobs")

    def run(rows: str) -> None:
        (source / rows.strip()).write_text(rows)
        lines = spark.readStream.format("text").load(str(source)).withColumnRenamed("value", "body")
        writing = lines.writeStream.format("fsmq").options(root=str(root), queue="jobs")
        checkpointed = writing.option("checkpointLocation", f"file://{disk.place}/checkpoint")
        checkpointed.trigger(availableNow=True).start().awaitTermination()

    run("1\n")
    disk.cut_power()
    disk.unmount()
    disk.mount()
    run("2\n")
    with Spool(root) as spool:
        assert sorted(m.body for m in spool.queue("jobs").claim(9)) == [b"1", b"2"]
