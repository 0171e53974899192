"""Publishes to a log from several threads as fast as possible."""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

from fsmq.spool import Spool
from fsmq.spool.layout.tree import Tree

_BODY_BYTES = 1024


class Published(NamedTuple):
    """The messages of a host.

    offsets: of each thread's messages, in order. counted: the answers within the measured time.
    turns, segments: how many turns it took and segments it created.
    """

    name: str
    offsets: list[list[int]]
    counted: int
    turns: int
    segments: int


def body_of(name: str, thread: int, number: int) -> bytes:
    """A unique body."""
    return f"{name} {thread} {number} ".encode().ljust(_BODY_BYTES, b".")


class Publishers:
    """Publishes until ``end`` and counts answers after ``begin``; both are of time.monotonic()."""

    def __init__(self, spool: Spool, log: str, name: str, begin: float, end: float) -> None:
        self._log = spool.log(log)
        self._name = name
        self._begin, self._end = begin, end
        self._counted = self._turns = self._segments = 0
        self._errors: list[BaseException] = []
        self._counting = threading.Lock()

    def run(self, threads: int) -> Published:
        """Raises the error of a publish."""
        offsets: list[list[int]] = [[] for _ in range(threads)]
        working = [
            threading.Thread(target=self._work, args=(thread, offsets[thread]))
            for thread in range(threads)
        ]
        create = Tree.create

        def count(tree: Tree, path: str, flags: int = os.O_EXCL) -> int:
            fd = create(tree, path) if flags == os.O_EXCL else create(tree, path, flags)
            name = path.removeprefix("./")
            if flags & os.O_EXCL:
                self._turns += name.startswith(".turn.")
                self._segments += name.isdecimal()
            return fd

        # Only one thread at a time publishes for all, so these counters need no lock.
        Tree.create = count  # type: ignore[method-assign]
        try:
            for each in working:
                each.start()
            for each in working:
                each.join()
        finally:
            Tree.create = create  # type: ignore[method-assign]
        for error in self._errors:
            raise error
        return Published(self._name, offsets, self._counted, self._turns, self._segments)

    def _work(self, thread: int, offsets: list[int]) -> None:
        try:
            while time.monotonic() < self._end:
                offsets.append(self._log.publish(body_of(self._name, thread, len(offsets))))
                if self._begin <= time.monotonic() < self._end:
                    with self._counting:
                        self._counted += 1
        except BaseException as error:
            self._errors.append(error)
