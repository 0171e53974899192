"""The folder of snapshots: each is complete under its name, the UTC time at which it began.

What is not complete has a dot-name; the lock of the folder tells whether somebody is at work on it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from ..errors import InvalidValue, Unavailable
from ..layout.transitions import QUEUES, SNAPSHOT
from ..layout.uuids import uuid7
from .contents import Contents

_name = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_FORM = "%Y%m%dT%H%M%SZ"
_DRAFT = ".unfinished-"
_LOCK = ".lock"
_NEAR_S = 60


class About(NamedTuple):
    """What a snapshot says of itself. began: in Unix seconds; contents: None in an old one."""

    began: float
    contents: Contents | None

    @classmethod
    def read(cls, snapshot: Path) -> Self | None:
        """Read it; None if there is no valid one."""
        try:
            said = json.loads((snapshot / SNAPSHOT).read_bytes())
            contents = Contents.from_json(said["contents"]) if "contents" in said else None
            return cls(float(said["began"]), contents)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None


class Snapshots:
    """The snapshots in a folder. Methods raise OSError."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def names(self) -> list[str]:
        """Their names, the oldest first."""
        found = (one for one in os.scandir(self.where) if _name.fullmatch(one.name))
        return sorted(one.name for one in found if one.is_dir(follow_symlinks=False))

    def _name(self, second: int) -> str:
        return datetime.fromtimestamp(second, UTC).strftime(_FORM)

    def newest(self) -> Path | None:
        """The newest one."""
        names = self.names()
        return self.where / names[-1] if names else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, and remove what a dead backup has left. Raises Unavailable."""
        fd = os.open(self.where / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.geteuid() == 0:  # else the next backup of the folder's user could not open it
                found = os.stat(self.where)
                os.fchown(fd, found.st_uid, found.st_gid)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unavailable(f"another backup to {self.where} is running") from None
            for one in list(os.scandir(self.where)):
                if one.name.startswith(_DRAFT) and one.is_dir(follow_symlinks=False):
                    shutil.rmtree(one.path)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A new folder for a snapshot, which is removed at the end unless it was renamed."""
        draft = self.where / f"{_DRAFT}{uuid7()}"
        draft.mkdir(mode=0o700)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def finish(self, draft: Path, began: float) -> Path:
        """Give a complete draft the name of a snapshot, durably."""
        names, second = self.names(), int(began)
        # After one that was begun in the same second; not after one of a clock that was ahead.
        while names and self._name(second) <= names[-1] <= self._name(int(began) + _NEAR_S):
            second += 1
        while (path := self.where / self._name(second)).exists():
            second += 1
        os.rename(draft, path)
        sync_folder(self.where)
        return path

    def keep(self, count: int, newest: Path) -> list[str]:
        """Remove all but the last ones, and never the newest; the names of those removed."""
        gone = [name for name in self.names()[:-count] if name != newest.name]
        for name in gone:
            draft = self.where / f"{_DRAFT}{uuid7()}"
            os.rename(self.where / name, draft)
            shutil.rmtree(draft)
        return gone


def check_places(root: Path, where: Path) -> None:
    """Raise InvalidValue if snapshots of a spool cannot be in a folder, which may be missing."""
    spool = os.stat(root)
    for path in (where, *where.parents):
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        if os.path.samestat(found, spool):
            raise InvalidValue("DEST", f"{where} is in the spool {root} itself")
    if (where / QUEUES).is_dir():
        raise InvalidValue("DEST", f"{where} is a spool, not a folder of snapshots")


def sync_folder(path: Path) -> None:
    """fsync a folder. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
