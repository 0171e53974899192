"""Does what a client of the load asks for, and writes it down.

Before each request it writes a line that says what is asked, after the answer one that says what
was answered, both with the time: what has no answer may have happened or not. The lines go to a
file outside the spool in single writes, so that nothing of them is lost with the client.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.power import bodies, dead, dedup
from tests.power.verbs import Got, Post, Refused, Verbs


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
        delay: float | None = None,
        rich: bool = False,
    ) -> str:
        post = Post(bodies.make(key, size), delay=delay, rich=rich)
        asked = {"verb": "post", "queue": queue, "keys": [key], "delay": delay}
        return self._post(queue, post, asked)

    def post_own(
        self, queue: str, own: str, key: str, size: int, attempt: int, delay: float | None
    ) -> str:
        """Post with an own id; the id of the message, empty if one of its id stands."""
        post = Post(bodies.make(key, size), own, delay, attempt=attempt)
        asked = {"verb": "post", "queue": queue, "keys": [key], "delay": delay}
        return self._post(queue, post, asked | {"own": own, "attempt": attempt})

    def _post(self, queue: str, post: Post, asked: dict[str, Any]) -> str:
        told: list[str] = []

        def do(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, message_id = verbs.post(queue, post)
            told.append(message_id)
            return status, {"ids": [message_id]}

        self._do(asked, do)
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

    def hang_up(self, queue: str, visibility: float, patience: float) -> None:
        """Fetch, and be gone before the answer."""
        asked = {"verb": "hang_up", "queue": queue}
        self._do(asked, lambda v: (v.hang_up(queue, visibility, patience), {}))

    def renew(self, queue: str, id: str, visibility: float, claim: str = "") -> int:
        """claim: its name, if no other is to be renewed; likewise below."""

        def renew(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, deadline = verbs.renew(queue, id, visibility, claim)
            return status, {"deadline": deadline}

        asked = {"verb": "renew", "queue": queue, "ids": [id], "claim": claim}
        return self._do(asked, renew)

    def release(self, queue: str, id: str, claim: str = "") -> int:
        asked = {"verb": "release", "queue": queue, "ids": [id], "claim": claim}
        return self._do(asked, lambda v: (v.release(queue, id, claim), {}))

    def delete(self, queue: str, id: str, claim: str = "") -> int:
        asked = {"verb": "delete", "queue": queue, "ids": [id], "claim": claim}
        return self._do(asked, lambda v: (v.delete(queue, id, claim), {}))

    def move(self, queue: str, to: str) -> int:
        asked = {"verb": "move", "queue": queue, "to": [to]}
        return self._do(asked, lambda v: (v.move(queue, to), {}))

    def lay(self, home: str, key: str, size: int) -> str:
        """Post to the client's own queue that has a dead-letter queue; the id."""
        queue, dead_letters = dead.of_home(home)
        self._verbs.prepare_burials(queue, dead_letters)
        asked = {"verb": dead.LAYS, "queue": queue, "keys": [key]}
        return self._post(queue, Post(bodies.make(key, size)), asked)

    def take(self, home: str) -> list[Got]:
        told: list[Got] = []
        queue, _ = dead.of_home(home)

        def take(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            told.extend(verbs.fetch(queue, 1, 600.0))
            return 200, {"got": told}

        self._do({"verb": dead.TAKES, "queue": queue}, take)
        return told

    def bury(self, home: str, key: str, id: str, reason: str, claim: str = "") -> int:
        queue, dead_letters = dead.of_home(home)
        asked = {"verb": dead.BURIES, "queue": queue, "to": [dead_letters], "reason": reason}
        asked |= {"keys": [key], "ids": [id], "claim": claim}
        return self._do(asked, lambda v: (v.bury(queue, id, reason, claim), {}))

    def redrive(self, home: str, ids: dict[str, str]) -> int:
        """Redrive some dead letters. ids: by key."""
        queue, dead_letters = dead.of_home(home)
        asked = {"verb": dead.REDRIVES, "queue": dead_letters, "to": [queue]}

        def redrive(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, moved = verbs.redrive(dead_letters, list(ids.values()))
            return status, {"moved": moved}

        return self._do(asked | {"keys": list(ids), "ids": list(ids.values())}, redrive)

    def set_priority(self, home: str, key: str, id: str, priority: int) -> str:
        """Give a message another priority; its id then, empty if it was not ready."""
        queue, _ = dead.of_home(home)
        asked = {"verb": dead.RANKS, "queue": queue, "keys": [key], "ids": [id]}
        told: list[str] = []

        def change(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, new_id = verbs.set_priority(queue, id, priority)
            told.append(new_id)
            return status, {}

        self._do(asked | {"priority": priority}, change)
        return told[0]

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
        try:
            status, told = verb(self._verbs)
        except Refused as refused:
            if refused.is_over:
                self._write(which | {"over": time.monotonic()})
            raise
        when = {"answered": time.monotonic(), "answered_wall": time.time()}
        self._write(which | when | {"status": status} | told)
        return status

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
