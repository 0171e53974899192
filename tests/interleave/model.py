"""A model of a spool: worlds, and the effects of operations on them.

A world has queues and messages, each with its state. There are several possible worlds where the
order of events is unknown. An operation has effects, each of which happens at one instant between
request and answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

DEAD = "dead"  # the queue that takes dead letters


class Message(NamedTuple):
    """A stored message. Operations are given by their numbers; 0: none.

    id: "" while it is unknown. until: hidden until then, in Unix milliseconds; 0: not hidden. by:
    its last claim. count: of claims. put: the operation that put it, moved: that moved it last.
    claims: all claims of it. named: the claim that can still be named. waits: its claim has ended,
    and it waits for its backoff.
    """

    body: bytes
    queue: str
    id: str
    until: int
    by: int
    count: int
    put: int
    moved: int = 0
    claims: frozenset[int] = frozenset()
    named: int = 0
    waits: bool = False

    def claimed(self, by: int, until: int) -> Message:
        claims = self.claims | {by}
        return self._replace(
            until=until, by=by, count=self.count + 1, claims=claims, named=by, waits=False
        )

    def waiting(self, until: int) -> Message:
        """The message after the end of its claim; its time keeps the last digits of the claim."""
        until += (self.until - until) % 100
        return self._replace(until=until, by=0, named=0, waits=True)

    @property
    def key(self) -> tuple[int, bytes]:
        """The identity of the message."""
        return self.put, self.body


State = Any  # the effects that an operation still has to have; hashable


class Known(NamedTuple):
    """Settings of a queue. wait: its `retry_backoff`."""

    max_depth: int | None
    wait: float | None


class World(NamedTuple):
    """A state of the spool, and the states of the operations that are under way."""

    queues: frozenset[str]
    messages: frozenset[Message]
    settings: frozenset[tuple[str, Known]] = frozenset()
    subscribed: frozenset[tuple[str, str]] = frozenset()  # topic, queue
    states: tuple[tuple[int, State], ...] = ()

    def __str__(self) -> str:
        messages = [
            f"{m.body.decode()} in {m.queue}:{m.id}"
            f"{f' until {m.until % 10**6}' if m.until else ''} count {m.count}"
            for m in sorted(self.messages)
        ]
        return f"{', '.join(messages) or 'nothing'}; queues {sorted(self.queues)}"

    def state(self, number: int) -> State:
        return next(state for of, state in self.states if of == number)

    def with_state(self, number: int, state: State) -> World:
        others = [(of, left) for of, left in self.states if of != number]
        return self._replace(states=tuple(sorted([*others, (number, state)], key=lambda s: s[0])))

    def without_state(self, number: int) -> World:
        return self._replace(states=tuple(s for s in self.states if s[0] != number))

    def has_waits(self, queue: str) -> bool:
        return any(of == queue and known.wait for of, known in self.settings)

    def may_be_claimed(self, m: Message, now: int) -> bool:
        """Whether it is free. After the end of a claim it may have to wait for its backoff."""
        owes = m.until and m.count and not m.waits and self.has_waits(m.queue)
        return m.until <= now and not owes

    def within(self, queue: str) -> Iterator[Message]:
        return (m for m in self.messages if m.queue == queue)

    def named(self, queue: str, message_id: str) -> Iterator[Message]:
        """The messages of an id: one, or two if a concurrent move has brought another."""
        return (m for m in self.messages if m.queue == queue and m.id == message_id)

    def changed(self, old: Message, **changes: Any) -> World:
        return self.replaced(old, old._replace(**changes))

    def replaced(self, old: Message, new: Message) -> World:
        return self._replace(messages=self.messages - {old} | {new})

    def dropped(self, *old: Message) -> World:
        return self._replace(messages=self.messages - set(old))


Effect = Callable[[World, int], Iterable[World]]  # the worlds after it; none: impossible


@dataclass(eq=False)
class Operation:
    """An operation and its effects.

    must: effects that have happened before the answer. once: effects that may happen. often:
    effects that may happen any number of times. at_end: a condition at the time of the answer.
    lingers: it has no answer, so its effects may happen at any later time, too.
    """

    number: int
    text: str
    answer: str = ""
    must: list[Effect] = field(default_factory=list)
    once: list[Effect] = field(default_factory=list)
    often: list[Effect] = field(default_factory=list)
    at_end: Callable[[World], bool] = lambda world: True
    lingers: bool = False
    clocks: list[int] = field(default_factory=list)  # Unix ms: the times that it may have read
    error: str = ""

    def __str__(self) -> str:
        return f"{self.text} -> {self.error or self.answer}"

    def begin(self, world: World) -> State:
        return frozenset(range(len(self.must) + len(self.once)))

    def steps(self, world: World, state: State, now: int) -> Iterator[tuple[World, State]]:
        effects = self.must + self.once
        for index in state:
            for after in effects[index](world, now):
                yield after, state - {index}
        for effect in self.often:
            for after in effect(world, now):
                yield after, state

    def is_over(self, world: World, state: State) -> bool:
        return all(index >= len(self.must) for index in state) and self.at_end(world)


class Clearing(Operation):
    """Removes all messages that a queue has at its start, and maybe some that come meanwhile.

    With ``drops`` the queue itself is removed at one instant, with all its messages. If it fails,
    the queue did not exist at one instant, and messages may have been removed; but nothing happens
    if it failed because of a lock.
    """

    queue = ""
    drops = False

    def begin(self, world: World) -> State:
        if self._is_kept_out:
            return frozenset(), False
        return frozenset() if self.error else self._there(world), self.drops or bool(self.error)

    @property
    def _is_kept_out(self) -> bool:
        return self.error.startswith("InUse: another process holds")

    def steps(self, world: World, state: State, now: int) -> Iterator[tuple[World, State]]:
        if self._is_kept_out:
            return
        owed, drops = state
        if gone := owed - self._there(world):
            # A message that has left counts as removed, even if it comes back.
            owed -= gone
            yield world, (owed, drops)
        is_over = self.drops and not drops and not self.error
        for message in world.within(self.queue):
            if not is_over or message.key in owed:
                yield world.dropped(message), (owed - {message.key}, drops)
        if drops and self.error and self.queue not in world.queues:
            yield world, (owed, False)
        if drops and not self.error and self.queue in world.queues:
            yield _without_queue(world, self.queue), (self._there(world), False)

    def is_over(self, world: World, state: State) -> bool:
        owed, drops = state
        return not drops and not owed & self._there(world)

    def _there(self, world: World) -> frozenset[tuple[int, bytes]]:
        return frozenset(m.key for m in world.within(self.queue))


def _without_queue(world: World, queue: str) -> World:
    return world._replace(
        queues=world.queues - {queue},
        settings=frozenset(s for s in world.settings if s[0] != queue),
        subscribed=frozenset(s for s in world.subscribed if s[1] != queue),
    )


class Publishing(Operation):
    """Stores a copy in each queue that is subscribed during the whole operation."""

    topic = ""
    copied: frozenset[str] = frozenset()  # the queues in the answer

    def begin(self, world: World) -> State:
        return super().begin(world), frozenset() if self.error else self._subscribed(world)

    def steps(self, world: World, state: State, now: int) -> Iterator[tuple[World, State]]:
        left, owed = state
        for after, less in super().steps(world, left, now):
            yield after, (less, owed & self._subscribed(after))

    def is_over(self, world: World, state: State) -> bool:
        left, owed = state
        return super().is_over(world, left) and owed & self._subscribed(world) <= self.copied

    def _subscribed(self, world: World) -> frozenset[str]:
        return frozenset(queue for topic, queue in world.subscribed if topic == self.topic)


def stores(op: Operation, queue: str, message_id: str, body: bytes, delay_ms: int = 0) -> Effect:
    """A message is stored in a queue that has none of its id, except one of a concurrent move."""

    def effect(world: World, now: int) -> Iterator[World]:
        others = world.named(queue, message_id) if message_id else ()
        if queue not in world.queues or any(m.moved < op.number for m in others):
            return
        for until in {clock + delay_ms for clock in op.clocks} if delay_ms else {0}:
            message = Message(body, queue, message_id, until, 0, 0, op.number)
            yield world._replace(messages=world.messages | {message})

    return effect


def stands(queue: str, message_id: str) -> Effect:
    """A message of this id exists."""
    return lambda world, now: [world] if any(world.named(queue, message_id)) else []


def absent(queue: str, message_id: str) -> Effect:
    """No message of this id exists."""
    return lambda world, now: [] if any(world.named(queue, message_id)) else [world]


def either(*effects: Effect) -> Effect:
    """One of the effects happens."""
    return lambda world, now: [after for effect in effects for after in effect(world, now)]


def taken_back(op: Operation) -> Effect:
    """A message that this operation has put is removed."""
    return lambda world, now: [world.dropped(m) for m in world.messages if m.put == op.number]


def is_taken_back(op: Operation) -> Callable[[World], bool]:
    return lambda world: all(m.put != op.number for m in world.messages)


def no_queue(queue: str) -> Effect:
    return lambda world, now: [world] if queue not in world.queues else []


def makes_queue(queue: str) -> Effect:
    return lambda world, now: (
        [world._replace(queues=world.queues | {queue})] if queue not in world.queues else []
    )


def has_queue(queue: str) -> Effect:
    """The queue exists, or is created."""
    return lambda world, now: [world._replace(queues=world.queues | {queue})]


def is_queue(queue: str) -> Effect:
    return lambda world, now: [world] if queue in world.queues else []


def takes(
    op: Operation, queue: str, message_id: str, body: bytes | None, count: int, until: int
) -> Effect:
    """A free message is claimed for the ``count``th time. body: None: any."""

    def effect(world: World, now: int) -> Iterator[World]:
        for m in world.within(queue):
            is_it = m.id in ("", message_id) and body in (None, m.body) and m.count + 1 == count
            if is_it and world.may_be_claimed(m, now):
                yield world.replaced(m, m.claimed(op.number, until)._replace(id=message_id))

    return effect


def takes_for(op: Operation, queue: str, message_id: str, count: int, span_ms: int) -> Effect:
    """The message of an id is claimed for some time."""
    return lambda world, now: [
        after
        for clock in op.clocks
        for after in takes(op, queue, message_id, None, count, clock + span_ms)(world, now)
    ]


def takes_any(op: Operation, queue: str, span_ms: int) -> Effect:
    """Any free message is claimed for some time."""
    return lambda world, now: [
        world.replaced(m, m.claimed(op.number, clock + span_ms))
        for m in world.within(queue)
        for clock in op.clocks
        if world.may_be_claimed(m, now)
    ]


def gives_back_any(op: Operation) -> Effect:
    """The claim of this operation is undone."""
    return lambda world, now: [
        world.changed(m, until=0, by=0, count=m.count - 1)
        for m in world.messages
        if m.by == op.number
    ]


def gives_back(op: Operation, claim: int, message_id: str) -> Effect:
    """A claim is undone."""
    return lambda world, now: [
        world.changed(m, until=0, by=0, count=m.count - 1, named=0)
        for m in world.messages
        if m.by == claim and m.id == message_id
    ]


def renews(op: Operation, queue: str, message_id: str, until: int) -> Effect:
    """A claimed message is hidden until then, in any claim; a free one may be claimed."""

    def effect(world: World, now: int) -> Iterator[World]:
        for m in world.named(queue, message_id):
            if not m.waits:
                yield world.changed(m, until=until)
            if m.until <= now or m.waits:
                yield world.replaced(m, m.claimed(op.number, until))

    return effect


def extends(op: Operation, queue: str, message_id: str, span_ms: int) -> Effect:
    """The same, but a message that is hidden for longer stays hidden."""

    def effect(world: World, now: int) -> Iterator[World]:
        for until in (clock + span_ms for clock in op.clocks):
            if any(m.until >= until and not m.waits for m in world.named(queue, message_id)):
                yield world
            else:
                yield from renews(op, queue, message_id, until)(world, now)
                for m in world.named(queue, message_id):
                    if m.until <= now:  # a new claim needs another name than the last
                        yield world.replaced(m, m.claimed(op.number, until + 1))

    return effect


def keeps(op: Operation, claim: int, message: tuple[str, str], count: int, span_ms: int) -> Effect:
    """A consumer renews its claim of a message, or claims it again."""

    def effect(world: World, now: int) -> Iterator[World]:
        mine = [m for m in world.named(*message) if claim in m.claims]
        for m, clock in product(mine, op.clocks):
            until = clock + span_ms
            if m.by == claim and m.count == count:
                yield world.changed(m, until=until)
            if m.until <= now and m.count + 1 == count:
                yield world.replaced(m, m.claimed(claim, until))

    return effect


def counts(op: Operation, claim: int, message: tuple[str, str], span_ms: int) -> Effect:
    """A claim counts as one more delivery."""
    return lambda world, now: [
        world.changed(m, until=clock + span_ms, count=m.count + 1)
        for m in world.named(*message)
        for clock in op.clocks
        if m.by == claim
    ]


def buries_own(queue: str, claim: int) -> Effect:
    """The message in this claim is buried."""
    return lambda world, now: [_buried(world, m) for m in world.within(queue) if m.by == claim]


def commits(queue: str, claim: int) -> Effect:
    """The messages of a consumer's claim are removed; those that others hold by now may be."""

    def effect(world: World, now: int) -> Iterator[World]:
        taken = [m for m in world.within(queue) if claim in m.claims]
        mine = [m for m in taken if m.by == claim]
        yield world.dropped(*mine)
        yield world.dropped(*taken)

    return effect


def releases(
    op: Operation, queue: str, message_id: str, delay_ms: int = 0, wait_ms: int = 0
) -> Effect:
    """A message of any claim is free, or waits for its delay.

    wait_ms: the backoff of its queue for a claim that ends without a delay.
    """

    def effect(world: World, now: int) -> Iterator[World]:
        for m, clock in product(list(world.named(queue, message_id)), op.clocks):
            has_ended = not m.count or m.waits
            if (delay_ms or wait_ms) and (not has_ended or (m.waits and delay_ms)):
                yield world.replaced(m, m.waiting(clock + (delay_ms or wait_ms)))
            if has_ended or not (delay_ms or world.has_waits(queue)):
                until = clock + delay_ms if delay_ms else 0
                for more in (0, 1) if delay_ms else (0,):
                    yield world.changed(m, until=until + more, named=0, waits=False)

    return effect


def backs_off(op: Operation, queue: str, wait_ms: int) -> Effect:
    """A claim has timed out, and its message waits for its backoff."""
    return lambda world, now: [
        world.replaced(m, m.waiting(clock + wait_ms))
        for m in world.within(queue)
        for clock in op.clocks
        if m.until and m.until <= now and m.count and not m.waits
    ]


def if_held(queue: str, message_id: str, claim: int, effect: Effect) -> Effect:
    """An effect on a message in this claim."""
    return lambda world, now: (
        effect(world, now) if any(m.named == claim for m in world.named(queue, message_id)) else []
    )


def goes_on(queue: str, message_id: str, claim: int, count: int, until: int) -> Effect:
    """The last claim of a message holds until then, even if it had ended."""

    def effect(world: World, now: int) -> Iterator[World]:
        for m in world.named(queue, message_id):
            if m.count == count and claim in m.claims and not m.waits:
                yield world.changed(m, until=until, by=claim, named=claim)

    return effect


def ended(queue: str, message_id: str, claim: int) -> Effect:
    """No message of this id is hidden by this claim."""
    return lambda world, now: (
        [world]
        if all(m.named != claim or m.until <= now for m in world.named(queue, message_id))
        else []
    )


def frees_any(queue: str) -> Effect:
    return lambda world, now: [
        world.changed(m, until=0, named=0, waits=False) for m in world.within(queue) if m.until
    ]


def delivers_early(op: Operation) -> Effect:
    """A message that is put during a delivery of one with its id may lose its delay."""
    return lambda world, now: [
        world.changed(m, until=0) for m in world.messages if m.put > op.number and m.by == 0
    ]


def buries(queue: str, message_id: str) -> Effect:
    return lambda world, now: [_buried(world, m) for m in world.named(queue, message_id)]


def _buried(world: World, m: Message) -> World:
    world = world._replace(queues=world.queues | {DEAD})
    its_id = "" if any(world.named(DEAD, m.id)) else m.id  # a new one where that is in use
    return world.changed(m, queue=DEAD, id=its_id, until=0, by=0, count=0, named=0, waits=False)


def buries_used_up(queue: str, most: int) -> Effect:
    """A message without deliveries left is buried when its claim has ended."""
    return lambda world, now: [
        _buried(world, m) for m in world.within(queue) if m.count >= most and m.until <= now
    ]


def goes(queue: str, message_id: str) -> Effect:
    """A message is removed in any state."""
    return lambda world, now: [world.dropped(m) for m in world.named(queue, message_id)]


def moves_any(op: Operation, source: str, target: str, hidden: bool) -> Effect:
    """A message goes to another queue, where a hidden one may be free.

    It stays if the target has its id, except from a concurrent put.
    """

    def effect(world: World, now: int) -> Iterator[World]:
        if target not in world.queues:
            return
        for m in world.within(source):
            if m.id and any(other.put < op.number for other in world.named(target, m.id)):
                continue
            there = m._replace(queue=target, moved=op.number)
            yield world.replaced(m, there)
            if hidden and m.until:
                yield world.replaced(m, there._replace(until=0))

    return effect


def renames(queue: str, message_id: str, new_id: str) -> Effect:
    """A ready message gets another id."""
    return lambda world, now: [
        world.changed(m, id=new_id)
        for m in world.named(queue, message_id)
        if m.until <= now and not any(world.named(queue, new_id))
    ]


def redrives(op: Operation, queue: str) -> Effect:
    """A ready dead letter goes back, with 0 deliveries."""

    def effect(world: World, now: int) -> Iterator[World]:
        for m in world.within(DEAD) if queue in world.queues else ():
            if m.until <= now and not any(o.put < op.number for o in world.named(queue, m.id)):
                home = m._replace(queue=queue, until=0, by=0, count=0, moved=op.number)
                yield world.replaced(m, home)

    return effect


def pulls_any(write: str, read: str) -> Effect:
    """A message of a dedup queue goes to the read side with a new id."""
    return lambda world, now: [
        world.changed(m, queue=read, id="") for m in world.within(write) if read in world.queues
    ]


def sets(queue: str, known: Known) -> Effect:
    def effect(world: World, now: int) -> Iterator[World]:
        if queue in world.queues:
            others = frozenset(s for s in world.settings if s[0] != queue)
            yield world._replace(settings=others | {(queue, known)})

    return effect


def subscribes(topic: str, queue: str) -> Effect:
    return lambda world, now: (
        [world._replace(subscribed=world.subscribed | {(topic, queue)})]
        if queue in world.queues
        else []
    )


def unsubscribes(topic: str, queue: str) -> Effect:
    return lambda world, now: [world._replace(subscribed=world.subscribed - {(topic, queue)})]


def ends_topic(topic: str) -> Effect:
    return lambda world, now: [
        world._replace(subscribed=frozenset(s for s in world.subscribed if s[0] != topic))
    ]


class Seen(NamedTuple):
    """A message in the tree. until: 0 if it is ready."""

    queue: str
    id: str
    body: bytes
    until: int
    count: int


def looks(
    messages: list[Seen],
    queues: frozenset[str],
    settings: frozenset[tuple[str, Known]],
    subscribed: frozenset[tuple[str, str]],
) -> Effect:
    """The world is as it was found in the tree."""
    seen = Counter(m._replace(id="") for m in messages)
    ids = {(m.queue, m.body, m.id) for m in messages}

    def effect(world: World, now: int) -> Iterable[World]:
        if world.queues != queues or world.settings != settings or world.subscribed != subscribed:
            return []
        there = Counter(
            Seen(m.queue, "", m.body, m.until if m.until > now else 0, m.count)
            for m in world.messages
        )
        known = {(m.queue, m.body, m.id) for m in world.messages if m.id}
        return [world] if there == seen and known <= ids else []

    return effect
