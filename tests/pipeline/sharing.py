"""Programs that a shell starts and that run in this process: all of them share its Spark.

Spark takes seconds to start, and so do its workers; a page of the documentation starts it again and
again. `Sharing.folder` goes first on the shell's PATH. It has small programs named ``fsmq`` and
``python3``, which hand over what they were called with, if that is ``fsmq pipeline …`` or
``python3 -``: words, environment, working folder, and their very stdin, stdout and stderr. Here the
same code then runs as it would in a process of its own, and the small program ends as it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from fsmq.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_LONGEST = 1 << 17  # bytes of an environment and words, and more than enough
_HAND_OVER = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as desk:
    desk.connect(sys.argv[1])
    call = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(desk, [json.dumps(call).encode()], [0, 1, 2])
    sys.exit(int(desk.recv(16)))
"""


class Sharing:
    """Runs what is handed over, in this thread and one at a time, while something else is awaited.

    spark: the session, which outlives each program that stops it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # A path of a socket may have 107 bytes at most: those of tests have more.
        self._place = tempfile.TemporaryDirectory(prefix="fsmq-")
        self.folder = Path(self._place.name)
        self._address = str(self.folder / "desk")
        self._desk = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._desk.bind(self._address)
        self._desk.listen()
        (self.folder / "hand_over.py").write_text(_HAND_OVER)
        self._program("fsmq", "pipeline")
        self._program("python3", "-")

    def _program(self, name: str, first: str) -> None:
        """Make the program that hands over where this is its first word, and else is itself."""
        itself = Path(sys.executable).with_name(name)
        hands_over = f"{sys.executable} -I -S {self.folder}/hand_over.py {self._address} {name}"
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\n[ "$1" = {first} ] || exec {itself} "$@"\nexec {hands_over} "$@"\n'
        )
        path.chmod(0o755)

    def __enter__(self) -> Sharing:
        return self

    def __exit__(self, *of: object) -> None:
        self._desk.close()
        self._place.cleanup()

    def until(self, awaited: Callable[[], T]) -> T:
        """What ``awaited`` returns; it runs in a thread, and programs run meanwhile."""
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(awaited)
            waiting.add_done_callback(lambda _: self._call_nothing())
            while not waiting.done():
                caller, _ = self._desk.accept()
                with caller:
                    self._serve(caller)
            return waiting.result()

    def _call_nothing(self) -> None:
        """Let `until` look up."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.connect(self._address)

    def _serve(self, caller: socket.socket) -> None:
        message, fds, _, _ = socket.recv_fds(caller, _LONGEST, 3)
        if not message:
            return
        call = json.loads(message)
        with contextlib.ExitStack() as held:
            stdin, stdout, stderr = (
                held.enter_context(open(fd, mode, encoding="utf-8"))
                for fd, mode in zip(fds, ("r", "w", "w"), strict=True)
            )
            held.enter_context(mock.patch.dict(os.environ, call["environment"], clear=True))
            held.enter_context(contextlib.chdir(call["folder"]))
            held.enter_context(_hadoop_in(self._spark, call["folder"]))
            held.enter_context(mock.patch.object(sys, "stdin", stdin))
            held.enter_context(contextlib.redirect_stdout(stdout))
            held.enter_context(contextlib.redirect_stderr(stderr))
            code = _run(*call["words"])
        caller.send(b"%d" % code)


def _run(program: str, *words: str) -> int:
    """Run a program to its end, Python's from stdin; its exit code."""
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
    """Let paths that are not absolute begin in a folder for Spark's JVM, too."""
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
