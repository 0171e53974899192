"""One Spark for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fsmq.pipeline.java import NoJava, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Skip the tests of the pipeline where Spark cannot run."""
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A session on two cores, as a user would make it."""
    from fsmq.pipeline import session

    running = session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield running
    running.stop()
