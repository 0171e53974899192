"""Requests that end badly, over and over: what they leave behind in mq is measured.

    python -m tests.soak.memory --rounds 100

Each way to end a request badly (`tests/http/bad_ends.py`) is tried with each request that takes a
body, or gives one. Meanwhile mq has no more than its limit for bodies beside what it had. Behind so
many rounds its memory may be a little more than before, and all that it counts as held has to be
nothing. With ``--keys`` the server has keys; with
``--tls`` it speaks TLS.
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
from pathlib import Path
from typing import Any

from tests.harness import certificates
from tests.harness.suite import Suite, eventually
from tests.http import bad_ends
from tests.http.bad_ends import MIB, Asked, Server
from tests.http.keyfile import add_key
from tests.http.test_limits import memory
from tests.http.test_memory import SPARE, peak

# The bar: so much more than before is none of a leak.
SHARE, MORE = 1.2, 20 * MIB
_DESCRIPTORS = 8
_AT_ONCE = 4
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


class Weighed:
    """An mq whose weight is looked at."""

    def __init__(self, suite: Suite, weights: Path, server: Server) -> None:
        self.suite = suite
        self.server = server
        self._weights = weights

    @property
    def memory(self) -> int:
        return memory(self.suite)

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.suite['mq'].pid}/fd"))

    def served(self) -> Any:
        """What it says about itself."""
        with self.server.connected() as wire:
            wire.sendall(self.server.head(Asked("GET", "/_openapi.json", {}), "Connection: close"))
            answer = b"".join(iter(partial(wire.recv, MIB), b""))
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    def figures(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._weights.read_text())
        return found

    def is_at_rest(self) -> bool:
        """Whether nothing is counted for any request; asked until it is so."""
        return not any(self.figures().values())

    def after(self, rounds: int, end: Callable[[Server, Asked], None], asked: Asked) -> list[str]:
        """Ends so many requests badly; a sentence for each thing that they have left behind."""
        eventually(self.is_at_rest)
        before, descriptors = self.memory, self.descriptors
        peak(self.suite)

        def once(_: int) -> None:
            bad_ends.give_back(self.suite.root)
            end(self.server, asked)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(once, range(rounds)))
        highest = peak(self.suite)
        told = {
            f"it had {highest / MIB:.0f} MiB": lambda: highest <= before + LIMIT + SPARE,
            "it counts as held what is not": self.is_at_rest,
            "descriptors": lambda: self.descriptors <= descriptors + _DESCRIPTORS,
            "memory": lambda: self.memory <= before * SHARE + MORE,
        }
        left = []
        for what, holds in told.items():
            try:
                eventually(holds)
            except AssertionError:
                left.append(what)
        now = f"{self.descriptors} descriptors, {self.memory / MIB:.0f} MiB, {self.figures()}"
        was = f"before {descriptors} and {before / MIB:.0f} MiB"
        return [f"{', '.join(left)}: {now}; {was}"] if left else []


@contextmanager
def weighed(folder: Path, *, with_keys: bool = False, with_tls: bool = False) -> Iterator[Weighed]:
    """An mq with large messages in its queues, alone: nobody delivers what comes."""
    options, key, context = list(OPTIONS), None, None
    if with_keys:
        key = add_key(folder / "keys.toml", "one", "--admin=*", "--send=*", "--receive=*")
        options.append(f"--keys={folder / 'keys.toml'}")
    if with_tls:
        certificate, private = certificates.make(folder, "localhost")
        options += [f"--tls-cert={certificate}", f"--tls-key={private}"]
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
    weights = folder / "weights.json"
    suite = Suite(folder / "mq", mq_options=options, mover=False, reaper=False)
    suite["mq"].module = "tests.soak.weighed"
    suite["mq"].options.insert(0, f"--weights={weights}")
    with suite:
        bad_ends.fill(suite.root)
        yield Weighed(suite, weights, Server(suite.port, key, context))


def pairs(served: Mapping[str, Any]) -> Iterator[tuple[Callable[[Server, Asked], None], Asked]]:
    """Each way with each request that can end so."""
    for asked in bad_ends.WITH_ANSWERS:
        for end in (*bad_ends.OF_ANSWERS, *bad_ends.OF_SLOW_ANSWERS):
            yield end, asked
    for asked in bad_ends.with_bodies(served):
        for end in bad_ends.WITH_BODIES:
            yield end, asked


def run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--only", default="", help="ways and requests with this in their name")
    given = parser.parse_args(arguments)
    bad = number = 0
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fsmq-memory-") as folder,
        weighed(Path(folder), with_keys=given.keys, with_tls=given.tls) as one,
    ):
        first = one.memory
        for end, asked in pairs(one.served()):
            name = f"{end.__name__}: {asked}"
            if given.only in name:
                number += 1
                found = one.after(given.rounds, end, asked)
                bad += bool(found)
                print(f"{one.memory / MIB:4.0f} MiB, {name}", *found, sep="; ", flush=True)
        grown = f"{first / MIB:.0f} to {one.memory / MIB:.0f} MiB"
    seconds = time.monotonic() - started
    print(f"{number} kinds of bad ends, {given.rounds} of each, in {seconds:.0f} s: memory {grown}")
    print(f"{bad} of them left something behind")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(run())
