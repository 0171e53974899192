"""The interface of a dialect or library to the tests of conformance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from fsmq import Spool
from tests.http.helpers import Answer


class Claimed(NamedTuple):
    """A claimed message. handle: for its acknowledgement and renewal."""

    handle: str
    body: str


class Line(Protocol):
    """A connection: requests one after the other, and answers in their order."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *of: object) -> None: ...
    def begin(self, asked: Any) -> None: ...
    def is_read(self) -> bool:
        """Whether all requests that were sent have begun."""

    def answer(self) -> Answer: ...


class Speaker(ABC):
    """One dialect, spoken by a client with a key.

    name: of the dialect. lacks: missing features, and why: claims that wait ("waiting"), renewals
    ("renewal"), claims with their own visibility timeout ("visibility"), keys ("keys"), clients
    that hang up ("hanging up"), and messages of other dialects ("sharing").
    """

    name: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, url: str, key: str, spool: Spool) -> None:
        self.url = url
        self.key = key
        self.spool = spool

    @abstractmethod
    def put(self, queue: str, body: str) -> Any: ...

    @abstractmethod
    def claim(self, queue: str, visibility: int, wait: int) -> Any: ...

    @abstractmethod
    def claimed(self, answer: Answer) -> list[Claimed]: ...

    @abstractmethod
    def ack(self, queue: str, handle: str) -> Any: ...

    @abstractmethod
    def renew(self, queue: str, handle: str, visibility: int) -> Any: ...

    @abstractmethod
    def line(self) -> Line: ...

    def folders(self, queue: str) -> tuple[str, ...]:
        """The queues of the spool that have the messages of a queue."""
        return (queue,)

    def make(self, queue: str) -> None:
        for folder in self.folders(queue):
            self.spool.create_queue(folder)

    def ask(self, asked: Any) -> Answer:
        with self.line() as line:
            line.begin(asked)
            return line.answer()

    def take(self, queue: str, visibility: int = 60, wait: int = 0) -> list[Claimed]:
        """Claim one message, or none."""
        return self.claimed(self.ask(self.claim(queue, visibility, wait)))
