"""Helpers of the spool's tests: a clock, views of the tree, processes and faulty files."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


def present(value: _T | None) -> _T:
    """The value, which must not be None."""
    assert value is not None
    return value


class Clock:
    """Unix seconds that pass only when a test advances them.

    Ids have the time of the machine: a message with a ``ttl`` may have been put a while later than
    this clock says. A test that lets it expire advances well beyond that.
    """

    def __init__(self, now: float | None = None) -> None:
        self.now = float(int(time.time())) if now is None else now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def tree_of(root: Path) -> dict[str, list[str]]:
    """The file names of a tree by folder, dot-names included."""
    found = {name: sorted(p.name for p in (root / name).iterdir()) for name in ("new", "delay")}
    for queue in sorted((root / "queues").iterdir()):
        found[f"queues/{queue.name}"] = sorted(p.name for p in queue.iterdir())
    return found


def visible(root: Path) -> list[tuple[str, str]]:
    """Every (queue, id) in new, queues or delay, sorted. Dot-names do not count."""
    found = []
    for folder in ("new", "delay"):
        for path in (root / folder).iterdir():
            if path.name[0] != ".":
                queue, _, message_id = path.name.rpartition(":")
                found.append((queue, message_id))
    for queue_folder in (root / "queues").iterdir():
        found += [(queue_folder.name, path.name) for path in queue_folder.iterdir()]
    return sorted(found)


def listed(folder: Path) -> list[str]:
    """The names in a folder of snapshots, sorted, without its lock."""
    return sorted(name for name in os.listdir(folder) if name != ".lock")


def back_to_new(root: Path, queue: str = "jobs", only: str | None = None) -> None:
    """Move ready and hidden messages to new/, as a shell user may. only: one id."""
    for path in [*(root / "queues" / queue).iterdir(), *(root / "delay").glob(f"{queue}:*")]:
        message_id = path.name.rpartition(":")[2]
        if only in (None, message_id):
            path.rename(root / "new" / f"{queue}:{message_id}")


def await_a_later_ctime(path: Path) -> None:
    """Return when a change made now gets a later ctime than ``path`` has (kernel ticks: 4 ms)."""
    probe = path.with_name(".tick")
    while True:
        probe.touch()
        if probe.stat().st_ctime_ns > path.stat().st_ctime_ns:
            probe.unlink()
            return


def nest(folder: Path, depth: int) -> None:
    """Nest folders this deep, which may be deeper than a path can be long."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        inner = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@contextmanager
def forked(fork: Callable[[], int] = os.fork) -> Iterator[int]:
    """A child that has copies of all open descriptors until the end of the block."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.write(writing, b".")
        signal.pause()
    try:
        os.read(reading, 1)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Let the kernel cut writes at this file size, as a disk does that gets full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def damage(path: Path, at: int, size: int = 1) -> None:
    """Invert bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(size)
        file.seek(at)
        file.write(bytes(255 - byte for byte in old))
