"""Names of all syncs of the spool, and functions that disable one or slow all down.

With ``--sync fsync`` each sync is an fsync of one path, which identifies its purpose.
"""

from __future__ import annotations

import os
import random
import re
import time

from fsmq.spool.durability.sync import Syncer

# Patterns of paths relative to the root.
SYNCS = {
    "message": r"new/\..+",  # the bytes of a message that is being stored
    "stamp": r"delay/.+",  # the deadline of a claim or a renewal
    "settings": r"config/\..+",
    "new": r"new",
    "queues": r"queues",
    "queue": r"queues/[^/]+",
    "delay": r"delay",
    "remove": r"remove",
    "config": r"config",
    "moves": r"moves",
    "order": r"moves/\..+",  # of a move in the background, and its result
    "topics": r"topics",
    "topic": r"topics/[^/]+",
    "subscription": r"topics/[^/]+/\..+",
    "consumers": r"consumers",
    "consumer": r"consumers/[^/]+",
    "batch": r"consumers/[^/]+/\..+",
    "staged": r"staging/\.?[^/]+/[^/.]+/.+",  # the bytes of a message of a job
    "part": r"staging/\.[^/]+/[^/.]+",  # the folder of a part, while it is written
    "forward": r"staging/[^/.][^/]*/[^/.]+",  # the same, while its files leave it
    "job": r"staging/\.[^/]+:[0-9]+",
    "manifest": r"staging/\.[^/]+:[0-9]+/\..+",
    "note": r"staging/\.[^/]+\.tmp",  # the last number that a job committed
    "staging": r"staging",
    "moved": r"remove/.+",  # the folder of a queue that was purged or deleted
    "folders": r"(new|queues|queues/[^/]+|delay|remove|remove/.+|config|topics|topics/[^/]+)",
    "index": r"ids/[^/]+",
    "all": r".*",
}


def take_away(root: str, name: str) -> None:
    """Disable one sync on a spool in this process. name: a key of ``SYNCS``, or ``syncfs``."""
    if name == "syncfs":
        Syncer._syncfs = lambda self, fd: None  # type: ignore[method-assign]
        return
    pattern = re.compile(re.escape(os.path.realpath(root)) + "/" + SYNCS[name])
    fsync = os.fsync

    def selective(fd: int) -> None:
        if pattern.fullmatch(os.readlink(f"/proc/self/fd/{fd}")) is None:
            fsync(fd)

    os.fsync = selective  # type: ignore[assignment]


def slow_down(longest_s: float) -> None:
    """Delay each sync of this process by a random time, as on a busy disk."""
    fsync, syncfs = os.fsync, Syncer._syncfs

    def wait() -> None:
        time.sleep(random.uniform(0.0, longest_s))

    def slow_fsync(fd: int) -> None:
        wait()
        fsync(fd)

    def slow_syncfs(syncer: Syncer, fd: int) -> None:
        wait()
        syncfs(syncer, fd)

    os.fsync = slow_fsync  # type: ignore[assignment]
    Syncer._syncfs = slow_syncfs  # type: ignore[method-assign]
