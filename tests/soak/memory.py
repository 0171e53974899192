"""Leaks of mq after many requests that end badly.

    python -m tests.soak.memory --rounds 100

Each way to end a request badly (`tests/http/bad_ends.py`) is combined with each request that has a
body or a large answer. During the requests the memory of mq grows by at most its limit for bodies.
After the rounds it may be a little more than before, and all counters of mq must be 0. With
``--keys`` the server has keys, with ``--tls`` it uses TLS.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tests.harness import certificates
from tests.harness.suite import Suite, eventually
from tests.http import bad_ends
from tests.http.bad_ends import MIB, Asked, Server
from tests.http.keyfile import add_key
from tests.http.test_limits import memory
from tests.http.test_memory import SPARE, peak

# How much memory may grow without a leak.
SHARE, MORE = 1.2, 20 * MIB
_DESCRIPTORS = 8
_AT_ONCE = 4
# Clients that mostly wait; more of them take less time.
_SLOW_AT_ONCE = 12
LIMIT = 64 * MIB
OPTIONS = (
    "--sync=none",
    f"--max-body-memory={LIMIT}",
    "--dialects=emodb,dynamiq,sqs",
    "--history=off",
    "--read-timeout=2",
    "--write-timeout=2",
    "--header-timeout=2",
)


class Counted:
    """An mq whose memory, descriptors and counters can be read."""

    def __init__(self, suite: Suite, counters: Path, server: Server) -> None:
        self.suite = suite
        self.server = server
        self._file = counters

    @property
    def memory(self) -> int:
        return memory(self.suite)

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.suite['mq'].pid}/fd"))

    def described(self) -> Any:
        """The OpenAPI document of the server."""
        with self.server.connected() as wire:
            wire.sendall(self.server.head(Asked("GET", "/_openapi.json", {}), "Connection: close"))
            answer = b"".join(iter(partial(wire.recv, MIB), b""))
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._file.read_text())
        return found

    def is_at_rest(self) -> bool:
        """Whether all counters are 0."""
        return not any(self.counters().values())

    def leaks(self, rounds: int, end: Callable[[Server, Asked], None], asked: Asked) -> list[str]:
        """End a request badly in each round; a text if there is a leak."""
        eventually(self.is_at_rest)
        before, descriptors = self.memory, self.descriptors
        peak(self.suite)

        def once(_: int) -> None:
            bad_ends.give_back(self.suite.root)
            end(self.server, asked)

        at_once = _SLOW_AT_ONCE if end in bad_ends.OF_SLOW_ANSWERS else _AT_ONCE
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(once, range(rounds)))
        highest = peak(self.suite)
        checks = {
            f"peak of {highest / MIB:.0f} MiB": lambda: highest <= before + LIMIT + SPARE,
            "counters": self.is_at_rest,
            "descriptors": lambda: self.descriptors <= descriptors + _DESCRIPTORS,
            "memory": lambda: self.memory <= before * SHARE + MORE,
        }
        failed = []
        for name, holds in checks.items():
            try:
                eventually(holds)
            except AssertionError:
                failed.append(name)
        now = f"{self.descriptors} descriptors, {self.memory / MIB:.0f} MiB, {self.counters()}"
        earlier = f"before {descriptors} and {before / MIB:.0f} MiB"
        return [f"{', '.join(failed)}: {now}; {earlier}"] if failed else []


@contextmanager
def counted(folder: Path, *, with_keys: bool = False, with_tls: bool = False) -> Iterator[Counted]:
    """An mq with large messages in its queues. No mover delivers new ones."""
    options, key, context = list(OPTIONS), None, None
    if with_keys:
        key = add_key(folder / "keys.toml", "one", "--admin=*", "--send=*", "--receive=*")
        options.append(f"--keys={folder / 'keys.toml'}")
    if with_tls:
        certificate, private = certificates.make(folder, "localhost")
        options += [f"--tls-cert={certificate}", f"--tls-key={private}"]
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
    counters = folder / "counters.json"
    suite = Suite(folder / "mq", mq_options=options, mover=False, reaper=False)
    suite["mq"].module = "tests.soak.counted"
    suite["mq"].options.insert(0, f"--counters={counters}")
    with suite:
        bad_ends.fill(suite.root)
        yield Counted(suite, counters, Server(suite.port, key, context))


def pairs(described: Mapping[str, Any]) -> Iterator[tuple[Callable[[Server, Asked], None], Asked]]:
    """Each way to end badly with each request that can end this way."""
    for asked in bad_ends.WITH_ANSWERS:
        for end in (*bad_ends.OF_ANSWERS, *bad_ends.OF_SLOW_ANSWERS):
            yield end, asked
    for asked in bad_ends.with_bodies(described):
        for end in bad_ends.WITH_BODIES:
            yield end, asked


def run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--only", default="", help="ends and requests with this in their name")
    parser.add_argument("--parts", type=int, default=1, help="do one of so many parts only")
    parser.add_argument("--part", type=int, default=0, help="which part, from 0")
    given = parser.parse_args(arguments)
    leaking = number = 0
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fsmq-memory-") as folder,
        counted(Path(folder), with_keys=given.keys, with_tls=given.tls) as mq,
    ):
        first = mq.memory
        for end, asked in islice(pairs(mq.described()), given.part, None, given.parts):
            name = f"{end.__name__}: {asked}"
            if given.only in name:
                number += 1
                leaks = mq.leaks(given.rounds, end, asked)
                leaking += bool(leaks)
                print(f"{mq.memory / MIB:4.0f} MiB, {name}", *leaks, sep="; ", flush=True)
        grown = f"{first / MIB:.0f} to {mq.memory / MIB:.0f} MiB"
    seconds = time.monotonic() - started
    print(f"{number} kinds of bad ends, {given.rounds} of each, in {seconds:.0f} s: memory {grown}")
    print(f"{leaking} of them leak")
    return bool(leaking)


if __name__ == "__main__":
    sys.exit(run())
