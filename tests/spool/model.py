"""A model of a spool, as dictionaries. The state machines compare it with a real spool.

It has the messages of each queue with their states, and knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fsmq.spool import DuplicateMessage, NoSuchMessage, State
from fsmq.spool.layout import names

NEW, READY, DELAY = State.NEW, State.READY, State.DELAY
DEAD = "dead"  # the dead-letter queue of all queues that have one
FACTOR, MOST_S = 2.0, 10.0  # of backoffs


@dataclass(eq=False)
class Fact:
    """One message. The next message of its id is another Fact."""

    body: bytes
    state: State = READY
    deliveries: int = 0
    deadline: float | None = None  # Unix seconds; None: it has no stamp
    headers: tuple[str | None, dict[str, str]] = (None, {})
    buried_from: str | None = None  # the queue of its last burial
    waits: bool = False  # its claim has ended, and it waits for its backoff

    def is_claimed(self) -> bool:
        return self.state is DELAY and self.deliveries > 0 and not self.waits


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _apart(before: float | None, deadline: float) -> float:
    """A deadline whose last two digits differ from those before."""
    if before is None or (_ms(before) - _ms(deadline)) % 100:
        return deadline
    return (_ms(deadline) + 1) / 1000


def _alike(before: float, deadline: float) -> float:
    """A deadline with the last two digits of the one before, which name a claim."""
    return (_ms(deadline) + (_ms(before) - _ms(deadline)) % 100) / 1000


@dataclass
class Model:
    """One queue of the model."""

    messages: dict[str, Fact] = field(default_factory=dict)
    max_deliveries: int | None = None
    retry_backoff: float | None = None
    max_in_flight: int | None = None
    paused_until: float = 0.0

    def forget_settings(self) -> None:
        self.max_deliveries = self.retry_backoff = self.max_in_flight = None
        self.paused_until = 0.0

    def ids(self, *states: State) -> list[str]:
        return sorted(i for i, fact in self.messages.items() if fact.state in states)

    def holds(self, own: str, *, beside: str = "") -> bool:
        """Whether a message of an own id is in the queue, under any name but ``beside``."""
        return not (self.messages.keys() - {beside}).isdisjoint(names.siblings(own))

    def is_used_up(self, fact: Fact) -> bool:
        return self.max_deliveries is not None and fact.deliveries >= self.max_deliveries


class Models:
    """All queues of the model."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.queues: dict[str, Model] = {}

    def is_expired(self, message_id: str) -> bool:
        expires = names.facts(message_id).expires_s
        return expires is not None and expires <= self.clock()

    def deadline(self, seconds: float) -> float:
        """The time in this many seconds, to the millisecond."""
        return round(self.clock() + seconds, 3)

    def put(
        self, body: bytes, delay: float | None, headers: tuple[str | None, dict[str, str]]
    ) -> Fact:
        """A message that has just been put."""
        if not delay:
            return Fact(body, headers=headers)
        return Fact(body, DELAY, deadline=self.deadline(delay), headers=headers)

    def take(self, name: str, message_id: str, visibility: float) -> Fact:
        """Claim a message, or renew its claim."""
        fact = self.queues[name].messages[message_id]
        fact.deadline = self.next_deadline(fact, visibility)
        if fact.state is not DELAY or fact.waits:
            fact.state, fact.deliveries = DELAY, min(fact.deliveries + 1, 99)
        fact.waits = False
        return fact

    def may_be_claimed(self, name: str) -> int:
        """How many more messages may be claimed now."""
        model = self.queues[name]
        if model.paused_until > self.clock():
            return 0
        if model.max_in_flight is None:
            return len(model.messages)
        held = [f for f in model.messages.values() if f.is_claimed() and self.is_hidden(f)]
        return max(0, model.max_in_flight - len(held))

    def is_hidden(self, fact: Fact) -> bool:
        return fact.deadline is not None and fact.deadline > self.clock()

    def next_deadline(self, fact: Fact, visibility: float) -> float:
        """A renewal keeps the last two digits, which name its claim; a new claim changes them."""
        asked, before = self.deadline(visibility), fact.deadline
        if before is None:
            return asked
        if fact.state is DELAY and not fact.waits:
            return _alike(before, asked) if fact.deliveries else asked
        return _apart(before, asked) if fact.deliveries == 99 or before < 0.1 else asked

    def end_claim(self, fact: Fact) -> None:
        """End the claim: of its deadline only the digits remain, in 1970."""
        if fact.deliveries and fact.deadline is not None:
            fact.deadline = _ms(fact.deadline) % 100 / 1000
        else:
            fact.deadline = self.clock()
        fact.waits = False

    def put_off(self, name: str, message_id: str, delay: float) -> None:
        """Release with a delay: the claim ends, and the message waits as for a backoff."""
        fact, deadline = self.queues[name].messages[message_id], self.deadline(delay)
        if fact.deliveries and fact.deadline is not None:
            fact.deadline, fact.waits = _alike(fact.deadline, deadline), True
        else:
            fact.deadline = deadline

    def end(self, name: str, message_id: str) -> None:
        """End a claim or a delay of a message that is not buried: it waits, or is ready."""
        model, fact = self.queues[name], self.queues[name].messages[message_id]
        first = model.retry_backoff
        if first is None or fact.deadline is None or not fact.is_claimed():
            fact.state = READY
            return
        wait = min(MOST_S, first * FACTOR ** (fact.deliveries - 1))
        fact.deadline, fact.waits = _alike(fact.deadline, self.deadline(wait)), True

    def claim(self, name: str, count: int, visibility: float) -> list[str]:
        """Claim the first ready messages, and remove expired ones on the way."""
        claimed: list[str] = []
        model = self.queues[name]
        for message_id in model.ids(READY):
            if len(claimed) == count or not self.may_be_claimed(name):
                break
            if self.is_expired(message_id):
                del model.messages[message_id]
                continue
            self.take(name, message_id, visibility)
            claimed.append(message_id)
        return claimed

    def is_claim(self, name: str, message_id: str, fact: Fact, deadline: float, count: int) -> bool:
        """Whether the claim that set this deadline and count still holds the message."""
        now = self.queues[name].messages.get(message_id) if name in self.queues else None
        is_held = now is fact and fact.state is DELAY
        return is_held and (fact.deadline, fact.deliveries) == (deadline, count)

    def bury(self, name: str, message_id: str) -> bool:
        """Move to the dead letters; False if a message of its id is there."""
        dead = self.queues.setdefault(DEAD, Model())
        if message_id in dead.messages:
            return False
        fact = dead.messages[message_id] = self.queues[name].messages.pop(message_id)
        self.end_claim(fact)
        fact.state, fact.deliveries = READY, 0
        fact.buried_from = name
        return True

    def redrive(self, name: str, to: str | None) -> tuple[int, int, int]:
        """Move ready messages to a queue or to their origin.

        Returns how many moved, how many conflict, and how many have no origin.
        """
        moved = conflicts = no_origin = 0
        for message_id in self.queues[name].ids(READY):
            fact = self.queues[name].messages[message_id]
            target = to or fact.buried_from
            if target is None or target == name or target not in self.queues:
                no_origin += 1
            elif message_id in self.queues[target].messages:
                conflicts += 1
            else:
                self.queues[target].messages[message_id] = self.queues[name].messages.pop(
                    message_id
                )
                if fact.deliveries:
                    self.end_claim(fact)
                    fact.deliveries = 0
                moved += 1
        return moved, conflicts, no_origin

    def set_priority(self, name: str, message_id: str, new_id: str) -> type[Exception] | None:
        """Give a message another name; the error if that is impossible."""
        model = self.queues[name]
        fact = model.messages.get(message_id)
        if fact is not None and fact.state is NEW:  # it is delivered first
            ahead = fact.deadline is not None and fact.deadline > self.clock()
            fact.state = DELAY if ahead else READY
        if fact is None or fact.state is not READY:
            return NoSuchMessage
        if new_id != message_id and model.holds(new_id, beside=message_id):
            return DuplicateMessage
        fact.waits = False
        model.messages[new_id] = model.messages.pop(message_id)
        return None

    def move(
        self,
        source: str,
        to: str,
        states: set[State],
        is_moved: Callable[[str], bool] = lambda message_id: True,
    ) -> tuple[int, int]:
        """Move the messages in these states; how many moved, and how many conflict."""
        moved = conflicts = 0
        for message_id in filter(is_moved, self.queues[source].ids(*states)):
            if message_id in self.queues[to].messages:
                conflicts += 1
                continue
            fact = self.queues[source].messages.pop(message_id)
            self.queues[to].messages[message_id] = fact
            fact.state = READY if fact.state is DELAY else fact.state
            moved += 1
        return moved, conflicts

    # -- the mover ---------------------------------------------------------------------------------

    def deliver(self, is_left: Callable[[str, str], bool] = lambda name, message_id: False) -> None:
        """Do the work of a mover. It skips the new messages of which ``is_left`` is true."""
        for name, model in list(self.queues.items()):
            for message_id in model.ids(NEW):
                if not is_left(name, message_id):
                    self.deliver_new(name, message_id)
        for name, message_id in list(self._delayed()):
            self._end_timer(name, message_id)

    def _delayed(self) -> Iterator[tuple[str, str]]:
        for name, model in self.queues.items():
            yield from ((name, message_id) for message_id in model.ids(DELAY))

    def deliver_new(self, name: str, message_id: str) -> None:
        fact = self.queues[name].messages[message_id]
        if self.is_expired(message_id):
            del self.queues[name].messages[message_id]
        else:
            ahead = fact.deadline is not None and fact.deadline > self.clock()
            fact.state = DELAY if ahead else READY

    def _end_timer(self, name: str, message_id: str) -> None:
        model = self.queues[name]
        fact = model.messages[message_id]
        if fact.deadline is not None and fact.deadline > self.clock():
            return
        if self.is_expired(message_id):
            del model.messages[message_id]
        elif not (model.is_used_up(fact) and self.bury(name, message_id)):
            self.end(name, message_id)
