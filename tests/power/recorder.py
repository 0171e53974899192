"""Carries out the operations of a client of the load and records them.

It writes a line before each request and one after the answer, both with the time: an operation
without an answer may have happened or not. The lines go to a file outside the spool in single
writes, so that a killed client loses none.
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
    """Carries out verbs and records them; an unanswered one raises Refused."""

    def __init__(self, verbs: Verbs, name: str, file: int) -> None:
        self._verbs = verbs
        self._name = name
        self._file = file
        self.number = 0

    def create(self, queue: str) -> int:
        return self._do({"verb": "create", "queue": queue}, lambda v: (v.create(queue), {}))

    def delete_queue(self, queue: str) -> int:
        request = {"verb": "delete_queue", "queue": queue}
        return self._do(request, lambda v: (v.delete_queue(queue), {}))

    def purge(self, queue: str) -> int:
        return self._do({"verb": "purge", "queue": queue}, lambda v: (v.purge(queue), {}))

    def configure(self, queue: str, visibility: float) -> int:
        request = {"verb": "configure", "queue": queue, "visibility": visibility}
        return self._do(request, lambda v: (v.configure(queue, visibility), {}))

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
        request = {"verb": "post", "queue": queue, "keys": [key], "delay": delay}
        return self._post(queue, post, request)

    def post_own(
        self, queue: str, own: str, key: str, size: int, attempt: int, delay: float | None
    ) -> str:
        """Post with an own id; the id of the message, empty if the id is taken."""
        post = Post(bodies.make(key, size), own, delay, attempt=attempt)
        request = {"verb": "post", "queue": queue, "keys": [key], "delay": delay}
        return self._post(queue, post, request | {"own": own, "attempt": attempt})

    def _post(self, queue: str, post: Post, request: dict[str, Any]) -> str:
        answer: list[str] = []

        def do(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, message_id = verbs.post(queue, post)
            answer.append(message_id)
            return status, {"ids": [message_id]}

        self._do(request, do)
        return answer[0]

    def batch(self, queue: str, keys: Sequence[str], size: int) -> list[str]:
        answer: list[str] = []

        def batch(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, ids = verbs.batch(queue, [bodies.make(key, size) for key in keys])
            answer.extend(ids)
            return status, {"ids": ids}

        self._do({"verb": "post", "queue": queue, "keys": list(keys)}, batch)
        return answer

    def publish(self, topic: str, to: Sequence[str], key: str, size: int) -> None:
        """Publish to a topic with subscriptions of the queues ``to``."""

        def publish(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, copies = verbs.publish(topic, bodies.make(key, size))
            return status, {"copies": copies}

        self._do({"verb": "publish", "queue": topic, "keys": [key], "to": list(to)}, publish)

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        answer: list[Got] = []

        def fetch(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            answer.extend(verbs.fetch(queue, count, visibility))
            return 200, {"got": answer}

        self._do({"verb": "fetch", "queue": queue}, fetch)
        return answer

    def hang_up(self, queue: str, visibility: float, patience: float) -> None:
        """Fetch and hang up before the answer."""
        request = {"verb": "hang_up", "queue": queue}
        self._do(request, lambda v: (v.hang_up(queue, visibility, patience), {}))

    def renew(self, queue: str, id: str, visibility: float, claim: str = "") -> int:
        """claim: the name of the claim; "": any claim. Likewise below."""

        def renew(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, deadline = verbs.renew(queue, id, visibility, claim)
            return status, {"deadline": deadline}

        request = {"verb": "renew", "queue": queue, "ids": [id], "claim": claim}
        return self._do(request, renew)

    def release(self, queue: str, id: str, claim: str = "") -> int:
        request = {"verb": "release", "queue": queue, "ids": [id], "claim": claim}
        return self._do(request, lambda v: (v.release(queue, id, claim), {}))

    def delete(self, queue: str, id: str, claim: str = "") -> int:
        request = {"verb": "delete", "queue": queue, "ids": [id], "claim": claim}
        return self._do(request, lambda v: (v.delete(queue, id, claim), {}))

    def move(self, queue: str, to: str) -> int:
        request = {"verb": "move", "queue": queue, "to": [to]}
        return self._do(request, lambda v: (v.move(queue, to), {}))

    def post_buriable(self, home: str, key: str, size: int) -> str:
        """Post to the client's queue with a dead-letter queue; the id."""
        queue, dead_letters = dead.of_home(home)
        self._verbs.prepare_burials(queue, dead_letters)
        request = {"verb": dead.POSTS, "queue": queue, "keys": [key]}
        return self._post(queue, Post(bodies.make(key, size)), request)

    def take(self, home: str) -> list[Got]:
        answer: list[Got] = []
        queue, _ = dead.of_home(home)

        def take(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            answer.extend(verbs.fetch(queue, 1, 600.0))
            return 200, {"got": answer}

        self._do({"verb": dead.FETCHES, "queue": queue}, take)
        return answer

    def bury(self, home: str, key: str, id: str, reason: str, claim: str = "") -> int:
        queue, dead_letters = dead.of_home(home)
        request = {"verb": dead.BURIES, "queue": queue, "to": [dead_letters], "reason": reason}
        request |= {"keys": [key], "ids": [id], "claim": claim}
        return self._do(request, lambda v: (v.bury(queue, id, reason, claim), {}))

    def redrive(self, home: str, ids: dict[str, str]) -> int:
        """Redrive dead letters. ids: by key."""
        queue, dead_letters = dead.of_home(home)
        request = {"verb": dead.REDRIVES, "queue": dead_letters, "to": [queue]}

        def redrive(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, moved = verbs.redrive(dead_letters, list(ids.values()))
            return status, {"moved": moved}

        return self._do(request | {"keys": list(ids), "ids": list(ids.values())}, redrive)

    def set_priority(self, home: str, key: str, id: str, priority: int) -> str:
        """Change the priority of a message; its new id, empty if it was not ready."""
        queue, _ = dead.of_home(home)
        request = {"verb": dead.PRIORITIZES, "queue": queue, "keys": [key], "ids": [id]}
        answer: list[str] = []

        def change(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            status, new_id = verbs.set_priority(queue, id, priority)
            answer.append(new_id)
            return status, {}

        self._do(request | {"priority": priority}, change)
        return answer[0]

    def dedup_send(self, keys: Sequence[str]) -> int:
        sent = [dedup.make(key) for key in keys]
        request = {"verb": dedup.SENDS, "queue": dedup.DUPS, "keys": list(keys)}
        return self._do(request, lambda v: (v.dedup_send(sent), {}))

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        answer: list[Got] = []

        def poll(verbs: Verbs) -> tuple[int, dict[str, Any]]:
            answer.extend(verbs.dedup_poll(count, visibility))
            return 200, {"got": answer}

        self._do({"verb": dedup.POLLS, "queue": dedup.DUPS}, poll)
        return answer

    def dedup_ack(self, ids: Sequence[str]) -> int:
        request = {"verb": dedup.ACKS, "queue": dedup.DUPS, "ids": list(ids)}
        return self._do(request, lambda v: (v.dedup_ack(ids), {}))

    def _do(
        self, request: dict[str, Any], verb: Callable[[Verbs], tuple[int, dict[str, Any]]]
    ) -> int:
        self.number += 1
        which = {"client": self._name, "n": self.number}
        self._write(which | request | {"called": time.monotonic(), "called_wall": time.time()})
        try:
            status, answer = verb(self._verbs)
        except Refused as refused:
            if refused.is_over:
                self._write(which | {"over": time.monotonic()})
            raise
        when = {"answered": time.monotonic(), "answered_wall": time.time()}
        self._write(which | when | {"status": status} | answer)
        return status

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
