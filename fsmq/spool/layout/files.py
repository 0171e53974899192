"""Files that are written and read as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_all(fd: int, data: bytes) -> None:
    """Write all data: a disk that is nearly full first accepts a part. Raises OSError."""
    written = os.write(fd, data)
    if written < len(data):
        view = memoryview(data)
        while written < len(data):
            written += os.write(fd, view[written:])


def write_at(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all data from a position on. Raises OSError."""
    written = os.pwrite(fd, data, position)
    if written < len(data):
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(fd, view[written:], position + written)


def read_all(fd: int, size: int, start: int = 0) -> bytes:
    """A file's bytes from ``start`` on; ``size`` bytes are expected."""
    raw = os.pread(fd, size + 1, start)
    if len(raw) == size:
        return raw
    parts = [raw]
    got = start + len(raw)
    while part := os.pread(fd, 1 << 20, got):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def add_file(path: Path, data: bytes) -> None:
    """Write a new private file durably, except for its name. Raises OSError."""
    _write(path, data, os.O_CREAT | os.O_EXCL)


def append_durably(path: Path, data: bytes) -> None:
    """Append to a private file durably, all or nothing; created if it is missing. OSError."""
    _write(path, data, os.O_CREAT | os.O_APPEND)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, data: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        before = os.fstat(fd).st_size
        try:
            write_all(fd, data)
            os.fsync(fd)
        except BaseException:
            os.ftruncate(fd, before)
            raise
    finally:
        os.close(fd)
