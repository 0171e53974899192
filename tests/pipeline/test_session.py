"""Sessions: Java is found, and workers use the interpreter of the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.cli.failures import Exit
from fsmq.pipeline import register
from fsmq.pipeline.datasource import FsmqDataSource
from fsmq.pipeline.java import NoJava, find_java
from fsmq.pipeline.planner import planner
from fsmq.spool import Spool


def _java_of(version: str, home: Path) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without Java."""
    monkeypatch.setattr("fsmq.pipeline.java._PLACES", (str(tmp_path / "nowhere"),))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return monkeypatch


def test_a_missing_java_names_the_package(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoJava, match=r"needs Java 17 .*`apt-get install default-jre-headless"):
        find_java()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_an_old_java_is_refused(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    home = _java_of(version, tmp_path / "old")
    bare.setenv("JAVA_HOME", str(home))
    with pytest.raises(NoJava, match=rf"{home} has version (8|11)\b"):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_home_is_used(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    home = _java_of(version, tmp_path / "new")
    bare.setenv("JAVA_HOME", str(home))
    assert find_java() == home


def test_the_planner_compiles_for_this_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Compiles the source again, as a loaded class may be older."""
    monkeypatch.setattr(planner, "_CLASS", "fsmq.Unknown")
    assert planner.install(spark), (
        f"Spark {spark.version} has other insides than fsmq/pipeline/planner/DefaultSource.java is"
        " written for: change that file until it compiles (queries are right without it, but read"
        f" all columns). The compiler says: {caplog.text}"
    )


@pytest.mark.parametrize(
    "otherwise",
    [{"_SOURCE": "__init__.py"}, {"_COMPILER": "org.nowhere.Compiler"}],
    ids=["it does not compile", "there is no compiler"],
)
def test_queries_work_without_the_planner(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    otherwise: dict[str, str],
) -> None:
    monkeypatch.setattr(planner, "_CLASS", "fsmq.Unknown")
    for name, value in otherwise.items():
        monkeypatch.setattr(planner, name, value)
    assert not planner.install(spark)
    assert "name them with the option columns" in caplog.text

    class Plain(FsmqDataSource):
        @classmethod
        def name(cls) -> str:
            return "plain"

    spark.dataSource.register(Plain)
    with Spool(tmp_path / "mq", sync="none", delivers=False) as spool:
        spool.queue("jobs", create=True).put_many([b"a", b"bb", b"ccc"])
    table = spark.read.format("plain").options(root=str(tmp_path / "mq"), queue="jobs").load()
    assert [row.body for row in table.where("size = 2").collect()] == [b"bb"]
    assert table.count() == 3


def test_sessions_can_be_registered_repeatedly(spark: SparkSession, tmp_path: Path) -> None:
    with Spool(tmp_path / "mq", sync="none", delivers=False) as spool:
        spool.queue("jobs", create=True).put(b"a")
    for session in (spark, spark, spark.newSession(), spark):
        table = register(session).read.format("fsmq").options(root=str(tmp_path / "mq"), queue="*")
        assert table.load().count() == 1


def test_workers_use_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    def interpreter(_: int) -> str:
        import sys

        return sys.executable

    assert spark.sparkContext.parallelize([1], 1).map(interpreter).collect() == [sys.executable]


def test_an_unreachable_master_is_reported(tmp_path: Path) -> None:
    Spool(tmp_path / "mq").close()
    command = [sys.executable, "-m", "fsmq.cli", "pipeline", "archive", "q", "--to=there"]
    options = ["--root", tmp_path / "mq", "--master", "nowhere:1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == Exit.UNAVAILABLE
    assert "Spark does not start with the master nowhere:1: [JAVA_GATEWAY_EXITED]" in done.stderr
    assert "bug" not in done.stderr
