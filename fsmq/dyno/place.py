"""Where the shards are: what dyno-queues need from a spool or a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from fsmq.spool import Message, NewMessage


class Sizes(NamedTuple):
    """How many messages of a shard wait (ready, delayed or new), and how many are unacked."""

    size: int
    unacked: int


class Place(Protocol):
    """A spool, or a server. All verbs are durable when they return, and raise FsmqError."""

    @property
    def node(self) -> str:
        """The name of this host, or of the server's."""

    def queues(self) -> list[str]: ...

    def create(self, queue: str, visibility: float) -> None:
        """Create a shard if it is missing, and set its visibility timeout."""

    def configure(self, queue: str, changes: Mapping[str, Any]) -> None: ...

    def delete(self, queue: str) -> None: ...

    def beat(self, zone: str) -> None:
        """Tell others that a zone has a consumer."""

    def zones(self) -> list[str]:
        """The zones that are alive."""

    def upsert(self, messages: Mapping[str, Sequence[NewMessage]]) -> None:
        """Put messages by queue; in a spool all or none."""

    def ensure(self, queue: str, message: NewMessage, among: Sequence[str]) -> bool:
        """Put a message unless one of the queues ``among`` has its id."""

    def claim(self, queue: str, count: int) -> list[Message]: ...

    def claim_id(self, queue: str, given_id: str) -> Message | None: ...

    def find(self, queue: str, given_id: str) -> Message | None: ...

    def ack(self, queue: str, ids: Sequence[str], names: Mapping[str, str]) -> list[bool]: ...

    def remove(self, queue: str, given_id: str) -> bool: ...

    def renew(self, queue: str, given_id: str, visibility: float) -> bool: ...

    def postpone(
        self, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
    ) -> bool: ...

    def peek(self, queue: str, count: int, state: str, after: str) -> list[Message]: ...

    def scan(
        self,
        queue: str,
        states: Sequence[str],
        *,
        sorted_by_name: bool,
        is_over: Callable[[], bool],
    ) -> Iterator[Message]: ...

    def counts(self, queue: str) -> Sizes: ...

    def purge(self, queue: str) -> None: ...

    def deliver(self) -> None:
        """Redeliver messages that are due now; on a server, where the mover does so, do nothing."""

    def wait(self, queues: Sequence[str], count: int, seconds: float) -> list[Message]:
        """Wait until a message may have come to one of the queues, or the time is over.

        This can already claim up to ``count`` messages of the first queue, and returns them.
        """

    def rebalancing(self, queues: Sequence[str]) -> AbstractContextManager[None]:
        """Within it no other move between these queues is under way.

        On a server another client can still begin one.
        """

    def move(self, source: str, target: str, count: int) -> int:
        """Move ``count`` messages with ids and timers, none in flight; how many moved."""
