"""Clients of a mixed load, each a process of its own that writes down what it does.

Before each request a client writes a line that says what it asks, after the answer one that says
what was answered, both with the time: what has no answer may have happened or not. The lines go to
a file outside the spool in single writes, so that nothing of them is lost with the client.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.power import bodies, dedup
from tests.power.verbs import Got, InProcess, OverHttp, Refused, Verbs

MAIN, FAN = "main", "fan"
TOPIC = "news"  # to which both are subscribed
MIXED = {
    "post": 30,
    "retry": 5,
    "batch": 5,
    "publish": 5,
    "fetch": 15,
    "renew": 5,
    "release": 5,
    "delete": 12,
    "delete_any": 4,
    "brief": 2,
    "purge": 2,
    "configure": 2,
    "move": 2,
    "send_dups": 6,
    "poll_dups": 4,
    "ack_dups": 4,
}
"""How often each deed is done, in proportion."""
_SIZES = (0, 10, 100, 1000, 5000, 70_000)
_SIZE_WEIGHTS = (2, 6, 6, 4, 3, 1)
_DELAYS = (None, None, None, None, 0.2, 300.0)
_HOLDS = (0.3, 60.0, 600.0)
_PAUSE_S = 0.02


class Recorder:
    """Does verbs and writes them down; an unanswered one raises Refused."""

    def __init__(self, verbs: Verbs, name: str, file: int) -> None:
        self._verbs = verbs
        self._name = name
        self._file = file
        self.number = 0

    def create(self, queue: str) -> int:
        return self._do({"verb": "create", "queue": queue}, lambda v: (v.create(queue), {}))

    def delete_queue(self, queue: str) -> int:
        asked = {"verb": "delete_queue", "queue": queue}
        return self._do(asked, lambda v: (v.delete_queue(queue), {}))

    def purge(self, queue: str) -> int:
        return self._do({"verb": "purge", "queue": queue}, lambda v: (v.purge(queue), {}))

    def configure(self, queue: str, visibility: float) -> int:
        asked = {"verb": "configure", "queue": queue, "visibility": visibility}
        return self._do(asked, lambda v: (v.configure(queue, visibility), {}))

    def post(
        self,
        queue: str,
        key: str,
        size: int,
        *,
        id: str | None = None,
        delay: float | None = None,
        rich: bool = False,
    ) -> str:
        told: list[str] = []

        def post(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, message_id = verbs.post(queue, bodies.make(key, size), id, delay, rich)
            told.append(message_id)
            return status, {"ids": [message_id]}

        asked = {"verb": "post", "queue": queue, "keys": [key], "delay": delay, "ids": [id]}
        self._do(asked, post)
        return told[0]

    def batch(self, queue: str, keys: Sequence[str], size: int) -> list[str]:
        told: list[str] = []

        def batch(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, ids = verbs.batch(queue, [bodies.make(key, size) for key in keys])
            told.extend(ids)
            return status, {"ids": ids}

        self._do({"verb": "post", "queue": queue, "keys": list(keys)}, batch)
        return told

    def publish(self, topic: str, to: Sequence[str], key: str, size: int) -> None:
        """Publish to a topic to which the queues ``to`` are subscribed."""

        def publish(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, copies = verbs.publish(topic, bodies.make(key, size))
            return status, {"copies": copies}

        self._do({"verb": "publish", "queue": topic, "keys": [key], "to": list(to)}, publish)

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        told: list[Got] = []

        def fetch(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            told.extend(verbs.fetch(queue, count, visibility))
            return 200, {"got": told}

        self._do({"verb": "fetch", "queue": queue}, fetch)
        return told

    def renew(self, queue: str, id: str, visibility: float) -> int:
        def renew(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, deadline = verbs.renew(queue, id, visibility)
            return status, {"deadline": deadline}

        return self._do({"verb": "renew", "queue": queue, "ids": [id]}, renew)

    def release(self, queue: str, id: str) -> int:
        asked = {"verb": "release", "queue": queue, "ids": [id]}
        return self._do(asked, lambda v: (v.release(queue, id), {}))

    def delete(self, queue: str, id: str) -> int:
        asked = {"verb": "delete", "queue": queue, "ids": [id]}
        return self._do(asked, lambda v: (v.delete(queue, id), {}))

    def move(self, queue: str, to: str) -> int:
        asked = {"verb": "move", "queue": queue, "to": [to]}
        return self._do(asked, lambda v: (v.move(queue, to), {}))

    def dedup_send(self, keys: Sequence[str]) -> int:
        sent = [dedup.make(key) for key in keys]
        asked = {"verb": dedup.SENDS, "queue": dedup.DUPS, "keys": list(keys)}
        return self._do(asked, lambda v: (v.dedup_send(sent), {}))

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        told: list[Got] = []

        def poll(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            told.extend(verbs.dedup_poll(count, visibility))
            return 200, {"got": told}

        self._do({"verb": dedup.POLLS, "queue": dedup.DUPS}, poll)
        return told

    def dedup_ack(self, ids: Sequence[str]) -> int:
        asked = {"verb": dedup.ACKS, "queue": dedup.DUPS, "ids": list(ids)}
        return self._do(asked, lambda v: (v.dedup_ack(ids), {}))

    def _do(
        self, asked: dict[str, Any], verb: Callable[[Verbs], tuple[int, dict[str, Any]]]
    ) -> int:
        self.number += 1
        which = {"client": self._name, "n": self.number}
        self._write(which | asked | {"called": time.monotonic(), "called_wall": time.time()})
        status, told = verb(self._verbs)
        when = {"answered": time.monotonic(), "answered_wall": time.time()}
        self._write(which | when | {"status": status} | told)
        return status

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Worker:
    """One client at work, for ever."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        weights: Mapping[str, int],
        mine: Sequence[str] = (),
        held: Sequence[str] = (),
        held_dups: Sequence[str] = (),
    ) -> None:
        self._do = recorder
        self._name = name
        self._home = name.partition("-")[0]
        self._deeds = list(weights)
        self._weights = list(weights.values())
        self._chance = random.Random(name)
        self._posted = self._done = 0
        self._mine = list(mine)
        self._held = list(held)
        self._retries: list[tuple[str, int, str]] = []
        self._moved = (f"here-{self._home}", f"there-{self._home}")
        self._dups: list[str] = []  # what was sent to the dedup queue lately
        self._held_dups = list(held_dups)

    def run(self) -> None:
        while True:
            [deed] = self._chance.choices(self._deeds, self._weights)
            before = self._do.number
            try:
                getattr(self, deed)()
                refused = False
            except Refused:
                refused = True
            if refused or self._do.number == before:
                time.sleep(_PAUSE_S)  # a daemon is down, or there is nothing left to do

    def post(self) -> None:
        key = self._key()
        kind = self._chance.random()
        own = f"own-{key}" if kind < 0.2 else None
        delay = self._chance.choice(_DELAYS)
        size = self._size()
        try:
            message_id = self._do.post(MAIN, key, size, id=own, delay=delay, rich=kind > 0.8)
        except Refused:
            if own is not None:
                self._retries.append((key, size, own))
            raise
        if message_id:
            self._mine.append(message_id)

    def retry(self) -> None:
        """Post once more, with its own id, what may or may not have been stored."""
        if self._retries:
            key, size, own = self._retries[-1]
            self._do.post(MAIN, key, size, id=own)
            self._retries.pop()

    def batch(self) -> None:
        keys = [self._key() for _ in range(self._chance.randint(2, 20))]
        self._mine += self._do.batch(MAIN, keys, self._size())

    def publish(self) -> None:
        self._do.publish(TOPIC, (MAIN, FAN), self._key(), self._size())

    def fetch(self) -> None:
        count = self._chance.choice((1, 1, 1, 5))
        for got in self._do.fetch(MAIN, count, self._chance.choice(_HOLDS)):
            self._held.append(got.id)

    def renew(self) -> None:
        if self._held:
            self._do.renew(MAIN, self._chance.choice(self._held), self._chance.choice(_HOLDS))

    def release(self) -> None:
        if self._held:
            self._do.release(MAIN, self._take(self._held))

    def delete(self) -> None:
        if self._held:
            self._do.delete(MAIN, self._take(self._held))

    def delete_any(self) -> None:
        """Delete what this client has posted, in whatever state it is by now."""
        if self._mine:
            self._do.delete(MAIN, self._take(self._mine))

    def brief(self) -> None:
        """A queue that comes and goes with what is in it."""
        queue = f"brief-{self._home}"
        self._fill(queue)
        self._do.delete_queue(queue)

    def purge(self) -> None:
        self.fill()
        self.empty()

    def fill(self) -> None:
        self._fill(f"purged-{self._home}")

    def empty(self) -> None:
        if self._may(1):
            self._do.purge(f"purged-{self._home}")

    def drop(self) -> None:
        if self._may(1):
            self._do.delete_queue(f"purged-{self._home}")

    def configure(self) -> None:
        queue = f"set-{self._home}"
        self.create()
        self._do.configure(queue, self._chance.randint(10, 1000))

    def configure_once(self) -> None:
        if self._may(1):
            self._do.configure(f"set-{self._home}", self._chance.randint(10, 1000))

    def create(self) -> None:
        self._do.create(f"set-{self._home}")

    def create_new(self) -> None:
        if self._may(20):
            self._do.create(f"fresh-{self._key()}")

    def move(self) -> None:
        """Fill a queue, and move what is in it to another."""
        self.fill_source()
        self.order_move()

    def fill_source(self) -> None:
        for queue in self._moved:
            self._do.create(queue)
        for _ in range(self._chance.randint(0, 4)):
            self._do.post(self._moved[0], self._key(), 10)

    def order_move(self) -> None:
        self._do.move(*self._moved)

    def order_move_once(self) -> None:
        if self._may(1):
            self.order_move()

    def send_dups(self) -> None:
        """Send what is new, and something again that may wait still."""
        fresh = [self._key() for _ in range(self._chance.randint(1, 3))]
        again = [self._chance.choice(self._dups)] if self._dups else []
        self._dups = [*self._dups[-20:], *fresh]
        self._do.dedup_send([*fresh, *again])

    def poll_dups(self) -> None:
        count, hold = self._chance.choice((1, 5)), self._chance.choice((1.0, 60.0, 600.0))
        self._held_dups += [got.id for got in self._do.dedup_poll(count, hold)]

    def ack_dups(self) -> None:
        if self._held_dups:
            count = min(len(self._held_dups), self._chance.randint(1, 3))
            self._do.dedup_ack([self._take(self._held_dups) for _ in range(count)])

    def _may(self, times: int) -> bool:
        """Whether this was done less than so many times: much work makes a log commit itself."""
        self._done += 1
        return self._done <= times

    def _fill(self, queue: str) -> None:
        self._do.create(queue)
        for _ in range(self._chance.randint(0, 3)):
            self._do.post(queue, self._key(), 10)
        self._do.fetch(queue, 1, 600.0)

    def _take(self, ids: list[str]) -> str:
        return ids.pop(self._chance.randrange(len(ids)))

    def _size(self) -> int:
        return self._chance.choices(_SIZES, _SIZE_WEIGHTS)[0]

    def _key(self) -> str:
        self._posted += 1
        return f"{self._name}-{self._posted}"


def main(
    program: str, name: str, target: str, sync: str, events: str, weights: str, known: str
) -> None:
    """Work until killed.

    name: the client's, ``<home>-<anything>``; each home has some queues of its own.
    target: the URL of mq, or for ``library`` the root.
    known: JSON with the ids that it has posted already, and those that it holds.
    """
    file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    verbs: Verbs = OverHttp(target) if program == "http" else InProcess(target, sync)
    Worker(Recorder(verbs, name, file), name, json.loads(weights), **json.loads(known)).run()
