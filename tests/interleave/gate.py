"""Stops programs before any of their system calls, and controls their clock.

Each actor is a thread that works like a process: with its own spool, whose locks (flock) exclude
those of others, because they belong to open files and not to processes. An actor runs until it has
made a number of calls; then another runs. Only one runs at a time, so a schedule has one outcome.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inotify_simple import INotify

from fsmq.spool.durability.sync import Syncer
from fsmq.spool.index import events
from fsmq.spool.index.events import Events
from fsmq.spool.layout import filesystem
from fsmq.spool.layout.tree import Tree

# Every call of `os` with which the spool reads or changes its tree.
CALLS = (
    "open",
    "close",
    "read",
    "pread",
    "write",
    "fsync",
    "stat",
    "fstat",
    "listdir",
    "scandir",
    "utime",
    "link",
    "unlink",
    "rmdir",
    "mkdir",
    "rename",
    "posix_fadvise",
    "pwrite",
    "ftruncate",
    "fdatasync",
    "getxattr",
    "setxattr",
    "removexattr",
)
OTHER_CALLS = (("fcntl", "flock"), ("fcntl", "fcntl"), ("fcntl", "ioctl"))
# A stop before these would be the same as one after them: the bytes of a file never change, syncs
# have no effect in memory, and a descriptor is private, unless it has a lock.
_PRIVATE = frozenset(("close", "read", "pread", "fsync", "fdatasync", "posix_fadvise"))
_METHODS: tuple[tuple[type, str], ...] = (
    (Tree, "_rename2"),
    (Syncer, "_syncfs"),
    (Events, "read"),
    (Events, "watch"),
)
_NAMES = {"_rename2": "renameat2", "_syncfs": "syncfs", "watch": "add_watch"}
# An actor that waits for a lock of another would wait for ever, because only one runs. So each wait
# takes at least this long by the controlled clock.
_LEAST_WAIT_S = 0.005
_PATIENCE_S = 60.0


class Stuck(Exception):
    """An actor reached neither its next call nor its end."""


class NoEvents(Exception):
    """The kernel has no file events left; a spool without them behaves differently."""


class Actor:
    """Work in a thread that can be stopped before each of its calls.

    trace: gets each call with the prefix ``mark``. ``calls``: the number of calls until now.
    """

    def __init__(
        self, gate: Gate, work: Callable[[], object], trace: list[str] | None = None, mark: str = ""
    ) -> None:
        self.calls = 0
        self.is_over = False
        self.error: BaseException | None = None
        self._trace = trace
        self._mark = mark
        self._gate = gate
        self._work = work
        self._limit: int | None = 0
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._locked: set[int] = set()  # descriptors that have, or had, a lock

    def run(self, calls: int | None = None) -> bool:
        """Let it make some more calls, or all; whether it has ended."""
        if self.is_over:
            return True
        self._limit = None if calls is None else self.calls + calls
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        if not self._back.acquire(timeout=_PATIENCE_S):
            raise Stuck("an actor waits for something other than its own system call")
        return self.is_over

    def reach(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Wait before a call until the actor may make it."""
        if name == "flock":
            self._locked.add(arguments[0])
        elif name in _PRIVATE and not (name == "close" and arguments[0] in self._locked):
            return
        elif name == "close":
            self._locked.discard(arguments[0])
        while self._limit is not None and self.calls >= self._limit:
            self._back.release()
            self._go.acquire()
        self.calls += 1
        if self._trace is not None:
            self._trace.append(f"{self._mark}{name}({_in_words(name, arguments)})")

    def _run(self) -> None:
        self._gate.actors[threading.get_ident()] = self
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            del self._gate.actors[threading.get_ident()]
            self.is_over = True
            self._back.release()


class Gate:
    """Hooks the calls of all actors within :meth:`open`."""

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self._ahead_s = 0.0  # offset of the monotonic clock
        self._home = threading.get_ident()
        self._notifiers: list[_Notifier] = []

    def pass_time(self, seconds: float) -> None:
        self._ahead_s += seconds

    @contextmanager
    def open(self) -> Iterator[Gate]:
        places: list[tuple[Any, str]] = [(os, name) for name in CALLS]
        places += [(fcntl, name) for _, name in OTHER_CALLS]
        places += _METHODS
        before = [(where, name, getattr(where, name)) for where, name in places]
        clock = time.sleep, time.monotonic
        for where, name, call in before:
            shown = "events" if (where, name) == (Events, "read") else _NAMES.get(name, name)
            setattr(where, name, self.watched(shown, call))
        time.sleep, time.monotonic = self._sleep(clock[0]), self._monotonic(clock[1])
        mounts = filesystem._mounts
        mounted = tuple(mounts())
        filesystem._mounts = lambda: iter(mounted)
        events.INotify = self._notifier
        try:
            yield self
        finally:
            events.INotify = INotify
            filesystem._mounts = mounts
            time.sleep, time.monotonic = clock
            for where, name, call in before:
                setattr(where, name, call)
            for notifier in self._notifiers:
                notifier.end()

    def watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call before which actors can be stopped."""
        actors, me = self.actors, threading.get_ident

        def watched(*arguments: Any, **named: Any) -> Any:
            actor = actors.get(me())
            if actor is not None:
                actor.reach(name, arguments)
            return call(*arguments, **named)

        return watched

    def _sleep(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        def pass_by(seconds: float) -> None:
            me = threading.get_ident()
            if me in self.actors or me == self._home:
                self._ahead_s += max(seconds, _LEAST_WAIT_S)
            else:
                sleep(seconds)

        return pass_by

    def _monotonic(self, monotonic: Callable[[], float]) -> Callable[[], float]:
        return lambda: monotonic() + self._ahead_s

    def _notifier(self, nonblocking: bool) -> _Notifier:
        """A real inotify instance, reused because the kernel needs milliseconds to close one.

        Raises NoEvents: after an OSError a spool would continue without events.
        """
        for notifier in self._notifiers:
            if not notifier.in_use:
                notifier.begin()
                return notifier
        try:
            self._notifiers.append(_Notifier(nonblocking=nonblocking))
        except OSError as error:
            limit = "raise fs.inotify.max_user_instances"
            raise NoEvents(f"no file events ({error.strerror}): {limit}") from error
        return self._notifiers[-1]


class _Notifier(INotify):  # type: ignore[misc]
    """An instance that is reused instead of being closed."""

    in_use = True

    def begin(self) -> None:
        self.in_use = True
        self.read(timeout=0)  # drop events of the spool before

    def close(self) -> None:
        self.in_use = False

    def end(self) -> None:
        super().close()


def _in_words(name: str, arguments: tuple[Any, ...]) -> str:
    texts = []
    for argument in arguments:
        if isinstance(argument, Tree | Events | Syncer):
            continue
        if isinstance(argument, bytes):
            texts.append(f"{len(argument)} bytes" if name == "write" else argument.decode())
        elif isinstance(argument, int) and not texts and name not in ("mkdir",):
            texts.append(_path(argument))
        elif isinstance(argument, str | os.PathLike):
            texts.append(str(argument))
    return ", ".join(texts)


def _path(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").split("/mq/")[-1]
    except OSError:
        return str(fd)
