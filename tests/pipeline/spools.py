"""Spools for the tests of the pipeline: every kind of message, and files that are not ours."""

from __future__ import annotations

import os
import random
from pathlib import Path

from fsmq.spool import NewMessage, Spool
from fsmq.spool.layout.names import new_id
from fsmq.spool.layout.uuids import uuid7

QUEUES = ("jobs", "jobs:night", "mail@example.org")


def every_kind(root: Path, *, seed: int = 8, amount: int = 20) -> Path:
    """Three queues with messages in all states, with and without all that a message can have.

    What is claimed stays so for a day, and nothing delivers: two looks see the same.
    """
    chance = random.Random(seed)
    with Spool(root, sync="none") as spool:
        for name in QUEUES:
            queue = spool.queue(name, create=True)
            queue.put_many(_message(chance) for _ in range(amount))
            held = queue.claim(amount // 2, visibility=86_400)
            queue.remove(*(message.id for message in held[::3]))
            queue.put_many(_message(chance) for _ in range(amount))
        spool.deliver()
        for name in QUEUES:
            spool.queue(name).put_many(_message(chance) for _ in range(amount // 2))
        packed = spool.queue("jobs:night", create=True)
        packed.configure(compression="zlib")
        packed.put(b"squeezed " * 200, content_type="text/plain", attributes={"a": "ä: b"})
        gone = spool.queue("gone", create=True)
        gone.put_many([b"1", b"2"])
        spool.deliver()
    # As a queue of many messages is deleted: its folder goes at once.
    (root / "queues" / "gone").rename(root / "remove" / f"gone:{uuid7()}")
    from_shells(root)
    return root


def _message(chance: random.Random) -> NewMessage:
    return NewMessage(
        chance.randbytes(chance.choice([0, 1, 10, 1000])),
        delay=chance.choice([None, None, None, 3600.0]),
        priority=chance.choice([0, 0, 7, 99]),
        ttl=chance.choice([None, None, 7200.0]),
        content_type=chance.choice([None, None, "text/plain"]),
        attributes=chance.choice([{}, {}, {"trace": "4bf92f35", "to": "bob"}]),
    )


def from_shells(root: Path) -> None:
    """Messages that people put with ``mv``: all of them count."""
    jobs = root / "queues" / "jobs"
    (jobs / "report-17").write_bytes(b"plain")
    (jobs / "notes.h").write_bytes(b"no header: a plain name has none\n\n")
    (jobs / "grüße").write_bytes(b"utf-8")
    (jobs / os.fsdecode(b"caf\xe9")).write_bytes(b"latin-1")
    (jobs / f"{uuid7()}.h").write_bytes(b"no header block at all")
    (jobs / f"{uuid7()}.z").write_bytes(b"not compressed at all")
    (jobs / new_id(own="ffffffff-ffff-7fff-bfff-ffffffffffff")).write_bytes(b"far off")
    (jobs / f"{uuid7()}.xffffffffff").write_bytes(b"never")
    (root / "new" / "jobs:from-a-shell").write_bytes(b"new")
    (root / "delay" / "jobs:by-hand").write_bytes(b"no stamp")
    (root / "new" / "nobodys:1").write_bytes(b"a queue that does not exist")


def other_files(root: Path) -> None:
    """What stands where messages stand and is none: all of it is passed over."""
    jobs = root / "queues" / "jobs"
    (jobs / "link").symlink_to("report-17")
    (jobs / "dangling").symlink_to("nowhere")
    os.mkfifo(jobs / "pipe")
    (jobs / "folder").mkdir()
    (jobs / ".hidden").write_bytes(b"")
    (jobs / "with:colon").write_bytes(b"")
    (root / "queues" / "loop").symlink_to("jobs")
    (root / "queues" / "file").write_bytes(b"")
    (root / "queues" / "_odd").mkdir()
    (root / "queues" / "_odd" / "1").write_bytes(b"")
    (root / "new" / f".jobs:{uuid7()}:00000000").write_bytes(b"staged")
    (root / "new" / "no-queue").write_bytes(b"")
    (root / "new" / "jobs:").write_bytes(b"")
    os.mkfifo(root / "new" / "jobs:pipe")
    (root / "delay" / "jobs:link").symlink_to("../queues/jobs/report-17")
    (root / "remove" / "jobs:link").symlink_to("../queues/jobs/report-17")
