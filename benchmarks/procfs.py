"""What /proc knows about a process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all of its threads, to 10 ms. Raises OSError."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int, *, peak: bool = False) -> float:
    """Memory in use now, or at most since the start, in MB (10^6 bytes). Raises OSError."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(found[1]) * 1024 / 1e6


def descendants(pid: int) -> Iterator[int]:
    """Its children, theirs, and so on, as they are now."""
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:
            continue  # a thread, or the process, that has ended
        for child in map(int, children):
            yield child
            yield from descendants(child)


def command(pid: int) -> str:
    """The words of its command line; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").rstrip()
    except OSError:
        return ""
