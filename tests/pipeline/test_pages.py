"""All commands of the pages on Spark run, with one shared Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.pages import Reader, Step, missing_tool, name, pages_run, uses_spark
from tests.pipeline.sharing import Sharing

WITH_SPARK = [page for page in pages_run() if uses_spark(page)]


@pytest.mark.parametrize("page", WITH_SPARK, ids=name)
def test_the_commands_of_a_page_work(page: Path, spark: SparkSession, tmp_path: Path) -> None:
    if (missing := missing_tool(page)) is not None:
        pytest.skip(missing)
    with Sharing(spark) as sharing, Reader(page, tmp_path, sharing) as reader:
        reader.follow_all()


def test_a_failing_program_fails_in_the_shell(spark: SparkSession, tmp_path: Path) -> None:
    [page, *_] = WITH_SPARK
    with Sharing(spark) as sharing, Reader(page, tmp_path, sharing) as reader:
        for command in (
            "fsmq pipeline load nowhere --queue jobs",
            "fsmq pipeline load",
            "python3 - <<< 'raise ValueError'",
            "python3 - <<< 'exit(3)'",
        ):
            with pytest.raises(AssertionError, match=r"ended with [123]"):
                reader.follow(Step(1, command))
