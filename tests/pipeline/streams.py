"""Streams of tests: the process that each has beside the driver is forked.

Spark starts an interpreter for each, which imports PySpark, Arrow and fsmq for most of a second. It
does the same work as a fork of one that has imported them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.harness.desk import Call, Forks
from tests.harness.forkserver import Forked, ForkServer, environment

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_SOURCES = (
    "fsmq.pipeline.read.stream",
    "fsmq.pipeline.logs.source",
    "fsmq.pipeline.journal.segments",
)


class Streams(Forks):
    """`python` is the interpreter to be named to Spark, which starts all of its processes so."""

    def __init__(self) -> None:
        name = Path(sys.executable).name
        self._server = ForkServer([_RUNNER, *_SOURCES], environment())
        super().__init__({name: f'[ "$*" = "-m {_RUNNER}" ]'})
        self.python = str(self.folder / name)

    def start(self, call: Call) -> Forked:
        _, _, module = call.words
        return self._server.start(module, [], call.environment, call.files, call.folder)
