"""The spool against a dictionary, with processes that die between any two system calls.

After a crash and a restart the tree must be one that the model allows: the verb has happened, or it
has not, or it stopped at one of the few places that docs/format.md names. Without a restart, what a
writer has left that died waits under its dot-name until its id is put again, or a mover starts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from fsmq.spool import DuplicateMessage, Queue, Spool, State, prepare
from fsmq.spool.durability.locks import is_reservation
from fsmq.spool.fsck import Finding, Kind
from fsmq.spool.layout import names
from fsmq.spool.layout.messages.message import unpack
from tests.harness.rounds import part_of
from tests.spool.crashing import run_and_die
from tests.spool.helpers import visible
from tests.spool.model import DEAD, DELAY, NEW, READY, Fact, Model
from tests.spool.test_model import CARRYING, HEADERS, PLAIN, QUEUES, TOPIC, SpoolMachine

VISIBILITY_S = 30.0


class Left(NamedTuple):
    """A complete message under its dot-name, whose writer has died."""

    queue: str
    id: str
    fact: Fact


class CrashingMachine(SpoolMachine):
    """Verbs may be done by processes that die at them."""

    crashes = 0  # in all runs

    def __init__(self) -> None:
        super().__init__()
        self.fresh: set[Spool] = set()  # those that have not delivered yet
        self.seen: dict[str, set[str]] = {}  # what stood when the last process had died

    @initialize(is_ahead=st.booleans(), limit=st.sampled_from([None, 1, 2]))
    def open(self, is_ahead: bool, limit: int | None) -> None:
        """Some messages, so that there is something to die at."""
        super().open(is_ahead)
        self.configure(limit=limit)
        for _ in range(3):
            self.put("a", b"first", (None, {}), None, priority=0, ttl=None)
        self.deliver()
        self.claim(name="a", count=1, visibility=VISIBILITY_S)

    def opened(self) -> Spool:
        spool = super().opened()
        self.fresh.add(spool)
        return spool

    # -- what writers have left that died ----------------------------------------------------------

    def left(self) -> list[Left]:
        return [*self.find_left()]

    def find_left(self) -> Iterator[Left]:
        for path in (self.root / "new").iterdir():
            parts = names.split_staged(path.name)
            entry = names.split_entry(parts[0]) if parts is not None else None
            if parts is None or entry is None:
                continue
            content = path.read_bytes()
            if names.seal_of(content) == parts[1]:
                body, *headers = unpack(content, names.facts(entry[1]))
                yield Left(*entry, Fact(body, NEW, headers=(headers[0], headers[1])))

    def left_as(self, name: str, own: str) -> Left | None:
        ids = names.siblings(own)
        return next((one for one in self.left() if one.queue == name and one.id in ids), None)

    def show(self, left: Left) -> None:
        """What was left gets its name, unless a message of its id stands."""
        model = self.queues.get(left.queue)
        if model is not None and not model.holds(left.id):
            model.messages[left.id] = copy.copy(left.fact)
            for unseen in self.unseen.values():
                unseen.add((left.queue, left.id))

    def standing(self) -> set[str]:
        """What is unfinished is no message."""
        found = super().standing()
        hidden = {name for name in found if name[0] == "."}
        assert all(names.split_staged(name) or is_reservation(name) for name in hidden)
        return found - hidden

    def is_expected(self, finding: Finding) -> bool:
        """What was left waits until a mover starts, see `start`; beside a message of its id, too.

        A shell, or a move, may have brought that one, and knows nothing of reservations.
        """
        if finding.kind is not Kind.DUPLICATE:
            return finding.kind is Kind.COMPLETE
        parts = names.split_staged(finding.path.removeprefix("new/"))
        queue, _, own = parts[0].rpartition(":") if parts is not None else ("", "", "")
        return queue in self.queues and self.model(queue).holds(own)

    def deliver_by(self, spool: Spool) -> None:
        for left in self.start(spool) if spool in self.fresh else ():
            self.show(left)
        super().deliver_by(spool)

    def start(self, spool: Spool) -> list[Left]:
        """Let a mover start, which shows what was left; that."""
        left = self.left()
        spool.deliver()
        self.fresh.discard(spool)
        assert self.left() == []
        return left

    def put_own_id(
        self, name: str, own: str, body: bytes, delay: float | None, headers: Any
    ) -> None:
        left = self.left_as(name, own)
        if left is None or name not in self.queues or self.model(name).holds(own):
            super().put_own_id(name, own, body, delay, headers)
            return
        with pytest.raises(DuplicateMessage):
            self.queue(name).put(body, id=own, delay=delay)
        self.show(left)

    # -- processes that die ------------------------------------------------------------------------

    @rule(
        name=SpoolMachine.existing,
        own=st.sampled_from((*PLAIN, CARRYING)),
        at=st.integers(0, 9),
        body=st.binary(max_size=9),
        headers=st.sampled_from(HEADERS),
        restart=st.booleans(),
    )
    def die_at_a_put(
        self, name: str, own: str, at: int, body: bytes, headers: Any, restart: bool
    ) -> None:
        if name not in self.queues or self.model(name).holds(own):
            return
        left = self.left_as(name, own)

        def put(spool: Spool) -> None:
            content_type, attributes = headers
            more = {"id": own, "content_type": content_type, "attributes": attributes}
            with suppress(DuplicateMessage):
                Queue(spool, name).put(body, **more)

        def stored() -> None:
            if left is not None:
                self.show(left)
            else:
                message_id = own + ".h" * bool(headers[1])
                self.model(name).messages[message_id] = Fact(body, headers=headers)

        self.die(put, at, [stored], restart=restart)

    @rule(at=st.integers(0, 9))
    def die_at_a_delivery(self, at: int) -> None:
        left = self.left()

        def shown() -> None:
            for one in left:
                self.show(one)

        def shown_and(half: Callable[[], None]) -> None:
            shown()
            half()

        # It buries, too, one after the other; the next mover buries what this one has not begun.
        halves = [
            half
            for name, model in self.queues.items()
            for message_id in model.ids(DELAY)
            if model.is_used_up(fact := model.messages[message_id])
            if (fact.deadline or 0.0) <= self.clock()
            for half in self.halves(name, message_id)
        ]
        outcomes = [shown, *(partial(shown_and, half) for half in halves)]
        self.die(lambda spool: spool.deliver(), at, outcomes)

    @rule(name=SpoolMachine.existing, at=st.integers(0, 12))
    def die_at_a_purge(self, name: str, at: int) -> None:
        if name not in self.queues:
            return

        def purged() -> None:
            self.model(name).messages.clear()

        self.die(
            lambda spool: Queue(spool, name).purge(),
            at,
            [purged, lambda: self.forget_removed(name)],
        )

    @rule(name=SpoolMachine.existing, at=st.integers(0, 14))
    def die_at_the_deletion_of_a_queue(self, name: str, at: int) -> None:
        if name not in self.queues:
            return

        def deleted() -> None:
            del self.queues[name]
            self.subscribed.discard(name)

        def half_deleted() -> None:
            self.forget_removed(name)
            if not (self.root / "config" / f"{name}.json").exists():
                self.model(name).forget_settings()
            if not (self.root / "topics" / TOPIC / name).exists():
                self.subscribed.discard(name)

        self.die(lambda spool: spool.delete_queue(name), at, [deleted, half_deleted])

    def forget_removed(self, name: str) -> None:
        """Remove from the model what was gone when the process was dead."""
        model = self.model(name)
        for message_id in model.messages.keys() - self.seen[name]:
            del model.messages[message_id]

    @rule(
        source=SpoolMachine.existing,
        to=SpoolMachine.existing,
        in_flight=st.booleans(),
        at=st.integers(0, 7),
    )
    def die_at_a_move(self, source: str, to: str, in_flight: bool, at: int) -> None:
        if source == to or not {source, to} <= set(self.queues):
            return
        states = {NEW, READY} | ({DELAY} if in_flight else set())

        def moved() -> None:
            self.models.move(source, to, states)

        def half_moved() -> None:
            stay = self.seen[source]
            self.models.move(source, to, states, lambda message_id: message_id not in stay)

        self.die(
            lambda spool: Queue(spool, source).move_to(to, in_flight=in_flight),
            at,
            [moved, half_moved],
        )

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7))
    def die_at_a_claim(self, name: str, at: int) -> None:
        ready = self.model(name).ids(READY) if name in self.queues else []
        if not ready or any(self.models.is_expired(message_id) for message_id in ready):
            return
        if not self.models.may_be_claimed(name):
            return
        self.die_at_taking(
            lambda spool: spool.complete(prepare.claim(spool.context, name, 1, VISIBILITY_S)),
            name,
            ready[0],
            at,
        )

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_renewal(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, (READY, DELAY))
        if message_id is None:
            return
        self.die_at_taking(
            lambda spool: Queue(spool, name).renew(message_id, VISIBILITY_S), name, message_id, at
        )

    def die_at_taking(
        self, verb: Callable[[Spool], object], name: str, message_id: str, at: int
    ) -> None:
        fact = self.model(name).messages[message_id]
        deadline = self.models.next_deadline(fact, VISIBILITY_S)

        def stamped() -> None:
            fact = self.model(name).messages[message_id]
            fact.deliveries += fact.state is READY or fact.waits
            fact.deadline, fact.waits = deadline, False

        def taken() -> None:
            stamped()
            self.model(name).messages[message_id].state = DELAY

        self.die(verb, at, [taken, stamped])

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_release(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, (DELAY,))
        if message_id is None:
            return
        is_buried = self.model(name).is_used_up(self.model(name).messages[message_id])
        if is_buried and DEAD in self.queues and message_id in self.model(DEAD).messages:
            return  # it is refused

        def released() -> None:
            if is_buried:
                self.models.bury(name, message_id)
            else:
                self.models.end(name, message_id)

        def dead_letters_made() -> None:
            self.queues.setdefault(DEAD, Model())

        halves = [*self.halves(name, message_id), dead_letters_made] if is_buried else []
        self.die(lambda spool: Queue(spool, name).release(message_id), at, [released, *halves])

    def halves(self, name: str, message_id: str) -> list[Callable[[], None]]:
        """What a burial may come to that does not come to its end."""

        def half_buried() -> None:
            """The count has been set to 0, and the message has not gone yet."""
            self.queues.setdefault(DEAD, Model())
            fact = self.model(name).messages[message_id]
            self.models.end_claim(fact)
            fact.deliveries = 0

        def noted() -> None:
            """It knows why it dies, too."""
            half_buried()
            self.model(name).messages[message_id].buried_from = name

        return [half_buried, noted]

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_removal(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, tuple(State))
        if message_id is None:
            return

        def removed() -> None:
            del self.model(name).messages[message_id]

        self.die(lambda spool: Queue(spool, name).remove(message_id), at, [removed])

    # -- helpers -----------------------------------------------------------------------------

    def pick(self, name: str, which: int, states: tuple[object, ...]) -> str | None:
        """Some message in one of the states; None if there is none."""
        if name not in self.queues:
            return None
        facts = self.model(name).messages
        ids = sorted(i for i, fact in facts.items() if fact.state in states)
        return ids[which % len(ids)] if ids else None

    def die(
        self,
        verb: Callable[[Spool], object],
        at: int,
        outcomes: list[Callable[[], None]],
        *,
        restart: bool = True,
    ) -> None:
        """Let a verb die at a system call; the tree must show one of the outcomes afterwards.

        outcomes: what the verb makes of the model, the whole of it first. If it was acknowledged,
        nothing else will do. restart: whether all other programs start again, too.
        """
        acknowledged = run_and_die(self.root, verb, at, self.clock)
        CrashingMachine.crashes += acknowledged is not None
        self.seen = self.look()
        left: list[Left] = []
        if restart:
            for spool in self.spools:
                spool.close()
            self.spools = [self.opened(), self.opened()]
            left = self.start(self.spools[0])
        if acknowledged is None or acknowledged:
            outcomes = outcomes[:1]
        else:
            outcomes = [*outcomes, lambda: None]

        def become(outcome: Callable[[], None]) -> None:
            outcome()
            for one in left:
                self.show(one)
            if restart:
                self.deliver_in_the_model(self.spools[0])

        self.agree([partial(become, outcome) for outcome in outcomes])

    def look(self) -> dict[str, set[str]]:
        """The ids that stand in each queue now, in whatever state."""
        seen: dict[str, set[str]] = {name: set() for name in QUEUES}
        for name, message_id in visible(self.root):
            seen[name].add(message_id)
        return seen

    def agree(self, outcomes: list[Callable[[], None]]) -> None:
        """Take the first outcome with which the tree agrees."""
        queues, subscribed = self.queues, self.subscribed
        told = []
        for outcome in outcomes:
            self.models.queues, self.subscribed = copy.deepcopy(queues), set(subscribed)
            outcome()
            try:
                self.the_tree_agrees()
            except AssertionError as error:
                told.append(str(error))
            else:
                return
        raise AssertionError("no outcome agrees:\n" + "\n".join(told))


def test_what_a_shell_brings_stands_beside_what_a_dead_writer_has_left() -> None:
    """A sequence that the one below finds now and then."""
    machine = CrashingMachine()
    try:
        machine.open(False, None)
        own = PLAIN[0]
        machine.die_at_a_put("a", own, at=3, body=b"left", headers=HEADERS[0], restart=False)
        assert [left.id for left in machine.left()] == [own]
        machine.shell_moves_a_file_in(own, NEW, b"brought")
        machine.fsck_finds_nothing()
        machine.the_tree_agrees()
        machine.time_passes(30)
        machine.deliver()
        machine.deliver()
        machine.fsck_finds_nothing()
        machine.the_tree_agrees()
        assert machine.left() == []
        assert machine.model("a").messages[own].body == b"brought"
    finally:
        machine.teardown()


@pytest.mark.parametrize("by_mover", [False, True], ids=["release", "mover"])
def test_a_burial_that_ends_at_any_of_its_calls_agrees_with_the_model(by_mover: bool) -> None:
    """The one below comes to each of them now and then."""
    for at in count():
        machine = CrashingMachine()
        try:
            machine.open(False, 1)
            before = CrashingMachine.crashes
            if by_mover:
                machine.time_passes(round(VISIBILITY_S) + 1)
                machine.die_at_a_delivery(at)
            else:
                machine.die_at_a_release("a", at, 0)
            is_over = CrashingMachine.crashes == before
            machine.fsck_finds_nothing()
        finally:
            machine.teardown()
        if is_over:
            assert at > 3
            return


def test_any_sequence_of_verbs_and_crashes_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        CrashingMachine,
        settings=settings(
            max_examples=part_of(15, 25),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert CrashingMachine.crashes > 10, "hardly anything has died"
