"""A program that runs steps with the library on one host: `python -m tests.nfs.rival DIR`.

It reads a line of JSON, `[step, argument...]`, for each step and answers with a line of JSON. See
`tests.nfs.rivals`.
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
    """The spool of one host. Each public method is a step; its result is the answer."""

    def __init__(self, root: str) -> None:
        self._spool = Spool(root, sync="fsync", delivers=False)
        self._mover = Spool(root, sync="fsync")
        self._root = root
        self._held: Lock | None = None
        self._lock = fcntl.flock
        self._is_stopped, self._resumed = threading.Event(), threading.Event()
        self._answers: list[Any] = []
        self._restore: Callable[[], None] = lambda: None

    # -- queues and topics -----------------------------------------------------------------------

    def create(self, queue: str) -> bool:
        return self._spool.create_queue(queue)

    def delete(self, queue: str) -> None:
        self._spool.delete_queue(queue)

    def configure(self, queue: str, visibility: float) -> None:
        self._spool.configure(queue, {"visibility_timeout": visibility})

    def visibility(self, queue: str) -> float:
        return self._spool.settings(queue).visibility_timeout

    def create_topic(self, topic: str) -> bool:
        return self._spool.create_topic(topic)

    def delete_topic(self, topic: str) -> None:
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
        """Deliver all new messages; those with own ids can be delivered after a second."""
        moved = 0
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            moved += self._mover.deliver()
            if all(name[0] == "." for name in os.listdir(f"{self._root}/new")):
                break
            time.sleep(0.1)
        return moved

    def deliver_timers(self, patience: float) -> int:
        """Wait until the mover delivers a message, such as one whose claim ends."""
        moved = 0
        end = time.monotonic() + patience
        while not moved and time.monotonic() < end:
            time.sleep(0.1)
            moved = self._mover.deliver()
        return moved

    def claim(self, queue: str, patience: float, visibility: float = 60.0) -> list[tuple[str, str]]:
        """Claim a message. Retried for some seconds, because the queue is rarely listed."""
        end = time.monotonic() + patience
        while True:
            found = self._spool.complete(prepare.claim(self._spool.context, queue, 1, visibility))
            if found or time.monotonic() >= end:
                return [(message.id, message.body.decode()) for message in found]
            time.sleep(0.1)

    def renew(self, queue: str, id: str, visibility: float) -> float:
        return self._spool.complete(
            prepare.renew(self._spool.context, queue, id, visibility)
        ).deadline

    def remove(self, queue: str, id: str) -> bool:
        [was_there] = self._spool.complete(prepare.remove(self._spool.context, queue, [id]))
        return was_there

    def look(self, *paths: str) -> list[bool]:
        """Look up names below the root, so that this host caches them."""
        for folder in {os.path.dirname(path) for path in paths}:
            os.listdir(f"{self._root}/{folder}")
        return [os.path.lexists(f"{self._root}/{path}") for path in paths]

    # -- logs ------------------------------------------------------------------------------------

    def create_log(self, log: str, segment_bytes: int = 16 << 20) -> bool:
        return self._spool.log(log).create(writers="hosts", segment_bytes=segment_bytes)

    def delete_log(self, log: str) -> None:
        self._spool.log(log).delete()

    def publish_fast(
        self, log: str, name: str, threads: int, begin: float, end: float
    ) -> Published:
        return Publishers(self._spool, log, name, begin, end).run(threads)

    def append(self, log: str, *bodies: str) -> list[int]:
        """Publish each body; the offsets."""
        return [self._spool.log(log).publish(body) for body in bodies]

    def read_log(self, log: str) -> dict[str, str]:
        return {str(m.offset): m.body.decode() for m in self._spool.log(log).read()}

    def stop_at_call(self, name: str, number: int, *step: Any) -> bool:
        """Begin a step and stop it before its n-th call of a function; whether it gets there."""
        call, left = getattr(os, name), [number]

        def stop_once(*arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is self._thread:
                left[0] -= 1
                if not left[0]:
                    self._stop()
            return call(*arguments, **options)

        setattr(os, name, stop_once)
        self._restore = lambda: setattr(os, name, call)
        return self._begin(*step)

    # -- locks -----------------------------------------------------------------------------------

    def reserve(self, id: str) -> bool:
        self._held = reserve(self._spool.tree, "q", id)
        return self._held is not None

    def unlink_and_unlock(self) -> None:
        """Free the reservation like `Lock.free`, but without closing the file."""
        assert self._held is not None
        self._spool.tree.unlink(self._held._path)
        self._lock(self._held.fd, fcntl.LOCK_UN)

    def unlock(self) -> None:
        if self._held is not None:
            self._held.unlock()

    def reserve_repeatedly(self, id: str, times: int) -> tuple[int, int]:
        """Take and free a reservation; how often it was held, and how often by another, too."""
        held = shared = 0
        inside = f"{self._root}/inside-{id}"
        while held < times:
            lock = reserve(self._spool.tree, "q", id)
            if lock is None:
                continue
            held += 1
            try:
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                os.unlink(inside)
            except OSError:
                shared += 1
            lock.free()
        return held, shared

    # -- stopped steps ---------------------------------------------------------------------------

    def stop_at_lock(self, *step: Any) -> bool:
        """Begin a step and stop it before its first lock; whether it gets there."""

        def stop_once(fd: int, how: int) -> None:
            if not self._is_stopped.is_set():
                self._stop()
            self._lock(fd, how)

        fcntl.flock = stop_once
        return self._begin(*step)

    def _begin(self, *step: Any) -> bool:
        """Begin a step in a thread; whether it is stopped."""
        self._is_stopped.clear()
        self._resumed.clear()
        self._thread = threading.Thread(target=lambda: self._answers.append(self.run(*step)))
        self._thread.start()
        return self._is_stopped.wait(PATIENCE_S)

    def _stop(self) -> None:
        self._is_stopped.set()
        self._resumed.wait(PATIENCE_S)

    def resume(self) -> Any:
        """Finish the stopped step; its answer."""
        self._resumed.set()
        self._thread.join()
        fcntl.flock = self._lock
        self._restore()
        return self._answers.pop()

    def run(self, step: str, *arguments: Any) -> Any:
        """Run a step; its result, or the name of the error."""
        method: Callable[..., Any] = getattr(self, step)
        try:
            return method(*arguments)
        except FsmqError as error:
            return type(error).__name__


def main() -> None:
    rival = Rival(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(rival.run(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
