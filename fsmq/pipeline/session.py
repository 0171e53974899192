"""Spark sessions that know the data source fsmq."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from fsmq.pipeline.datasource import FsmqDataSource, PlannedDataSource
from fsmq.pipeline.java import find_java
from fsmq.pipeline.logs.source import LogSource
from fsmq.pipeline.planner import planner as pruning

# Filters reach the source only if this is on; without it Spark refuses the source.
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# For a session of our own on this machine: listen only on loopback, and have no web UI.
_ALONE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",  # it warns of what it lacks on any machine without Hadoop
}


def register(spark: SparkSession) -> SparkSession:
    """Make ``format("fsmq")`` and ``fsmq_log`` known to a session; can be called again.

    Queries then read only the columns that they use, with their filters pushed down; but not if
    Spark Connect hides the driver, or the internals of a later Spark are different.
    """
    spark.conf.set(_PUSHDOWN, "true")
    planned = pruning.install(spark)
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is not None:  # Spark looks up sources by name in the active session
        jvm.SparkSession.setActiveSession(spark._jsparkSession)
    for source in (PlannedDataSource if planned else FsmqDataSource, LogSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
    return spark


def session(
    app: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for a job: the one that spark-submit prepared, or one on this machine.

    app: the name that Spark shows. master: ``local[2]``, ``spark://host:7077``; None: that of
    spark-submit, or all cores of this machine. settings: more settings of Spark.

    Raises:
        NoJava: Spark cannot run; the text says what to install.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    # Workers with another interpreter might not find fsmq, or find another version.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app)
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config(map=dict(_ALONE))
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    return register(builder.config(map=dict(settings or {})).getOrCreate())
