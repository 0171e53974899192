# Made from ../_async/session.py by `make sync`: change that one.
"""Sessions with a server: what a client, its queues and its workers share."""

from __future__ import annotations

from typing import Self, TypeVar

from ...errors import ConnectionFailed
from ...exchange import Answer, Pause, Verb
from ...options import Options
from ...verbs.queue_verbs import Verbs
from ..connections import Connections

T = TypeVar("T")


class Session:
    """Runs verbs on a server."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.verbs = Verbs(options)
        self._connections = Connections(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a later request opens one again."""
        self._connections.close()

    def run(self, verb: Verb[T]) -> T:
        """Drive a verb to its result."""
        answer: Answer | None = None
        failed: ConnectionFailed | None = None
        while True:
            try:
                asked = verb.send(answer) if failed is None else verb.throw(failed)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = failed = None
            if isinstance(asked, Pause):
                self._connections.pause(asked.seconds)
                continue
            try:
                answer = self._connections.send(asked)
            except ConnectionFailed as error:
                failed = error
