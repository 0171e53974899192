"""What the suite asks of a dialect, or of a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from fsmq import Spool
from tests.http.helpers import Answer


class Claimed(NamedTuple):
    """A message as a dialect gives it. handle: what it is acknowledged and renewed by."""

    handle: str
    body: str


class Line(Protocol):
    """What carries requests, one after the other, and brings their answers in that order."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *of: object) -> None: ...
    def begin(self, asked: Any) -> None: ...
    def is_read(self) -> bool:
        """Whether all that was sent has begun."""

    def answer(self) -> Answer: ...


class Speaker(ABC):
    """One dialect, as a client with a key speaks it.

    name: of the dialect. lacks: what it has no request for, and why: a claim that waits
    ("waiting"), that is made longer ("renewal"), or that says for how long it is ("visibility",
    else the queue does); keys ("keys"); a client that hangs up ("hanging up"); messages of other
    dialects ("sharing").
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
        """The queues of the spool in which the messages of a queue lie."""
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
