"""The choice of the tests of CI that `make test` runs."""

from __future__ import annotations

import pytest

from tests.harness.sample import (
    EACH,
    EACH_OF_PROVER,
    PROVERS,
    ROOT,
    WHERE_CHANGED,
    left_out,
    unchanged,
)

SPARK = "tests/pipeline/"


@pytest.mark.parametrize(
    ("file", "each"),
    [("tests/replay/test_replay.py", EACH_OF_PROVER), ("tests/spool/test_put.py", EACH)],
)
def test_one_case_in_several_of_a_function_is_run(file: str, each: int) -> None:
    cases = [f"{file}::test_{f}[{n}]" for f in "ab" for n in range(each + 1)]
    run = set(cases) - left_out(cases)
    assert run == {cases[0], cases[each], cases[each + 1], cases[-1]}


def test_a_function_with_one_case_is_run() -> None:
    assert not left_out(
        ["tests/replay/test_replay.py::test_a", "tests/spool/test_put.py::test_a[1]"]
    )


@pytest.mark.parametrize(
    ("changed", "out"),
    [
        (["docs/spark.md"], True),
        (["fsmq/pipeline/columns.py"], False),
        (["tests/pipeline/test_jobs.py"], False),
        (None, False),
    ],
)
def test_tests_of_spark_run_if_their_subject_has_changed(
    changed: list[str] | None, out: bool
) -> None:
    assert (SPARK in unchanged(changed)) is out


def test_named_files_exist() -> None:
    named = [*PROVERS, *WHERE_CHANGED, *(place for of in WHERE_CHANGED.values() for place in of)]
    files = {name.partition("::")[0].rstrip("/") for name in named}
    assert [file for file in files if not list(ROOT.glob(f"{file}*"))] == []
