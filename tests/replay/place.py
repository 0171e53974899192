"""Where trees are made by the thousand, and quickly."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fsmq.spool.layout import filesystem


def scratch() -> str | None:
    """Where files are made quickly."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def state_folder() -> Iterator[Path]:
    """A place for one tree after the other. Nothing is mounted meanwhile, so that is read once."""
    mounts = filesystem._mounts
    mounted = tuple(mounts())
    filesystem._mounts = lambda: iter(mounted)
    try:
        with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
            yield Path(folder) / "mq"
    finally:
        filesystem._mounts = mounts


def remove_tree(folder: str) -> None:
    """Remove a folder that nobody else changes, with all that is in it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(folder)
