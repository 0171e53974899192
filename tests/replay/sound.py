"""The errors of fsck. It is slow, so it runs once for trees that are alike."""

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
# Stamps are later than now, because the clocks of these tests are ahead; other mtimes are not.
_FRESH_NS = 1_000 * 10**9


def errors_in(root: Path, clock: Clock) -> list[Finding]:
    """The errors in a spool that no program uses."""
    kind = _kind_of(root)
    if kind in _SOUND:
        return []
    found = check(root, offline=True, clock=clock).findings
    errors = [finding for finding in found if finding.severity.value == "error"]
    if not errors:
        _SOUND.add(kind)
    return errors


def _kind_of(root: Path) -> bytes:
    """The same value for trees that differ only in new ids and mtimes without stamps."""
    numbers: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return numbers.setdefault(match[0], b"id %d" % len(numbers))

    stamped_ns = time.time_ns() + _FRESH_NS
    text = b"\0".join(_parts(str(root), len(str(root)), stamped_ns))
    return hashlib.sha256(_UUID.sub(number, text)).digest()


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
