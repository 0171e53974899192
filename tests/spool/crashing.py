"""Processes that die between any two system calls of a verb."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fsmq.spool import NewMessage, Spool, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.durability.prepared import key_of
from fsmq.spool.layout.tree import Tree

MUTATING = ("open", "write", "fsync", "utime", "link", "unlink", "mkdir", "rmdir", "rename")
MUTATING += ("setxattr", "removexattr", "pwrite")


Verb = Callable[[Spool], object]


def crashes_of(
    root: Path,
    verb: Verb,
    clock: Callable[[], float],
    prepare: Callable[[Path], object],
    least: int = 2,
) -> Iterator[tuple[bool, Path]]:
    """Every crash of a verb: whether the verb was acknowledged, and the tree after the crash.

    prepare: makes each tree. least: the verb makes at least this many calls.
    """
    for at in range(1000):
        tree = root / str(at)
        prepare(tree)
        acknowledged = run_and_die(tree, verb, at, clock)
        if acknowledged is None:
            assert at >= least
            return
        yield acknowledged, tree
    raise AssertionError("the verb did not end")


def run_and_die(root: Path, verb: Verb, at: int, clock: Callable[[], float]) -> bool | None:
    """Run a verb in a child that kills itself just before its mutating call number ``at``.

    A write is half done. Returns whether the verb was acknowledged, or None if it has fewer calls.
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
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return b"acknowledged" in output
    assert os.waitstatus_to_exitcode(status) == 0, "the verb failed; see its traceback"
    return None


def _child(root: Path, verb: Verb, at: int, clock: Callable[[], float], pipe: int) -> None:
    write = os.write
    spool = Spool(root, sync="fsync", workers=1, clock=clock)
    countdown = die_before(at)
    verb(spool)
    write(pipe, b"acknowledged")
    countdown.end()


def die_before(at: int) -> Countdown:
    """Let this process kill itself before its mutating call of this number, from now on."""
    countdown = Countdown(at)
    for name in MUTATING:
        setattr(os, name, countdown.wrap(getattr(os, name)))
    Tree._rename2 = countdown.wrap(Tree._rename2)  # type: ignore[method-assign]
    return countdown


def leave(root: Path, *messages: NewMessage) -> None:
    """Write messages in a process that dies before it shows them."""
    child = os.fork()
    if child == 0:
        try:
            killed = Spool(root, sync="none", delivers=False)
            prepare.put(killed.context, "jobs", messages)
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # else a second pytest would continue from here
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def begin_sends(spool: Spool, queue: str, *messages: NewMessage) -> Prepared[None]:
    """Write messages to a fifo queue, and neither sync nor show them."""
    return begin_to_send(spool, prepare.put(spool.context, queue, messages))


def begin_to_send(spool: Spool, prepared: Prepared[Any]) -> Prepared[None]:
    """Write the messages that a verb sends to fifo queues, and neither sync nor show them."""
    group = spool.context.sequencer.group(key_of(prepared))
    group.enter()
    return group.write([prepared])


class Countdown:
    """Counts the mutating calls of a process, and kills it at the last."""

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
        """End the process: by a kill if the countdown has just ended, else in order."""
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
