"""Sources of loads: parse errors name the row, and values are not changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fsmq.cli.failures import Exit
from fsmq.cli.pipeline.spark_errors import failure_of
from fsmq.pipeline.jobs.load import load
from fsmq.pipeline.jobs.sending import Plan
from fsmq.spool import InvalidValue, Spool
from tests.pipeline.spools import bodies

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)

Load = Callable[..., dict[str, Any]]


@pytest.fixture
def load_bytes(spark: SparkSession, jobs_root: Path, tmp_path: Path) -> Load:
    """Loads a file with some bytes; bad rows are written to the folder ``bad``."""

    def do(content: bytes, form: str, job: str = "job", **more: Any) -> dict[str, Any]:
        source = tmp_path / f"[{job}]{{1}}*.{form}"  # not a pattern, although it looks like one
        source.write_bytes(content)
        plan = Plan(str(jobs_root), job, "jobs", **{"rejected_rows": str(tmp_path / "bad"), **more})
        return load(spark, plan, str(source), form, {})

    return do


def aside(tmp_path: Path, job: str = "job") -> list[dict[str, Any]]:
    with (tmp_path / "bad" / f"{job}-0.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def test_a_broken_line_of_json_is_named_and_kept(
    load_bytes: Load, jobs_root: Path, tmp_path: Path
) -> None:
    source = b'{"body": "a"}\n{"body": "b"\n{"body": "c"}\n'
    with pytest.raises(Exception, match=r'row 1: row: cannot be parsed .*\{"body": "b"'):
        load_bytes(source, "json", "strict", rejected_rows=None)
    assert bodies(jobs_root) == []
    assert load_bytes(source, "json")["rejected_rows"] == 1
    assert bodies(jobs_root) == [b"a", b"c"]
    assert aside(tmp_path)[0]["_corrupt_record"] == '{"body": "b"'


def test_attributes_of_json_are_those_of_each_line(load_bytes: Load, jobs_root: Path) -> None:
    lines = [{"body": "1", "attributes": {"a": "x"}}, {"body": "2", "attributes": {"b": "y"}}]
    source = "".join(json.dumps(line) + "\n" for line in [*lines, {"body": "3"}])
    assert load_bytes(source.encode(), "json")["messages"] == 3
    with Spool(jobs_root, sync="none") as spool:
        spool.deliver()
        found = {m.body: dict(m.attributes) for m in spool.queue("jobs").peek(9)}
    assert found == {b"1": {"a": "x"}, b"2": {"b": "y"}, b"3": {}}


def test_rows_of_csv_that_cannot_be_parsed_are_rejected(
    load_bytes: Load, jobs_root: Path, tmp_path: Path
) -> None:
    source = b'body,priority\nfine,1\ntwo,x\n"",\nhello, world,3\n"a\nb",2\n'
    assert load_bytes(source, "csv")["rejected_rows"] == 2
    assert bodies(jobs_root) == [b"", b"a\nb", b"fine"]
    assert [row["_corrupt_record"] for row in aside(tmp_path)] == [
        "priority is not a number: x",
        "hello, world,3",
    ]


def test_bytes_of_a_text_are_kept_and_strings_are_checked(
    load_bytes: Load, spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    assert load_bytes(b"one\r\n\xff\xfe\n\n", "text")["messages"] == 3
    rows = spark.sql("SELECT 'x' body, 'jobs' queue, cast(x'6bff' AS string) content_type")
    rows = rows.unionAll(spark.sql("SELECT cast(x'ff' AS string), 'jobs', null"))
    rows.coalesce(1).write.parquet(str(tmp_path / "in"))
    plan = Plan(str(jobs_root), "rows", rejected_rows=str(tmp_path / "bad"))
    assert load(spark, plan, str(tmp_path / "in"), "parquet", {})["rejected_rows"] == 1
    assert bodies(jobs_root) == [b"", b"one", b"\xff", b"\xff\xfe"]
    assert aside(tmp_path, "rows")[0]["error"].startswith("content_type: has control characters")


def test_an_id_given_twice_is_counted_as_repeated(load_bytes: Load) -> None:
    lines = b'{"body": "a", "id": "x"}\n{"body": "b", "id": "x"}\n{"body": "c", "id": "y"}\n'
    done = load_bytes(lines, "json")
    assert (done["messages"], done["repeated"]) == (2, 1)
    done = load_bytes(lines, "json", "again")
    assert (done["messages"], done["repeated"]) == (0, 3)


def test_an_empty_source_is_named(load_bytes: Load) -> None:
    with pytest.raises(InvalidValue, match="is empty, or not json"):
        load_bytes(b"", "json")


@pytest.mark.parametrize(
    ("text", "expected", "code"),
    [
        ("\n[PARSE_SYNTAX_ERROR] Syntax error at 'x'.", "Syntax error at 'x'.", Exit.USAGE),
        (
            "[STREAM_FAILED] Query [id = 1] terminated: [PYTHON_DATA_SOURCE_ERROR] Failed\n"
            "fsmq.spool.errors.NoSuchQueue: there is no queue named 'x'; create it first\n",
            "there is no queue named 'x'; create it first",
            Exit.NOT_FOUND,
        ),
        (
            ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed.\n"
            "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device",
            "No space left on device",
            Exit.UNAVAILABLE,
        ),
        ("[INTERNAL_ERROR] The Spark SQL phase failed: [CAST_INVALID_INPUT] x", None, None),
        ("[PYTHON_EXCEPTION] Traceback\nKeyError: 'x'", None, None),
    ],
)
def test_errors_of_spark_become_one_line(
    text: str, expected: str | None, code: Exit | None
) -> None:
    found = failure_of(text)
    assert (found and (found.message, found.code)) == (expected and (expected, code))
