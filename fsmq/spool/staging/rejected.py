"""Rejected rows: join the files of the parts into one, durably, in a folder of the user."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..layout.tree import Tree


def gather(tree: Tree, sources: Sequence[str], folder: Path, name: str) -> None:
    """Join several files into one, replacing an earlier one of that name. Raises OSError.

    sources: relative to the tree's root. Without any the earlier file goes: its job is repeated.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    if not sources:
        target.unlink(missing_ok=True)
        return
    draft = folder / f".{name}.tmp"  # a fixed name, so that the draft of a dead run is replaced
    try:
        with draft.open("wb") as whole:
            for source in sources:
                with os.fdopen(tree.open(source), "rb") as part:
                    shutil.copyfileobj(part, whole)
            whole.flush()
            os.fsync(whole.fileno())
        os.replace(draft, target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        tree.sync_opened(fd)
    finally:
        os.close(fd)
