"""A share of a core for each of some processes, by cgroups: more cores than there are, but slower.

So one machine shows what more processes would gain where each had a core of its own: the clients,
the other programs and the disk have all of the real cores.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.harness.suite import eventually

_PERIOD_US = 10_000
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


def missing() -> str:
    """Why no share can be given here; empty if it can."""
    folder = _folder()
    if folder is None or not os.access(folder, os.W_OK):
        return "needs the right to make a cgroup with a quota of CPU"
    return ""


@contextlib.contextmanager
def limited(pids: Iterable[int], share: float) -> Iterator[None]:
    """Let each process use so much of a core, 0 to 1. They must have ended at the end. OSError."""
    folder = _folder()
    assert folder is not None
    made: list[Path] = []
    try:
        for pid in pids:
            group = folder / f"fsmq-bench-{pid}"
            group.mkdir()
            made.append(group)
            quota = int(_PERIOD_US * share)
            if folder == _V1:
                (group / "cpu.cfs_period_us").write_text(f"{_PERIOD_US}")
                (group / "cpu.cfs_quota_us").write_text(f"{quota}")
            else:
                (group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (group / "cgroup.procs").write_text(f"{pid}")
        yield
    finally:
        for group in made:
            eventually(lambda group=group: _is_removed(group))


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False  # a process of it has not quite ended
    return True


def _folder() -> Path | None:
    if (_V1 / "cpu.shares").exists():
        return _V1
    try:
        return _V2 if "cpu" in (_V2 / "cgroup.subtree_control").read_text().split() else None
    except OSError:
        return None
