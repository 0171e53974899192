"""Client processes of a mixed load, which record what they do."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from tests.power.recorder import Recorder
from tests.power.reuse import CARRYING, PLAIN
from tests.power.verbs import InProcess, OverHttp, Refused, Verbs

T = TypeVar("T")

# Queues that all clients share; any client may purge BUSY.
MAIN, BUSY, FAN = "main", "busy", "fan"
TOPIC = "news"  # MAIN and FAN are subscribed to it
MIXED = {
    "post": 26,
    "post_own": 8,
    "retry": 5,
    "batch": 5,
    "publish": 5,
    "fetch": 15,
    "hang_up": 4,
    "renew": 5,
    "release": 5,
    "late": 3,
    "delete": 12,
    "delete_any": 4,
    "brief": 2,
    "purge": 2,
    "purge_busy": 1,
    "configure": 2,
    "move": 2,
    "bury": 3,
    "redrive": 2,
    "set_priority": 2,
    "send_dups": 6,
    "poll_dups": 4,
    "ack_dups": 4,
}
"""The weights of actions."""
CONTENDED = {
    "post_own": 12,
    "retry": 4,
    "fetch": 16,
    "hang_up": 20,
    "renew": 3,
    "release": 2,
    "late": 4,
    "delete": 8,
    "delete_any": 8,
}
"""The weights where many clients compete for few messages, with claims as short as a sync."""
_SIZES = (0, 10, 100, 1000, 5000, 70_000)
_SIZE_WEIGHTS = (2, 6, 6, 4, 3, 1)
_DELAYS = (None, None, None, None, 0.2, 300.0)
# The shortest claims end before they are synced.
_HOLDS = (0.02, 0.1, 0.3, 60.0, 600.0)
_PAUSE_S = 0.02
_LONGEST_TO_HANG_UP_S = 0.05


class Retry(NamedTuple):
    """A put with an own id whose result is unknown."""

    queue: str
    own: str
    key: str
    size: int
    attempt: int


class Worker:
    """A client that acts for ever."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        weights: Mapping[str, int],
        mine: Sequence[tuple[str, str]] = (),
        held: Sequence[tuple[str, str, str]] = (),
        held_dups: Sequence[str] = (),
        buriable: Mapping[str, str] | None = None,
    ) -> None:
        self._do = recorder
        self._name = name
        self._home = name.partition("-")[0]
        self._actions = list(weights)
        self._weights = list(weights.values())
        self._chance = random.Random(name)
        self._posted = self._done = 0
        self._mine = list(mine)  # queues and ids
        self._held = list(held)  # queues, ids and names of claims
        self._retries: list[Retry] = []
        self._moved = (f"here-{self._home}", f"there-{self._home}")
        self._dups: list[str] = []  # recently sent to the dedup queue
        self._held_dups = list(held_dups)
        # Ids of messages that can be buried, or are buried, by key.
        self._buriable = dict(buriable or {})
        self._buried: dict[str, str] = {}

    def run(self) -> None:
        while True:
            [action] = self._chance.choices(self._actions, self._weights)
            before = self._do.number
            try:
                getattr(self, action)()
                refused = False
            except Refused:
                refused = True
            if refused or self._do.number == before:
                time.sleep(_PAUSE_S)  # a daemon is down, or the action had nothing to act on

    def post(self) -> None:
        queue, rich = self._queue(), self._chance.random() < 0.2
        delay = self._chance.choice(_DELAYS)
        message_id = self._do.post(queue, self._key(), self._size(), delay=delay, rich=rich)
        self._mine.append((queue, message_id))

    def post_own(self) -> None:
        """Post with an id that this client or another may have used before."""
        own = self._chance.choice((*PLAIN, *CARRYING))
        self._post_own(Retry(self._queue(), own, self._key(), self._size(), 0))

    def retry(self) -> None:
        """Retry a post whose result is unknown, with the same content or another."""
        if self._retries:
            retry = self._retries[-1]
            change = self._chance.random()
            if change < 0.4:
                retry = retry._replace(attempt=retry.attempt + 1)
            elif change < 0.7:
                retry = retry._replace(key=self._key(), size=self._size(), attempt=0)
            self._post_own(retry)
            self._retries.pop()

    def _post_own(self, post: Retry) -> None:
        try:
            message_id = self._do.post_own(*post, delay=self._chance.choice(_DELAYS))
        except Refused:
            self._retries.append(post)
            raise
        if message_id:
            self._mine.append((post.queue, message_id))

    def batch(self) -> None:
        keys = [self._key() for _ in range(self._chance.randint(2, 20))]
        queue = self._queue()
        self._mine += [(queue, one) for one in self._do.batch(queue, keys, self._size())]

    def publish(self) -> None:
        self._do.publish(TOPIC, (MAIN, FAN), self._key(), self._size())

    def fetch(self) -> None:
        queue, count = self._queue(), self._chance.choice((1, 1, 1, 5))
        for got in self._do.fetch(queue, count, self._chance.choice(_HOLDS)):
            self._held.append((queue, got.id, got.claim))

    def hang_up(self) -> None:
        """Fetch and hang up, perhaps while the claim is being synced."""
        patience = self._chance.uniform(0.0, _LONGEST_TO_HANG_UP_S)
        self._do.hang_up(self._queue(), self._chance.choice(_HOLDS), patience)

    def renew(self) -> None:
        if self._held:
            queue, message_id, claim = self._chance.choice(self._held)
            hold = self._chance.choice(_HOLDS)
            self._do.renew(queue, message_id, hold, self._named(claim))

    def release(self) -> None:
        if self._held:
            queue, message_id, claim = self._take(self._held)
            self._do.release(queue, message_id, self._named(claim))

    def late(self) -> None:
        """Release a message, and then use its claim, which has ended."""
        if self._held:
            queue, message_id, claim = self._take(self._held)
            self._do.release(queue, message_id, claim)
            action = self._chance.choice(("renew", "release", "delete"))
            if action == "renew":
                self._do.renew(queue, message_id, 60.0, claim)
            else:
                getattr(self._do, action)(queue, message_id, claim)

    def delete(self) -> None:
        if self._held:
            queue, message_id, claim = self._take(self._held)
            self._do.delete(queue, message_id, self._named(claim))

    def _named(self, claim: str) -> str:
        """The name of a claim, or sometimes "", which means any claim."""
        return claim if self._chance.random() < 0.6 else ""

    def delete_any(self) -> None:
        """Delete a message that this client has posted, in any state."""
        if self._mine:
            self._do.delete(*self._take(self._mine))

    def purge_busy(self) -> None:
        """Purge a queue while all clients use it."""
        self._do.purge(BUSY)

    def brief(self) -> None:
        """Create a queue, fill it and delete it."""
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
        """Fill a queue and move its messages to another."""
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

    def post_buriable(self) -> None:
        key = self._key()
        self._buriable[key] = self._do.post_buriable(self._home, key, self._size())

    def bury(self) -> None:
        if self._chance.random() < 0.5 or not self._buriable:
            self.post_buriable()
        self.bury_one()

    def bury_one(self) -> None:
        for got in self._do.take(self._home):
            key = got.content
            if key is None or self._buriable.pop(key, None) is None:
                continue  # an unanswered action on it may still be carried out
            claim, reason = self._named(got.claim), f"why {self._key()}"
            if self._do.bury(self._home, key, got.id, reason, claim) == 204:
                self._buried[key] = got.id

    def redrive(self) -> None:
        count = min(len(self._buried), self._chance.randint(1, 3))
        chosen = dict([self._buried.popitem() for _ in range(count)])
        if chosen and self._do.redrive(self._home, chosen) == 200:
            self._buriable |= chosen

    def set_priority(self) -> None:
        if not self._buriable:
            self.post_buriable()
        key = self._chance.choice(list(self._buriable))
        message_id = self._buriable.pop(key)
        new_id = self._do.set_priority(self._home, key, message_id, self._chance.randint(0, 99))
        self._buriable[key] = new_id or message_id

    def send_dups(self) -> None:
        """Send new messages, and one again that may still be in the queue."""
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
        """Whether this was done fewer times: much work makes a filesystem commit by itself."""
        self._done += 1
        return self._done <= times

    def _fill(self, queue: str) -> None:
        self._do.create(queue)
        for _ in range(self._chance.randint(0, 3)):
            self._do.post(queue, self._key(), 10)
        self._do.fetch(queue, 1, 600.0)

    def _take(self, things: list[T]) -> T:
        return things.pop(self._chance.randrange(len(things)))

    def _queue(self) -> str:
        return self._chance.choice((MAIN, BUSY))

    def _size(self) -> int:
        return self._chance.choices(_SIZES, _SIZE_WEIGHTS)[0]

    def _key(self) -> str:
        self._posted += 1
        return f"{self._name}-{self._posted}"


def main(
    program: str, name: str, target: str, sync: str, events: str, weights: str, known: str
) -> None:
    """Work until killed.

    name: of the client, ``<home>-<anything>``; each home has its own queues.
    target: the URL of mq, or the root for ``library``.
    known: JSON of the messages that it has posted and holds.
    """
    file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    verbs: Verbs = OverHttp(target) if program == "http" else InProcess(target, sync)
    Worker(Recorder(verbs, name, file), name, json.loads(weights), **json.loads(known)).run()
