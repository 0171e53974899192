"""Clients that post and fetch while mq is restarted, and never retry.

``python -m tests.http.load URL QUEUE EMPTY_QUEUE`` has them at work until its input ends, then
prints their results; for each line of input it prints how many messages were stored so far.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.http.helpers import Answer, Wire

_PATIENCE_S = 30.0


@dataclass
class Load:
    """The clients and their results.

    stored: the ids of messages whose post was answered with 201.
    fetched: what fetches from a queue without messages were answered.
    lost: requests without the answer that they should have had.
    over: set to let each client end with the request that it is at.
    waiting: the connection of the fetch that has been sent last.
    """

    url: str
    queue: str
    empty_queue: str
    stored: list[str] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    waiting: Wire | None = None

    def fresh(self, name: str) -> None:
        """Post, each time on a new connection."""
        n = 0
        while not self.over.is_set():
            n += 1
            with Wire(self.url, _PATIENCE_S) as wire:
                self._post(wire, f"{name}-{n}")

    def kept(self, name: str) -> None:
        """Post on one connection as long as the server does not announce its end."""
        n = 0
        while not self.over.is_set():
            with Wire(self.url, _PATIENCE_S) as wire:
                ends = False
                while not ends and not self.over.is_set():
                    n += 1
                    ends = self._post(wire, f"{name}-{n}").headers["Connection"] == "close"

    def polling(self, name: str) -> None:
        """Wait for messages in a queue that gets none, so that every restart finds it waiting."""
        while not self.over.is_set():
            with Wire(self.url, _PATIENCE_S) as wire:
                wire.request("GET", f"/{self.empty_queue}/messages?wait=20")
                self.waiting = wire
                status = wire.answer().status
                self.waiting = None
                self.fetched.append(status)

    def one_waits(self) -> bool:
        """Whether the server has read a fetch that it has not answered."""
        waiting = self.waiting
        return waiting is not None and waiting.is_read()

    def _post(self, wire: Wire, own: str) -> Answer:
        answer = wire.ask("POST", f"/{self.queue}/messages?id={own}", {}, b"x")
        assert answer.status == 201, f"{own}: {answer}"
        self.stored.append(own)
        return answer

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have all kinds of clients at work."""
        kinds = (self.fresh, self.fresh, self.fresh, self.kept, self.kept, self.kept, self.polling)
        clients = [
            threading.Thread(target=self._watched, args=(kind, f"c{number}"))
            for number, kind in enumerate(kinds)
        ]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self.over.set()
            for client in clients:
                client.join()

    def _watched(self, client: Callable[[str], None], name: str) -> None:
        try:
            client(name)
        except (OSError, AssertionError) as error:
            self.lost.append(f"{client.__name__}: {type(error).__name__}: {error}")


def _main(url: str, queue: str, empty_queue: str) -> None:
    load = Load(url, queue, empty_queue)
    with load.running():
        while sys.stdin.readline():  # one line for each line of input
            print(len(load.stored), flush=True)
        load.over.set()
    print(json.dumps({"stored": load.stored, "fetched": load.fetched, "lost": load.lost}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
