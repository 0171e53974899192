"""Fill folders of a spool with messages, as files: much faster than to post them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fsmq.spool.layout.names import new_id
from fsmq.spool.layout.stamps import Stamps

from .bench import QUEUE

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def ready(root: Path, count: int, size: int, queue: str = QUEUE) -> list[str]:
    """Messages in a queue's folder; their ids in order."""
    return files(root / "queues" / queue, (new_id() for _ in range(count)), size)


def new(root: Path, count: int, size: int) -> list[str]:
    """Messages in ``new/``; their names in order."""
    return files(root / "new", _entries(count), size)


def removed(root: Path, count: int, size: int) -> list[str]:
    """Messages in ``remove/``; their names."""
    return files(root / "remove", _entries(count), size)


def delayed(root: Path, count: int, size: int, deadline_ms: Callable[[int], int]) -> list[str]:
    """Claimed messages in ``delay/``; the deadline of the n-th is what ``deadline_ms(n)`` says."""
    folder = root / "delay"
    names = files(folder, _entries(count), size)
    stamp(folder, names, deadline_ms)
    return names


def stamp(folder: Path, names: list[str], deadline_ms: Callable[[int], int]) -> None:
    """Stamp entries of ``delay/`` as claimed once, the n-th until ``deadline_ms(n)``."""
    stamps = Stamps()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for index, name in enumerate(names):
            mtime = stamps.encode(name.rpartition(":")[2], deadline_ms(index), 1)
            os.utime(name, ns=(mtime, mtime), dir_fd=fd)
    finally:
        os.close(fd)


def _entries(count: int) -> Iterator[str]:
    return (f"{QUEUE}:{new_id()}" for _ in range(count))


def files(folder: Path, names: Iterator[str], size: int) -> list[str]:
    """Files of one size in a folder; their names."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = os.urandom(size)
    made = []
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            file = os.open(name, _FLAGS, 0o600, dir_fd=fd)
            os.write(file, body)
            os.close(file)
            made.append(name)
    finally:
        os.close(fd)
    return made


def in_ms(seconds: float) -> int:
    """The moment in so many seconds, in Unix milliseconds."""
    return int((time.time() + seconds) * 1000)
