"""Documents: the small JSON files of the tree. Any program with access may have written them.

A file that is not a valid document raises only ValueError, so it cannot crash a reader. Its version
tells by one lstat whether it has changed since it was read.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any

from .tree import STRAY, Tree

Version = tuple[int, int, int]

_CHUNK_BYTES = 1024 * 1024
_TRIES = 3
# Two changes within a tick of the kernel's clock have one time.
_TICK_S = 0.05
_SECOND_NS = 1_000_000_000
# No file has this size: a version with it equals none.
_UNKNOWN = -1


def read(tree: Tree, path: str, limit: int) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: the file contains no such object, or has more than ``limit`` bytes
        FileNotFoundError, OSError
    """
    return parse(read_bytes(tree, path, limit))


def read_bytes(tree: Tree, path: str, limit: int) -> bytes:
    """A file's bytes. Raises as :func:`read` does."""
    for _ in range(_TRIES):
        try:
            return _read_bytes(tree, path, limit)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            tree.refresh(path.rpartition("/")[0])  # another host has just replaced the file
    return _read_bytes(tree, path, limit)


def _read_bytes(tree: Tree, path: str, limit: int) -> bytes:
    try:
        fd = tree.open(path)
    except OSError as error:
        if error.errno in STRAY and error.errno != errno.ENOENT:
            raise ValueError("is not a regular file") from None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a regular file")
        parts: list[bytes] = []
        left = limit + 1 if found.st_size <= limit else 0
        while left > 0 and (part := os.read(fd, min(left, _CHUNK_BYTES))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    if left <= 0:
        raise ValueError(f"has more than {limit} bytes")
    return b"".join(parts)


def parse(text: bytes) -> dict[str, Any]:
    """The JSON object that a text is. Raises ValueError."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found


def encode(document: Mapping[str, Any]) -> bytes:
    """The content of a document's file, readable in an editor."""
    return (json.dumps(document, indent=2) + "\n").encode()


def whole(document: dict[str, Any], name: str, least: int = 0) -> int:
    """A member that is a whole number, below 2**53. Raises ValueError."""
    value = document.get(name)
    if type(value) is not int or not least <= value < 1 << 53:
        raise ValueError(f"{name} is not a whole number from {least}")
    return value


def flag(document: dict[str, Any], name: str) -> bool:
    """A member that is true or false. Raises ValueError."""
    value = document.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value


def inner(document: dict[str, Any], name: str) -> dict[str, Any] | None:
    """A member that is an object; None if it is missing or null. Raises ValueError."""
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


def version_of(found: os.stat_result) -> Version:
    """What tells one version of a file from another, if some time is between them."""
    return found.st_mtime_ns, found.st_ino, found.st_size


def version_to_keep(found: os.stat_result) -> Version:
    """The version to remember with what is read after this call.

    It equals no other one as long as a further change could leave the same: a folder keeps its
    inode, and a file gets that of the one before the last. So what changed just now is read again.
    """
    # A filesystem that keeps whole seconds has a tick of a second. A time of the future, from a
    # clock that was ahead, does not come again.
    tick_s = _TICK_S if found.st_mtime_ns % _SECOND_NS else 1 + _TICK_S
    is_settled = abs(time.time() - found.st_mtime) > tick_s
    return found.st_mtime_ns, found.st_ino, found.st_size if is_settled else _UNKNOWN
