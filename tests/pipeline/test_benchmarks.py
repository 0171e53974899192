"""The benchmarks of Spark run, each at a tiny size. No figure is judged here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("row", ["spark-read", "spark-drain", "spark-write"])
def test_a_row_gives_figures(spark: SparkSession, tmp_path: Path, row: str) -> None:
    # What it begins is the session of the tests.
    with rows.tiny(tmp_path / "place") as bench:
        rows.run(bench, row)
