"""The loads for dyno-queues, each in a process of its own; each prints its figures.

python -m benchmarks.dyno_load push|put|life|by-id|sizes FOLDER …
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

from fsmq.dyno import DynoQueue, DynoQueues, Message
from fsmq.spool import NewMessage, Spool
from fsmq.spool.layout.given_ids import given_lines, link_name
from fsmq.spool.layout.uuids import uuid7

NAME, ZONE = "bench", "a"
_BATCH = 100


def fill(root: Path, queue: str, count: int, size: int = 100) -> None:
    """Ready messages with links, as pushes and a mover leave them; not synced."""
    folder, ids = root / "queues" / queue, root / "ids" / queue
    body = os.urandom(size // 2).hex().encode()
    for number in range(count):
        name, given = f"{uuid7()}.h", f"{number}"
        path = f"{folder}/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, given_lines(given, name) + b"\n" + body)
        os.close(fd)
        os.link(path, f"{ids}/{link_name(given)}")


def _queue(spool: Spool, **options: object) -> DynoQueue:
    return DynoQueues(spool, zone=ZONE, strategy="local", **options).get(NAME)  # type: ignore[arg-type]


def push(root: Path, given: argparse.Namespace) -> float:
    """Pushes of 100 a second, in messages."""
    payload = os.urandom(given.size // 2).hex()
    with Spool(root, delivers=False) as spool:
        queue = _queue(spool)
        count, started = 0, time.perf_counter()
        while (now := time.perf_counter()) - started < given.seconds or not count:
            queue.push([Message(f"{count + n}", payload) for n in range(_BATCH)])
            count += _BATCH
    return count / (now - started)


def index(root: Path, given: argparse.Namespace) -> float:
    """How much longer a push of 100 takes in a queue with an index: of turns, the median."""
    body = os.urandom(given.size // 2).hex().encode()
    ratios = []
    with Spool(root, delivers=False) as spool:
        spool.create_queue("plain")
        spool.create_queue("indexed", index=True)
        indexed, plain = spool.indexed("indexed"), spool.queue("plain")
        count, end = 0, time.perf_counter() + given.seconds
        while time.perf_counter() < end or len(ratios) < 3:
            some = [NewMessage(body, id=f"{count + n}") for n in range(_BATCH)]
            # The same bytes without the index: an attribute as long as the two lines.
            same = [NewMessage(body, attributes={"fsmq.id": "x" * 70}) for _ in some]
            count += _BATCH
            began = time.perf_counter()
            plain.put_many(same)
            middle = time.perf_counter()
            indexed.upsert(some)
            ratios.append((time.perf_counter() - middle) / (middle - began))
    return statistics.median(ratios)


def life(root: Path, given: argparse.Namespace) -> float:
    """Pops and acknowledgements of 100 a second, in messages."""
    with Spool(root, delivers=False) as spool:
        queue = _queue(spool)
        fill(root, f"{NAME}@{ZONE}", given.count)
        os.sync()
        count = 0
        queue.ack_all(queue.pop(_BATCH))
        started = time.perf_counter()
        while popped := queue.pop(_BATCH):
            queue.ack_all(popped)
            count += len(popped)
            if time.perf_counter() - started >= given.seconds:
                break
        return count / (time.perf_counter() - started)


def by_id(root: Path, given: argparse.Namespace) -> float:
    """Milliseconds of one round of verbs by id, the median; ``count`` messages wait."""
    times = []
    with Spool(root, delivers=False) as spool:
        queue = _queue(spool)
        fill(root, f"{NAME}@{ZONE}", given.count)
        os.sync()
        step = max(1, given.count // given.rounds)
        for number in range(0, step * given.rounds, step):
            assert queue.get(f"{number % given.count}") is not None  # warm, as with few
        for number in range(0, step * given.rounds, step):
            one = f"{number % given.count}"
            began = time.perf_counter()
            assert queue.get(one) is not None
            assert not queue.ensure(Message(one, "x"))
            assert queue.pop_with_msg_id(one) is not None
            assert queue.set_unack_timeout(one, 60_000)
            assert queue.ack(one)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def sizes(root: Path, given: argparse.Namespace) -> float:
    """Milliseconds of ``shard_sizes`` of 100 shards with ``count`` messages together, when warm."""
    shards = [f"s{number:02}" for number in range(100)]
    with Spool(root, delivers=False) as spool:
        queue = DynoQueues(spool, zone=shards[0], shards=shards).get(NAME)
        for shard in shards:
            fill(root, f"{NAME}@{shard}", given.count // 100)
        times = []
        for _ in range(given.rounds):
            began = time.perf_counter()
            found = queue.shard_sizes()
            times.append(time.perf_counter() - began)
        assert sum(one["size"] for one in found.values()) == given.count // 100 * 100
    return statistics.median(times[1:]) * 1000


_LOADS = {"push": push, "index": index, "life": life, "by-id": by_id, "sizes": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print one figure as JSON.")
    parser.add_argument("load", choices=[*_LOADS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(_LOADS[given.load](given.folder / "mq", given)))


if __name__ == "__main__":
    main()
