"""A driver that dies while messages come in: the short version of `tests.pipeline.kills`.

`make soak` has the long one, and that of the writer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.kills import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A driver starts here, on a machine that does other things, too.
pytestmark = pytest.mark.timeout(400)


def test_every_message_is_in_the_sink_once(spark: SparkSession, tmp_path: Path) -> None:
    outcome = run(spark, tmp_path, rounds=1, seed=8)
    assert outcome.is_right, str(outcome)
    assert outcome.kills == 1
