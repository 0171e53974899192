"""One Spark for all tests of the pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from fsmq.pipeline.java import NoJava, find_java
from fsmq.spool import Spool
from tests.pipeline.files import without_processes
from tests.pipeline.processes import CONF, spark_home
from tests.pipeline.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A short-lived Java would spend a third of its time on optimizing code that runs rarely.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for _options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_options, _SHORT_LIVED)


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Skip the tests of the pipeline where Spark cannot run."""
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores; jobs that stop it have no effect."""
    from fsmq.pipeline import register, session

    os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
    os.environ.setdefault("SPARK_HOME", str(spark_home(tmp_path_factory.mktemp("home"))))
    # NumPy starts a thread for each core, in each of the many processes that import it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    running = session("tests", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    without_processes(running)
    _keep_names(running)
    context = running.sparkContext
    assert context.pythonExec == sys.executable
    streams = Streams()
    context.pythonExec = streams.python
    register(running)
    with mock.patch.object(type(running), "stop"):
        yield running
    running.stop()
    streams.close()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "mq", sync="none") as opened:
        yield opened


@pytest.fixture
def jobs_root(tmp_path: Path) -> Path:
    """The folder of a spool with the queue ``jobs``."""
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs")
    return tmp_path / "mq"


def _keep_names(spark: SparkSession) -> None:
    """Keep two names that PySpark looks up thousands of times.

    For each lookup Java searches all archives of Spark for classes of that name.
    """
    jvm: Any = spark.sparkContext._jvm
    for name in ("functions", "PythonUtils"):
        setattr(jvm, name, getattr(jvm, name))
