"""The loads for dyno-queues, each in a process of its own; each prints its figures.

python -m benchmarks.dyno_load push|put|life|by-id|sizes FOLDER …
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import time
from pathlib import Path

from fsmq.dyno import DynoQueue, DynoQueues, Message
from fsmq.spool import NewMessage, Spool
from fsmq.spool.durability.sync import sync_filesystem
from fsmq.spool.layout.messages.given_ids import given_lines, link_name
from fsmq.spool.layout.uuids import uuid7

NAME, ZONE = "bench", "a"
_BATCH = 100
_HIDDEN_NS = 4_000_000_000_000_000_000  # far in the future


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
            same = [NewMessage(body, attributes={"given": "x" * 70}) for _ in some]
            count += _BATCH
            began = time.perf_counter()
            plain.put_many(same)
            middle = time.perf_counter()
            indexed.upsert(some)
            ratios.append((time.perf_counter() - middle) / (middle - began))
    return statistics.median(ratios)


def life(root: Path, given: argparse.Namespace) -> dict[str, float]:
    """Pops and acknowledgements of 100 a second, in messages; and those of `_raw_life`, in turn."""
    spent = {"ours": 0.0, "raw": 0.0}
    with Spool(root, delivers=False) as spool:
        queue = _queue(spool)
        fill(root, f"{NAME}@{ZONE}", given.count)
        names = _fill_raw(root, given.count)
        os.sync()
        count = 0
        queue.ack_all(queue.pop(_BATCH))
        while sum(spent.values()) < given.seconds or not count:
            began = time.perf_counter()
            popped = queue.pop(_BATCH)
            queue.ack_all(popped)
            middle = time.perf_counter()
            if len(popped) < _BATCH:
                break
            _raw_life(root, names[count : count + _BATCH])
            spent["ours"] += middle - began
            spent["raw"] += time.perf_counter() - middle
            count += _BATCH
    return {name: count / seconds for name, seconds in spent.items()}


def _fill_raw(root: Path, count: int) -> list[str]:
    for folder in ("raw", "raw.delay", "raw.remove"):
        (root.parent / folder).mkdir()
    names = [f"{uuid7()}.h" for _ in range(count)]
    for name in names:
        (root.parent / "raw" / name).write_bytes(bytes(100))
    return names


def _raw_life(root: Path, names: list[str]) -> None:
    """The calls without which no message is claimed, read and removed, and two syncs for all."""
    folder = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY)
    fds = []
    for name in names:
        fd = os.open(f"raw/{name}", os.O_RDONLY, dir_fd=folder)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.fstat(fd)
        os.utime(fd, ns=(_HIDDEN_NS, _HIDDEN_NS))
        _rename(folder, f"raw/{name}", f"raw.delay/{name}")
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.pread(fd, 4096, 0)
        fds.append(fd)
    sync_filesystem(root)
    for fd in fds:
        os.close(fd)
    for name in names:
        os.stat(f"raw.delay/{name}", dir_fd=folder)
        _rename(folder, f"raw.delay/{name}", f"raw.remove/{name}")
    sync_filesystem(root)
    os.close(folder)


def _rename(folder: int, source: str, target: str) -> None:
    os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)


def by_id(root: Path, given: argparse.Namespace) -> dict[str, float]:
    """Of one round of verbs by id with ``few`` and ``count`` messages waiting, in turn, how much
    longer it takes with many; the same of raw calls; and the milliseconds. All are medians."""
    depths = {"few": given.few, "many": given.count}
    times: dict[str, list[float]] = {f"{what}{d}": [] for what in ("", "raw ") for d in depths}
    with Spool(root, delivers=False) as spool:
        queues = {d: DynoQueues(spool, zone=ZONE, strategy="local").get(d) for d in depths}
        for depth, count in depths.items():
            fill(root, f"{depth}@{ZONE}", count)
        os.sync()
        # The raw calls have ids of their own: neither is to warm the other's.
        ids = {depth: _spread(count, 2 * given.rounds) for depth, count in depths.items()}
        for depth, queue in queues.items():
            for one in ids[depth]:
                assert queue.get(one) is not None  # warm, as with few
        for number in range(given.rounds):
            for depth, queue in queues.items():
                one, other = ids[depth][2 * number : 2 * number + 2]
                began = time.perf_counter()
                _raw_by_id(root, f"{depth}@{ZONE}", other)
                times[f"raw {depth}"].append(time.perf_counter() - began)
                began = time.perf_counter()
                _verbs_by_id(queue, one)
                times[depth].append(time.perf_counter() - began)
    found = {what: statistics.median(some) * 1000 for what, some in times.items()}
    found["ratio"] = found["many"] / found["few"]
    found["raw ratio"] = found["raw many"] / found["raw few"]
    return found


def _spread(count: int, rounds: int) -> list[str]:
    step = max(1, count // rounds)
    return [f"{number * step % count}" for number in range(rounds)]


def _verbs_by_id(queue: DynoQueue, one: str) -> None:
    assert queue.get(one) is not None
    assert not queue.ensure(Message(one, "x"))
    assert queue.pop_with_msg_id(one) is not None
    assert queue.set_unack_timeout(one, 60_000)
    assert queue.ack(one)


def _raw_by_id(root: Path, queue: str, one: str) -> None:
    """About the same calls on the same folders, and as many syncs; the message is back then."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(5):
        fd = os.open(f"ids/{queue}/{one}", os.O_RDONLY, dir_fd=folder)
        name = os.pread(fd, 4096, 0).split(b"\n")[1].split()[1].decode()
        os.close(fd)
    ready, hidden = f"queues/{queue}/{name}", f"delay/{queue}:{name}"
    found = os.stat(ready, dir_fd=folder)
    sync_filesystem(root)
    os.utime(ready, ns=(_HIDDEN_NS, _HIDDEN_NS), dir_fd=folder)
    _rename(folder, ready, hidden)
    sync_filesystem(root)
    os.utime(hidden, ns=(found.st_mtime_ns, found.st_mtime_ns), dir_fd=folder)
    sync_filesystem(root)
    _rename(folder, hidden, ready)
    sync_filesystem(root)
    os.close(folder)


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
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(_LOADS[given.load](given.folder / "mq", given)))


if __name__ == "__main__":
    main()
