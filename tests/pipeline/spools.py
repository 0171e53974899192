"""Spools for the tests of the pipeline: every kind of message, and other files."""

from __future__ import annotations

import os
import random
from pathlib import Path

from fsmq.spool import Message, NewMessage, Spool, State
from fsmq.spool.layout.names import new_id
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.views.browse import ids
from fsmq.spool.views.look import look

QUEUES = ("jobs", "jobs:night", "mail@example.org")


def every_kind(root: Path, *, seed: int = 8, amount: int = 20) -> Path:
    """Three queues with messages in all states, with and without each optional fact.

    Claims last a day and nothing delivers, so that the spool does not change.
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
    # The folder of a queue with many messages is deleted as a whole.
    (root / "queues" / "gone").rename(root / "remove" / f"gone:{uuid7()}")
    from_shells(root)
    return root


def bodies(root: Path, queue: str = "jobs") -> list[bytes]:
    """The bodies of ready messages, sorted."""
    with Spool(root, sync="none") as spool:
        spool.deliver()
        return sorted(message.body for message in spool.queue(queue).peek(1000))


def messages(spool: Spool, queue: str) -> dict[str, Message]:
    """The messages of a queue in any state, by id."""
    found = {}
    for state in (State.NEW, State.READY, State.DELAY):
        for message_id in ids(spool.context, queue, state):
            message = look(spool.context, queue, message_id, state)
            if message is not None:
                found[message_id] = message
    return found


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
    """Messages that people put with ``mv``."""
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
    """Files beside messages that are no messages: readers skip them."""
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
