"""Verbs of dead letters for clients of the load: over HTTP, or with the embedded library."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPMessage
from urllib.parse import quote, urlencode

from fsmq.spool import Queue, Spool


class BuriesOverHttp(ABC):
    @abstractmethod
    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, HTTPMessage, bytes]: ...

    @abstractmethod
    def create(self, queue: str) -> int: ...

    def prepare_burials(self, queue: str, dead: str) -> int:
        self.create(queue)
        settings = json.dumps({"max_deliveries": 99, "dead_letter_queue": dead}).encode()
        return self.ask("PATCH", f"/{queue}", settings)[0]

    def bury(self, queue: str, id: str, reason: str, claim: str = "") -> int:
        query = urlencode({"bury": "true", "reason": reason})
        return self.ask("PATCH", f"{path_of(queue, id)}?{query}", headers=in_claim(claim))[0]

    def redrive(self, dead: str, ids: Sequence[str]) -> tuple[int, int]:
        body = json.dumps({"ids": list(ids)}).encode()
        status, _, result = self.ask("POST", f"/{dead}/redrive", body)
        return status, json.loads(result)["moved"] if status == 200 else 0

    def set_priority(self, queue: str, id: str, priority: int) -> tuple[int, str]:
        status, _, result = self.ask("PATCH", f"{path_of(queue, id)}?priority={priority}")
        return status, json.loads(result)["id"] if status == 200 else ""


class BuriesInProcess(ABC):
    spool: Spool

    @abstractmethod
    def status(self, verb: Callable[[], object], done: int) -> int: ...

    def prepare_burials(self, queue: str, dead: str) -> int:
        def prepare() -> None:
            opened = self.spool.queue(queue, create=True)
            opened.configure(max_deliveries=99, dead_letter_queue=dead)

        return self.status(prepare, 200)

    def bury(self, queue: str, id: str, reason: str, claim: str = "") -> int:
        opened = Queue(self.spool, queue)
        return self.status(lambda: opened.bury(id, reason, claim=claim or None), 204)

    def redrive(self, dead: str, ids: Sequence[str]) -> tuple[int, int]:
        result = [0]

        def redrive() -> None:
            result[0] = Queue(self.spool, dead).redrive(only=ids).moved

        return self.status(redrive, 200), result[0]

    def set_priority(self, queue: str, id: str, priority: int) -> tuple[int, str]:
        result: list[str] = []

        def change() -> None:
            result.append(Queue(self.spool, queue).set_priority(id, priority))

        return self.status(change, 200), "".join(result)


def in_claim(name: str) -> dict[str, str]:
    """The header that names a claim; no header for "", which means any claim."""
    return {"X-Message-Claim": name} if name else {}


def path_of(queue: str, message_id: str) -> str:
    return f"/{queue}/messages/{quote(message_id)}"
