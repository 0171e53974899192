"""Programs of a shell that run in this process, so that they share one Spark.

Spark and its workers take seconds to start, and pages of the documentation start it often.
`Sharing.folder` is first on the PATH of the shell. Its small programs ``fsmq`` and ``python3`` pass
calls of ``fsmq pipeline …`` and ``python3 -`` to this process: words, environment, working folder,
stdin, stdout and stderr. They end with the exit code of the code that runs here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from fsmq.cli import main
from tests.harness.desk import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class Sharing:
    """Runs passed calls in this thread, one at a time.

    spark: the session, which programs cannot stop.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._desk = Desk()
        self.folder = self._desk.folder
        self._desk.program("fsmq", '[ "$1" = pipeline ]')
        self._desk.program("python3", '[ "$1" = - ]')

    def __enter__(self) -> Sharing:
        return self

    def __exit__(self, *of: object) -> None:
        self._desk.close()

    def until(self, awaited: Callable[[], T]) -> T:
        """Call ``awaited`` in a thread and run programs until it returns; its result."""
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(awaited)
            waiting.add_done_callback(lambda _: self._desk.call_nothing())
            while not waiting.done():
                with self._desk.accept() as caller:
                    self._serve(caller)
            return waiting.result()

    def _serve(self, caller: socket.socket) -> None:
        call = Desk.take(caller)
        if call is None:
            return
        with contextlib.ExitStack() as held:
            stdin, stdout, stderr = (
                held.enter_context(open(fd, mode, encoding="utf-8"))
                for fd, mode in zip(call.files, ("r", "w", "w"), strict=True)
            )
            held.enter_context(mock.patch.dict(os.environ, call.environment, clear=True))
            held.enter_context(contextlib.chdir(call.folder))
            held.enter_context(_hadoop_in(self._spark, call.folder))
            held.enter_context(mock.patch.object(sys, "stdin", stdin))
            held.enter_context(contextlib.redirect_stdout(stdout))
            held.enter_context(contextlib.redirect_stderr(stderr))
            code = _run(Path(call.words[0]).name, *call.words[1:])
        caller.send(b"%d" % code)


def _run(program: str, *words: str) -> int:
    """Run a program, for Python from stdin; its exit code."""
    try:
        if program == "fsmq":
            main(list(words), prog_name="fsmq")
        else:
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _hadoop_in(spark: SparkSession, folder: str) -> Iterator[None]:
    """Make a folder the working folder of Spark's JVM."""
    jvm: Any = spark.sparkContext._jvm
    files = getattr(jvm, "org.apache.hadoop.fs.FileSystem").getLocal(
        spark.sparkContext._jsc.hadoopConfiguration()
    )
    hadoop_path = getattr(jvm, "org.apache.hadoop.fs.Path")
    before = jvm.System.getProperty("user.dir")

    def go(to: str) -> None:
        jvm.System.setProperty("user.dir", to)
        files.setWorkingDirectory(hadoop_path(to))

    go(folder)
    try:
        yield
    finally:
        go(before)
