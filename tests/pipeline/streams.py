"""Streams of tests: the Python process of each is forked.

Spark starts an interpreter for each, which takes most of a second for imports. A fork of a process
with these imports does the same work.
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
    """python: the interpreter for Spark, which starts all of its processes with it."""

    def __init__(self) -> None:
        name = Path(sys.executable).name
        self._server = ForkServer([_RUNNER, *_SOURCES], environment())
        super().__init__({name: f'[ "$*" = "-m {_RUNNER}" ]'})
        self.python = str(self.folder / name)

    def start(self, call: Call) -> Forked:
        _, _, module = call.words
        return self._server.start(module, [], call.environment, call.files, call.folder)
