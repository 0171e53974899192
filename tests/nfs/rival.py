"""A program on one host that does what it is told, with the library: `tests.nfs.rival DIR`.

It takes a line of JSON, `[what, ...]`, for each step and answers with one. So whoever runs one on
each of two hosts says which does what when, and when both do the same at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fsmq.spool import FsmqError, NewMessage, Spool, prepare
from fsmq.spool.durability.locks import Lock, reserve
from tests.harness.suite import PATIENCE_S
from tests.nfs.publishers import Published, Publishers


class Rival:
    """One host's spool. Each method is a step; what it gives is told."""

    def __init__(self, root: str) -> None:
        self._spool = Spool(root, sync="fsync", delivers=False)
        self._mover = Spool(root, sync="fsync")
        self._root = root
        self._held: Lock | None = None
        self._lock = fcntl.flock
        self._waits = threading.Event()
        self._answers: list[Any] = []
        self._restore: Callable[[], None] = lambda: None

    # -- queues and topics -----------------------------------------------------------------------

    def make(self, queue: str) -> bool:
        return self._spool.create_queue(queue)

    def drop(self, queue: str) -> None:
        self._spool.delete_queue(queue)

    def configure(self, queue: str, visibility: float) -> None:
        self._spool.configure(queue, {"visibility_timeout": visibility})

    def visibility(self, queue: str) -> float:
        return self._spool.settings(queue).visibility_timeout

    def make_topic(self, topic: str) -> bool:
        return self._spool.create_topic(topic)

    def drop_topic(self, topic: str) -> None:
        self._spool.delete_topic(topic)

    def subscribe(self, topic: str, queue: str) -> bool:
        return self._spool.subscribe(topic, queue, keep=True)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        return self._spool.unsubscribe(topic, queue)

    def publish(self, topic: str) -> list[str]:
        return sorted(
            self._spool.complete(prepare.publish(self._spool.context, topic, NewMessage(b"x")))
        )

    # -- messages --------------------------------------------------------------------------------

    def put(self, queue: str, id: str, body: str = "x") -> str:
        [stored] = self._spool.complete(
            prepare.put(self._spool.context, queue, [NewMessage(body.encode(), id=id)])
        )
        return stored

    def deliver(self) -> int:
        """Bring on all that is new: what has an own id is left alone for its first second."""
        moved = 0
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            moved += self._mover.deliver()
            if all(name[0] == "." for name in os.listdir(f"{self._root}/new")):
                break
            time.sleep(0.1)
        return moved

    def deliver_timers(self, patience: float) -> int:
        """Bring back what was claimed, once its time has come."""
        moved = 0
        end = time.monotonic() + patience
        while not moved and time.monotonic() < end:
            time.sleep(0.1)
            moved = self._mover.deliver()
        return moved

    def claim(self, queue: str, patience: float, visibility: float = 60.0) -> list[tuple[str, str]]:
        """Claim one; tried for so many seconds, since folders that are polled are listed seldom."""
        end = time.monotonic() + patience
        while True:
            got = self._spool.complete(prepare.claim(self._spool.context, queue, 1, visibility))
            if got or time.monotonic() >= end:
                return [(message.id, message.body.decode()) for message in got]
            time.sleep(0.1)

    def renew(self, queue: str, id: str, visibility: float) -> float:
        return self._spool.complete(
            prepare.renew(self._spool.context, queue, id, visibility)
        ).deadline

    def remove(self, queue: str, id: str) -> bool:
        [was_there] = self._spool.complete(prepare.remove(self._spool.context, queue, [id]))
        return was_there

    def look(self, *paths: str) -> list[bool]:
        """Look at names below the root, as this host sees them; and so remember them."""
        for folder in {os.path.dirname(path) for path in paths}:
            os.listdir(f"{self._root}/{folder}")
        return [os.path.lexists(f"{self._root}/{path}") for path in paths]

    # -- logs ------------------------------------------------------------------------------------

    def make_log(self, log: str, segment_bytes: int = 16 << 20) -> bool:
        return self._spool.log(log).create(writers="hosts", segment_bytes=segment_bytes)

    def drop_log(self, log: str) -> None:
        self._spool.log(log).delete()

    def publish_fast(
        self, log: str, name: str, threads: int, begin: float, end: float
    ) -> Published:
        return Publishers(self._spool, log, name, begin, end).run(threads)

    def append(self, log: str, *bodies: str) -> list[int]:
        """Publish one after the other; their offsets."""
        return [self._spool.log(log).publish(body) for body in bodies]

    def read_log(self, log: str) -> dict[str, str]:
        return {str(m.offset): m.body.decode() for m in self._spool.log(log).read()}

    def stop_at_call(self, name: str, number: int, *step: Any) -> bool:
        """Begin a step, and stop it before its so-many-th call of a name; whether it came there."""
        came, call, left = threading.Event(), getattr(os, name), [number]

        def stop_once(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is self._stopped:
                left[0] -= 1
                if not left[0]:
                    came.set()
                    self._waits.wait(PATIENCE_S)
            return call(*arguments, **options)

        setattr(os, name, stop_once)
        self._restore = lambda: setattr(os, name, call)
        self._waits.clear()
        self._stopped = threading.Thread(target=lambda: self._answers.append(self.do(*step)))
        self._stopped.start()
        return came.wait(PATIENCE_S)

    # -- locks -----------------------------------------------------------------------------------

    def reserve(self, id: str) -> bool:
        self._held = reserve(self._spool.tree, "q", id)
        return self._held is not None

    def unlink_and_unlock(self) -> None:
        """As far as `free` comes whose process is stopped before it closes the file."""
        assert self._held is not None
        self._spool.tree.unlink(self._held._path)
        self._lock(self._held.fd, fcntl.LOCK_UN)

    def let_go(self) -> None:
        if self._held is not None:
            self._held.unlock()

    def exclude(self, id: str, times: int) -> tuple[int, int]:
        """Take and free one reservation; how often it was held, and how often not by us alone."""
        held = broken = 0
        inside = f"{self._root}/inside-{id}"
        while held < times:
            mine = reserve(self._spool.tree, "q", id)
            if mine is None:
                continue
            held += 1
            try:
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                os.unlink(inside)
            except OSError:
                broken += 1
            mine.free()
        return held, broken

    # -- one at a certain place ------------------------------------------------------------------

    def stop_at_lock(self, *step: Any) -> bool:
        """Begin a step, and stop it before the first lock that it takes; whether it came there."""
        came = threading.Event()

        def stop_once(fd: int, how: int) -> None:
            if not came.is_set():
                came.set()
                self._waits.wait(PATIENCE_S)
            self._lock(fd, how)

        fcntl.flock = stop_once
        self._waits.clear()
        self._stopped = threading.Thread(target=lambda: self._answers.append(self.do(*step)))
        self._stopped.start()
        return came.wait(PATIENCE_S)

    def go_on(self) -> Any:
        """Let it go on; what it gives."""
        self._waits.set()
        self._stopped.join()
        fcntl.flock = self._lock
        self._restore()
        return self._answers.pop()

    def do(self, what: str, *arguments: Any) -> Any:
        """A step; the name of the error where it raises one that clients are told."""
        step: Callable[..., Any] = getattr(self, what)
        try:
            return step(*arguments)
        except FsmqError as error:
            return type(error).__name__


def main() -> None:
    rival = Rival(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(rival.do(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
