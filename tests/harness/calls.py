"""Hooks into the calls by which a program uses a disk.

A hook runs before each call. It may raise an error in place of the call or after it, stop or kill
the program, or let other programs act.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fsmq.spool.durability.sync import Syncer
from fsmq.spool.index.events import Events
from fsmq.spool.layout.tree import Tree

# Every call that changes the tree of a spool, or makes a change durable.
MUTATING: tuple[str, ...] = (
    "open",
    "write",
    "fsync",
    "utime",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "rename",
    "setxattr",
    "removexattr",
    "pwrite",
    "ftruncate",
    "fdatasync",
)
# Calls by which a process sees changes of others.
LOOKING = ("stat", "fstat", "access", "listdir", "scandir", "getxattr", "read", "pread")
_LOCKS = ((fcntl, "flock"), (fcntl, "fcntl"))
_METHODS = ((Tree, "_rename2"), (Syncer, "_syncfs"), (Events, "watch"))

FULL = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
# The errors of each call. A copy-on-write filesystem needs space even to remove a name or set a
# time. A call that an NFS server finished before its restart is repeated and fails with ENOENT; NFS
# has no renameat2.
ERRORS: dict[str, tuple[int, ...]] = {
    "open": (*FULL, errno.EMFILE),
    "write": FULL,
    "pwrite": FULL,
    "ftruncate": FULL,
    "fsync": FULL,
    "fdatasync": FULL,
    "_syncfs": FULL,
    "utime": FULL,
    "setxattr": FULL,
    "removexattr": FULL,
    "link": (*FULL, errno.EMLINK),
    "unlink": (*FULL, errno.ENOENT),
    "rmdir": (*FULL, errno.ENOENT),
    "mkdir": FULL,
    "rename": (*FULL, errno.ENOENT),
    "_rename2": FULL,
    "watch": (errno.ENOSPC,),
}
_WHEN_GONE = ("unlink", "rmdir")  # these fail with ENOENT after they have succeeded

# A hook: gets the name and the arguments of a call before it is made. It may raise an OSError in
# place of the call, or return one that is raised after it.
See = Callable[[str, tuple[Any, ...]], OSError | None]


@contextmanager
def seen(see: See, *, looks: bool = False) -> Iterator[None]:
    """Hook each call that changes a tree. looks: also those that read or lock."""
    names = (*MUTATING, *LOOKING) if looks else MUTATING
    places: list[tuple[Any, str]] = [*((os, name) for name in names), *_METHODS]
    if looks:
        places += _LOCKS
    before = [(where, name, getattr(where, name)) for where, name in places]
    for where, name, call in before:
        setattr(where, name, _watched(name, call, see, looks))
    try:
        yield
    finally:
        for where, name, call in before:
            setattr(where, name, call)


def _watched(name: str, call: Callable[..., Any], see: See, looks: bool) -> Callable[..., Any]:
    def watched(*arguments: Any, **named: Any) -> Any:
        if name == "open" and not looks and not arguments[1] & os.O_CREAT:
            return call(*arguments, **named)
        try:
            error = see(name, arguments)
            made = call(*arguments, **named)
            if error is not None and not (made and name == "_rename2"):
                raise error
        except OSError as failed:
            if name != "_rename2":
                raise
            return failed.errno  # it returns the number of its error
        return made

    return watched


class Trap:
    """A hook that does something once at the calls of some numbers, or at the first of a name.

    ``calls``: the names of all calls. ``is_denied``: whether one has failed with ENOENT although
    what it asks for may be there, as it was not made.
    """

    def __init__(self, at: int | str, deed: See, *more: int) -> None:
        self.calls: list[str] = []
        self.is_sprung = self.is_denied = False
        self._at: set[int | str] = {at, *more}
        self._deed = deed
        self._is_inside = False

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> OSError | None:
        if self._is_inside:
            return None  # a call of the deed itself
        self.calls.append(name)
        hit = self._at & {name, len(self.calls) - 1}
        if not hit:
            return None
        self._at -= hit
        self.is_sprung = True
        self._is_inside = True
        try:
            return self._deed(name, arguments)
        except OSError as error:
            self.is_denied |= error.errno == errno.ENOENT
            raise
        finally:
            self._is_inside = False


def failing(which: int, *, is_done: bool = False) -> See:
    """Make a call fail with one of its errors. is_done: after it has been made."""

    def fail(name: str, arguments: tuple[Any, ...]) -> OSError | None:
        errors = ERRORS.get(name, (errno.EIO,))
        code = errors[which % len(errors)]
        error = OSError(code, os.strerror(code))
        if is_done or (code == errno.ENOENT and name in _WHEN_GONE):
            return error
        raise error

    return fail
