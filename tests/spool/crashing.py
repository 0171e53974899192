"""A process that dies between any two system calls of a verb."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsmq.spool import NewMessage, Spool, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.durability.prepared import key_of
from fsmq.spool.layout.tree import Tree

MUTATING = ("open", "write", "fsync", "utime", "link", "unlink", "mkdir", "rmdir", "rename")
MUTATING += ("setxattr", "removexattr", "pwrite")


def run_and_die(
    root: Path, verb: Callable[[Spool], object], at: int, clock: Callable[[], float]
) -> bool | None:
    """Run a verb in a child that SIGKILLs itself just before its mutating call number ``at``.

    A write dies half done. Tells whether the verb was acknowledged; None if it ended by itself, so
    that there is no call of this number.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _child(root, verb, at, clock, writing)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return b"acknowledged" in told
    assert os.waitstatus_to_exitcode(status) == 0, "the verb failed; see its traceback"
    return None


def _child(
    root: Path, verb: Callable[[Spool], object], at: int, clock: Callable[[], float], pipe: int
) -> None:
    write = os.write
    spool = Spool(root, sync="fsync", workers=1, clock=clock)
    countdown = die_before(at)
    verb(spool)
    write(pipe, b"acknowledged")
    countdown.end()


def die_before(at: int) -> Countdown:
    """Let this process kill itself before the mutating call of this number from now on."""
    countdown = Countdown(at)
    for name in MUTATING:
        setattr(os, name, countdown.wrap(getattr(os, name)))
    Tree._rename2 = countdown.wrap(Tree._rename2)  # type: ignore[method-assign]
    return countdown


def leave(root: Path, *messages: NewMessage) -> None:
    """Write messages and die before they are shown."""
    child = os.fork()
    if child == 0:
        try:
            killed = Spool(root, sync="none", delivers=False)
            prepare.put(killed.context, "jobs", messages)
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # else a second pytest would go on from here
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def begin_sends(spool: Spool, queue: str, *messages: NewMessage) -> Prepared[None]:
    """Write messages into a fifo queue, and neither sync nor show them."""
    return begin_to_send(spool, prepare.put(spool.context, queue, messages))


def begin_to_send(spool: Spool, prepared: Prepared[Any]) -> Prepared[None]:
    """Write what a verb sends into fifo queues, and neither sync nor show it."""
    group = spool.context.sequencer.group(key_of(prepared))
    group.enter()
    return group.write([prepared])


class Countdown:
    """How many mutating calls are left to a process."""

    def __init__(self, at: int) -> None:
        self.left = at
        self._writes = os.write, os.pwrite

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if call.__name__ == "open" and not arguments[1] & os.O_CREAT:
                return call(*arguments, **named)
            if self.left == 0:
                if call in self._writes:
                    fd, data, *place = arguments
                    call(fd, bytes(data)[: len(data) // 2], *place)
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return call(*arguments, **named)

        return counted

    def end(self) -> None:
        """The verb is over: die here if one call more was asked for, or leave in order."""
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
