"""The load for SQLite as a queue: WAL, synchronous=FULL, and a thread with a connection per client.

A process of its own; there is no server.

    python -m benchmarks.sqlite_load FILE put --connections 8 --seconds 3 --size 1024
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BUSY_S = 60.0
_TABLE = """
    pragma journal_mode = wal;
    create table queue (id integer primary key, body blob not null, claimed real);
    create index waiting on queue (id) where claimed is null;
"""
_CLAIM = """
    update queue set claimed = julianday() where id =
        (select id from queue where claimed is null order by id limit 1) returning id, body
"""


def run(
    file: Path,
    work: str,
    *,
    connections: int,
    seconds: float,
    size: int,
    warm_up: float = 0.0,
) -> float:
    """Rounds of ``put`` or ``life`` a second. AssertionError if a message was lost."""
    with sqlite3.connect(file) as database:
        database.executescript(_TABLE)
    body = b"x" * size
    done = _drive(file, work, body, connections, warm_up) if warm_up else 0
    started = time.perf_counter()
    counted = _drive(file, work, body, connections, seconds)
    elapsed = time.perf_counter() - started
    [held] = database.execute("select count(*) from queue").fetchone()
    expected = done + counted if work == "put" else 0
    assert held == expected, f"the table has {held} messages, not {expected}"
    return counted / elapsed


def _drive(file: Path, work: str, body: bytes, connections: int, seconds: float) -> int:
    end = time.perf_counter() + seconds
    with ThreadPoolExecutor(connections) as pool:
        clients = [pool.submit(_client, file, work, body, end) for _ in range(connections)]
        return sum(client.result() for client in clients)


def _client(file: Path, work: str, body: bytes, end: float) -> int:
    # Each statement is a transaction of its own.
    database = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None)
    database.execute("pragma synchronous = full")
    done = 0
    while time.perf_counter() < end:
        database.execute("insert into queue (body) values (?)", (body,))
        if work == "life":
            [(number, found)] = database.execute(_CLAIM).fetchall()
            assert found == body
            database.execute("delete from queue where id = ?", (number,))
        done += 1
    database.close()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many rounds a second SQLite does.")
    parser.add_argument("file", type=Path)
    parser.add_argument("work", choices=("put", "life"))
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--warm-up", type=float, default=0.0)
    print(run(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
