"""The benchmarks of Spark run at a tiny size; their figures are not checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness import rows


@pytest.mark.parametrize("row", ["spark-read", "spark-drain", "spark-write"])
def test_a_benchmark_runs(spark: SparkSession, tmp_path: Path, row: str) -> None:
    with rows.tiny(tmp_path / "place") as bench:
        rows.run(bench, row)
