"""What `make test` does of the tests of CI."""

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
def test_of_the_cases_of_a_function_some_are_done(file: str, each: int) -> None:
    cases = [f"{file}::test_{f}[{n}]" for f in "ab" for n in range(each + 1)]
    done = set(cases) - left_out(cases)
    assert done == {cases[0], cases[each], cases[each + 1], cases[-1]}


def test_what_has_one_case_is_done() -> None:
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
def test_spark_is_started_if_what_it_is_about_has_changed(
    changed: list[str] | None, out: bool
) -> None:
    assert (SPARK in unchanged(changed)) is out


def test_what_is_named_is_there() -> None:
    named = [*PROVERS, *WHERE_CHANGED, *(place for of in WHERE_CHANGED.values() for place in of)]
    files = {name.partition("::")[0].rstrip("/") for name in named}
    assert [file for file in files if not list(ROOT.glob(f"{file}*"))] == []
