"""What fsck says of a tree. It takes long, so it is asked about each kind of tree once."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from fsmq.spool.fsck import Finding, check
from fsmq.spool.layout.names import UUID7
from tests.spool.helpers import Clock

_UUID = re.compile(UUID7.encode())
_SOUND: set[bytes] = set()
# The time of a file that is no stamp is now, or before: the clocks of these tests run ahead.
_FRESH_NS = 1_000 * 10**9


def errors_in(root: Path, clock: Clock) -> list[Finding]:
    """The errors of a tree on which nobody works."""
    kind = _kind_of(root)
    if kind in _SOUND:
        return []
    found = check(root, offline=True, clock=clock).findings
    errors = [finding for finding in found if finding.severity.value == "error"]
    if not errors:
        _SOUND.add(kind)
    return errors


def _kind_of(root: Path) -> bytes:
    """The same for trees that differ in nothing but which new ids are in them, and since when."""
    numbers: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return numbers.setdefault(match[0], b"id %d" % len(numbers))

    stamped_ns = time.time_ns() + _FRESH_NS
    told = b"\0".join(_parts(str(root), len(str(root)), stamped_ns))
    return hashlib.sha256(_UUID.sub(number, told)).digest()


def _parts(folder: str, skip: int, stamped_ns: int) -> Iterator[bytes]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield os.fsencode(entry.path[skip:])
        if entry.is_dir(follow_symlinks=False):
            yield from _parts(entry.path, skip, stamped_ns)
            continue
        stat = entry.stat(follow_symlinks=False)
        mtime_ns = stat.st_mtime_ns if stat.st_mtime_ns > stamped_ns else 0
        yield b"%d %d %d" % (stat.st_nlink, stat.st_mode, mtime_ns)
        for attribute in os.listxattr(entry.path):
            yield os.getxattr(entry.path, attribute)
        if stat.st_size:
            with open(entry.path, "rb", buffering=0) as file:
                yield file.read()
