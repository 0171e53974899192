"""Verbs by id on a queue with an index, and their promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsmq.spool import NewMessage, Spool
from tests.spool.helpers import Clock, back_to_new

GIVEN, TAKEN = "given", "taken"  # queues with an index
HOLD_S = 600.0
FIRST_IDS = {
    name: name.encode() + b", by id" for name in ("ready", "held", "brief", "later", "new")
}
BRIEF_S = 1.0


@dataclass
class GivenPromise:
    """The promises for each id of a crash now."""

    # The bodies that may be delivered; None: no message.
    bodies: dict[str, set[bytes | None]] = field(
        default_factory=lambda: {i: {body} for i, body in FIRST_IDS.items()}
    )
    # The time of the earliest delivery, in Unix seconds.
    held: dict[str, float] = field(default_factory=dict)
    # The possible numbers of moved messages; None: any.
    moved: set[int] | None = field(default_factory=lambda: {0})
    taken: bool = False  # whether messages may have been removed before they moved


def fill_given(spool: Spool, hold_s: float = HOLD_S) -> None:
    """Put the messages at the start of scenarios."""
    for queue in (GIVEN, TAKEN):
        spool.create_queue(queue, index=True)
    given = spool.indexed(GIVEN)
    given.upsert([NewMessage(FIRST_IDS["later"], id="later", delay=hold_s)])
    given.upsert([NewMessage(FIRST_IDS[name], id=name) for name in ("held", "brief", "ready")])
    spool.deliver()
    given.claim("held", hold_s)
    given.claim("brief", BRIEF_S)


def fill_new(spool: Spool) -> None:
    """Put a message that is not delivered before a scenario begins."""
    given = spool.indexed(GIVEN)
    given.upsert([NewMessage(FIRST_IDS["new"], id="new")])
    found = given.find("new")
    assert found is not None
    back_to_new(spool.tree.root, GIVEN, found.id)


class IdVerbs:
    """The verbs by id of an actor."""

    spool: Spool
    clock: Clock
    _posted: int

    def begin(self, effect: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def end(self, effect: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def id_upsert_new(self) -> None:
        self._upsert("fresh")

    def id_upsert(self) -> None:
        self._upsert("ready")

    def id_upsert_held(self) -> None:
        self._upsert("held")

    def id_upsert_undelivered(self) -> None:
        self._upsert("new")

    def id_upsert_batch(self) -> None:
        self._upsert("fresh", "ready")

    def _upsert(self, *ids: str) -> None:
        self._posted += 1
        body = b"by id, number %d" % self._posted

        def begin(p: Any) -> None:
            for one in ids:
                p.by_id.bodies.setdefault(one, {None}).add(body)
                p.by_id.held.pop(one, None)

        def end(p: Any) -> None:
            p.by_id.bodies.update({one: {body} for one in ids})

        self.begin(begin)
        self.spool.indexed(GIVEN).upsert([NewMessage(body, id=one) for one in ids])
        self.end(end)

    def id_ensure(self) -> None:
        self._ensure("fresh")

    def id_ensure_again(self) -> None:
        self._ensure("ready")

    def _ensure(self, one: str) -> None:
        self._posted += 1
        body = b"ensured, number %d" % self._posted
        self.begin(lambda p: p.by_id.bodies.setdefault(one, {None}).add(body))
        is_put = self.spool.indexed(GIVEN).ensure(NewMessage(body, id=one))

        def end(p: Any) -> None:
            if is_put:
                p.by_id.bodies[one] = {body}
            else:
                p.by_id.bodies[one] -= {body, None}

        self.end(end)

    def id_claim(self) -> None:
        self._claim("ready")

    def id_claim_later(self) -> None:
        self._claim("later")

    def _claim(self, one: str) -> None:
        self.begin(lambda p: p.by_id.held.pop(one, None))
        message = self.spool.indexed(GIVEN).claim(one, 2 * HOLD_S)
        deadline = self.clock() + 2 * HOLD_S
        if message is not None:
            self.end(lambda p: p.by_id.held.update({one: deadline}))

    def id_claim_new(self) -> None:
        self._claim("new")

    def id_renew(self) -> None:
        done = self.spool.indexed(GIVEN).renew("brief", 2 * HOLD_S)
        deadline = self.clock() + 2 * HOLD_S
        if done:
            self.end(lambda p: p.by_id.held.update({"brief": deadline}))

    def id_ack(self) -> None:
        self._remove_id("held", lambda: self.spool.indexed(GIVEN).ack("held"))

    def id_remove_new(self) -> None:
        self._remove_id("new", lambda: self.spool.indexed(GIVEN).remove("new"))

    def id_remove(self) -> None:
        self._remove_id("ready", lambda: self.spool.indexed(GIVEN).remove("ready"))

    def _remove_id(self, one: str, remove: Callable[[], list[bool]]) -> None:
        def begin(p: Any) -> None:
            p.by_id.bodies[one].add(None)
            p.by_id.held.pop(one, None)
            p.by_id.taken = True

        self.begin(begin)
        remove()
        self.end(lambda p: p.by_id.bodies.update({one: {None}}))

    def id_postpone(self) -> None:
        done = self.spool.indexed(GIVEN).postpone("ready", HOLD_S)
        deadline = self.clock() + HOLD_S

        def end(p: Any) -> None:
            if done:
                p.by_id.held["ready"] = deadline

        self.end(end)

    def id_move(self) -> None:
        """Move messages to another queue with an index, where their delays continue."""
        self.begin(lambda p: setattr(p.by_id, "moved", None))
        self.spool.begin_move(GIVEN, TAKEN, in_flight=False, delayed=True)
        self.spool.make_moves()

    def id_move_some(self) -> None:
        """Move one message, also if another process completes the move."""

        def begin(p: Any) -> None:
            if p.by_id.moved is not None:
                p.by_id.moved |= {number + 1 for number in p.by_id.moved}

        def end(p: Any) -> None:
            if p.by_id.moved is not None:
                p.by_id.moved.discard(0)

        self.begin(begin)
        self.spool.begin_move(GIVEN, TAKEN, in_flight=False, delayed=True, count=1)
        self.spool.make_moves()
        self.end(end)

    def id_reap(self) -> None:
        self._remove_id("ready", lambda: self.spool.indexed(GIVEN).remove("ready"))
        self.spool.reap()


ID_VERBS = (
    "id_upsert_new",
    "id_upsert",
    "id_upsert_held",
    "id_upsert_undelivered",
    "id_upsert_batch",
    "id_ensure",
    "id_ensure_again",
    "id_claim",
    "id_claim_later",
    "id_claim_new",
    "id_renew",
    "id_ack",
    "id_remove",
    "id_remove_new",
    "id_postpone",
    "id_move",
    "id_move_some",
    "id_reap",
)


class Outcome:
    """The messages in queues with an index after a crash, and the promises that they break."""

    def __init__(self, spool: Spool, clock: Clock, promised: GivenPromise) -> None:
        self._spool, self._clock, self._promised = spool, clock, promised
        self._found: dict[str, list[bytes]] = {one: [] for one in promised.bodies}
        self._places = {
            one: [q for q in (GIVEN, TAKEN) if spool.indexed(q).find(one) is not None]
            for one in promised.bodies
        }

    def claim(self) -> str | None:
        """Claim all free messages after the end of brief claims; a broken promise, or None."""
        self._clock.advance(2 * BRIEF_S)
        self._spool.deliver()
        try:
            return self._claim_all()
        finally:
            self._clock.advance(-2 * BRIEF_S)

    def _claim_all(self) -> str | None:
        for queue in (GIVEN, TAKEN):
            for message in self._spool.queue(queue).claim(100, visibility=20 * HOLD_S):
                one = message.given_id
                if one not in self._found:
                    return f"{message} has no id"
                if self._promised.held.get(one, 0.0) > self._clock():
                    return f"{one} was delivered while it was held"
                self._found[one].append(message.body)
        return None

    def problem(self) -> str | None:
        """Claim again; a broken promise of all delivered messages, or None."""
        if problem := self.claim():
            return problem
        promised = self._promised
        moved = sum(TAKEN in queues for queues in self._places.values())
        possible = promised.moved
        is_short = promised.taken and possible and moved < max(possible)
        if possible is not None and moved not in possible and not is_short:
            return f"{moved} messages have moved, not {possible}"
        for one, bodies in self._found.items():
            if not set(bodies or [None]) <= promised.bodies[one]:
                return f"{one} has the messages {bodies}, not {promised.bodies[one]}"
            if len(bodies) > 1:
                return f"{one} has {len(bodies)} messages: {bodies}"
            if bool(self._places[one]) != bool(bodies):
                return f"{one} was found in {self._places[one]}, and {bodies} were delivered"
        return None
