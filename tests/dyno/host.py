"""A host: a process that pushes, pops, acknowledges, and logs each step.

python -m tests.dyno.host ROOT ZONE LOG PUSHES
"""

from __future__ import annotations

import itertools
import os
import sys

from fsmq import Spool
from fsmq.dyno import DynoQueues, Message
from fsmq.dyno import shards as zones
from fsmq.spool.records import peers

# Heartbeats are faster than usual, as the test has no minutes.
DEAD_AFTER_S, UNACK_MS = 2.0, 1000


def hasten() -> None:
    peers.DEAD_AFTER_S = DEAD_AFTER_S
    zones._BEAT_S = zones._FRESH_S = DEAD_AFTER_S / 5


def main(root: str, zone: str, log: str, pushes: str) -> None:
    hasten()
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    # Without events, as between hosts that mount one tree.
    with Spool(root, watch="poll", poll_interval=0.05) as spool:
        queue = DynoQueues(spool, zone=zone, unack_time=UNACK_MS).get("tasks")
        for number in itertools.count():
            if number < int(pushes):
                ids = [f"{zone}-{os.getpid()}-{number}-{n}" for n in range(4)]
                queue.push([Message(one, one) for one in ids])
                os.write(out, "".join(f"pushed {one}\n" for one in ids).encode())
            elif number == int(pushes):
                os.write(out, f"finished {os.getpid()}\n".encode())
            for message in queue.pop(6, 50):
                os.write(out, f"trying {message.id}\n".encode())
                if queue.ack(message.id):
                    os.write(out, f"acked {message.id}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
