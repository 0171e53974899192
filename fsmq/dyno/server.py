"""Shards on a server, through a client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fsmq.client._sync.client import Client
from fsmq.client.by_id import ByIdVerbs, ClientIndexed
from fsmq.client.verbs.moves import MoveVerbs
from fsmq.spool import Message, NewMessage, NoSuchQueue
from fsmq.spool.arguments import untold

from .place import Sizes

STATES = ("new", "ready", "delayed", "in_flight")
_PAGE = 200
_ASK_AGAIN_S = 0.1
_LONGEST_WAIT_S = 60.0


class Server:
    """A :class:`~fsmq.dyno.place.Place` on a server; a verb is one request for each shard."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._verbs = ByIdVerbs(client.verbs)

    @property
    def node(self) -> str:
        return self.client.run(self._verbs.zones())[1]

    def queues(self) -> list[str]:
        return self.client.queues()

    def create(self, queue: str, visibility: float) -> None:
        self.client.create_queue(queue, index=True)
        if self.client.queue(queue).settings().visibility_timeout != visibility:
            self.configure(queue, {"visibility_timeout": visibility})

    def configure(self, queue: str, changes: Mapping[str, Any]) -> None:
        self.client.queue(queue).configure(**changes)

    def delete(self, queue: str) -> None:
        self.client.delete_queue(queue)

    def beat(self, zone: str) -> None:
        self.client.run(self._verbs.beat(zone))

    def zones(self) -> list[str]:
        return self.client.run(self._verbs.zones())[0]

    def upsert(self, messages: Mapping[str, Sequence[NewMessage]]) -> None:
        """All or none for each shard."""
        for queue, batch in messages.items():
            self._indexed(queue).upsert(batch)

    def ensure(self, queue: str, message: NewMessage, among: Sequence[str]) -> bool:
        return self._indexed(queue).ensure(message, among=[q for q in among if q != queue])

    def claim(self, queue: str, count: int, wait: float = 0.0) -> list[Message]:
        with suppress(NoSuchQueue):  # it was retired just now
            return list(self.client.queue(queue).claim(count, wait=wait))
        return []

    def claim_id(self, queue: str, given_id: str) -> Message | None:
        with suppress(NoSuchQueue):
            return self._indexed(queue).claim(given_id)
        return None

    def find(self, queue: str, given_id: str) -> Message | None:
        with suppress(NoSuchQueue):
            return self._indexed(queue).find(given_id)
        return None

    def ack(self, queue: str, ids: Sequence[str], names: Mapping[str, str]) -> list[bool]:
        with suppress(NoSuchQueue):
            return self._indexed(queue).ack(*ids, names=names)
        return [False] * len(ids)

    def remove(self, queue: str, given_id: str) -> bool:
        with suppress(NoSuchQueue):
            return self._indexed(queue).remove(given_id)[0]
        return False

    def renew(self, queue: str, given_id: str, visibility: float) -> bool:
        with suppress(NoSuchQueue):
            return self._indexed(queue).renew(given_id, visibility)
        return False

    def postpone(
        self, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
    ) -> bool:
        with suppress(NoSuchQueue):
            return self._indexed(queue).postpone(given_id, delay, attributes)
        return False

    def peek(self, queue: str, count: int, state: str, after: str) -> list[Message]:
        with suppress(NoSuchQueue):
            return self.client.queue(queue).peek(count, state=state, after=after)
        return []

    def scan(
        self,
        queue: str,
        states: Sequence[str],
        *,
        sorted_by_name: bool,
        is_over: Callable[[], bool],
    ) -> Iterator[Message]:
        """Page by page, always in the order of names."""
        for state in states or STATES:
            after = ""
            while page := self.peek(queue, _PAGE, state, after):
                for message in page:
                    if is_over():
                        return
                    yield message
                after = page[-1].id

    def counts(self, queue: str) -> Sizes:
        with suppress(NoSuchQueue):
            counts = self.client.queue(queue).counts()
            return Sizes(counts.total - counts.in_flight, counts.in_flight)
        return Sizes(0, 0)

    def purge(self, queue: str) -> None:
        self.client.queue(queue).purge()

    def deliver(self) -> None:
        """The server's mover does so."""

    def wait(self, queues: Sequence[str], count: int, seconds: float) -> list[Message]:
        """Let the server wait, for messages of the first queue."""
        began = time.monotonic()
        claimed = self.claim(queues[0], count, min(seconds, _LONGEST_WAIT_S))
        if not claimed and time.monotonic() - began < min(seconds / 2, _ASK_AGAIN_S):
            time.sleep(min(seconds / 2, _ASK_AGAIN_S))  # the queue is gone: do not ask in a spin
        return claimed

    @contextmanager
    def rebalancing(self, queues: Sequence[str]) -> Iterator[None]:
        """Waits for the moves under way; others can still begin new ones."""
        while any(
            move.status == "in_progress" and {move.source, move.target} <= {*queues}
            for move in self.client.moves()
        ):
            time.sleep(_ASK_AGAIN_S)
        yield

    def move(self, source: str, target: str, count: int) -> int:
        verbs = MoveVerbs(self.client.verbs)
        move = verbs.move(source, target, None, False, untold, delayed=True, count=count)
        return self.client.run(move).moved

    def _indexed(self, queue: str) -> ClientIndexed:
        return ClientIndexed(self.client, queue)
