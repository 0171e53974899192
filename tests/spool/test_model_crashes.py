"""The spool against a dictionary, with processes that die between any two system calls.

After a crash and a restart the tree must be one that the model allows: the verb has happened or
not, or it stopped at one of the few places that docs/format.md names. Without a restart, a message
of a dead writer waits under its dot-name until its id is put again, or a mover starts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from fsmq.spool import DuplicateMessage, Queue, Spool, State, prepare
from fsmq.spool.durability.locks import is_reservation
from fsmq.spool.fsck import Finding, Kind
from fsmq.spool.layout import names
from fsmq.spool.layout.messages.message import unpack
from tests.spool.crashing import run_and_die
from tests.spool.helpers import visible
from tests.spool.machines import machine_settings
from tests.spool.model import DEAD, DELAY, NEW, READY, Fact, Model
from tests.spool.test_model import CARRYING, HEADERS, PLAIN, QUEUES, TOPIC, SpoolMachine

VISIBILITY_S = 30.0


class Left(NamedTuple):
    """A complete message under its dot-name, whose writer has died."""

    queue: str
    id: str
    fact: Fact


class CrashingMachine(SpoolMachine):
    """A machine whose verbs may run in processes that die."""

    crashes = 0  # in all runs

    def __init__(self) -> None:
        super().__init__()
        self.fresh: set[Spool] = set()  # spools that have not delivered yet
        self.seen: dict[str, set[str]] = {}  # the ids in each queue after the last crash

    @initialize(is_ahead=st.booleans(), limit=st.sampled_from([None, 1, 2]))
    def open(self, is_ahead: bool, limit: int | None) -> None:
        """Put some messages, so that verbs have work to die at."""
        super().open(is_ahead)
        self.configure(limit=limit)
        for _ in range(3):
            self.put("a", b"first", (None, {}), None, priority=0, ttl=None)
        self.deliver()
        self.claim(name="a", count=1, visibility=VISIBILITY_S)

    def open_spool(self) -> Spool:
        spool = super().open_spool()
        self.fresh.add(spool)
        return spool

    # -- messages of dead writers ------------------------------------------------------------------

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
        """Give a message of a dead writer its name, unless its id is taken."""
        model = self.queues.get(left.queue)
        if model is not None and not model.holds(left.id):
            model.messages[left.id] = copy.copy(left.fact)
            for unseen in self.unseen.values():
                unseen.add((left.queue, left.id))

    def entry_names(self) -> set[str]:
        """Without unfinished messages."""
        found = super().entry_names()
        hidden = {name for name in found if name[0] == "."}
        assert all(names.split_staged(name) or is_reservation(name) for name in hidden)
        return found - hidden

    def is_expected(self, finding: Finding) -> bool:
        """Messages of dead writers wait until a mover starts, even if their id is taken.

        A shell or a move, which know nothing of reservations, may have taken it.
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
        """Start a mover, and return the messages of dead writers that it shows."""
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
                message_id = own
                if headers[1]:
                    message_id = f"{own}.h" if own == CARRYING else f"@{own}@.h"
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

        # It also buries messages one by one; the next mover continues.
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
        """Remove the messages from the model that were gone after the crash."""
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
            return  # it fails

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
        """The states in which an interrupted burial may leave a message."""

        def half_buried() -> None:
            """The count is 0, and the message is still in its queue."""
            self.queues.setdefault(DEAD, Model())
            fact = self.model(name).messages[message_id]
            self.models.end_claim(fact)
            fact.deliveries = 0

        def noted() -> None:
            """The reason of its death is noted as well."""
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
        """A message in one of the states, if there is one."""
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
        """Let a verb die at a system call; the tree must match one of the outcomes afterwards.

        outcomes: changes of the model, first the complete verb. If it was acknowledged, only that
        is allowed. restart: whether all other processes restart as well.
        """
        acknowledged = run_and_die(self.root, verb, at, self.clock)
        CrashingMachine.crashes += acknowledged is not None
        self.seen = self.find_ids()
        left: list[Left] = []
        if restart:
            for spool in self.spools:
                spool.close()
            self.spools = [self.open_spool(), self.open_spool()]
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

    def find_ids(self) -> dict[str, set[str]]:
        """The ids in each queue, in any state."""
        seen: dict[str, set[str]] = {name: set() for name in QUEUES}
        for name, message_id in visible(self.root):
            seen[name].add(message_id)
        return seen

    def agree(self, outcomes: list[Callable[[], None]]) -> None:
        """Keep the first outcome that matches the tree."""
        queues, subscribed = self.queues, self.subscribed
        errors = []
        for outcome in outcomes:
            self.models.queues, self.subscribed = copy.deepcopy(queues), set(subscribed)
            outcome()
            try:
                self.the_tree_matches_the_model()
            except AssertionError as error:
                errors.append(str(error))
            else:
                return
        raise AssertionError("no outcome agrees:\n" + "\n".join(errors))


def test_a_file_of_a_shell_wins_over_an_unfinished_message_of_its_id() -> None:
    """A sequence that the test of any sequence finds rarely."""
    machine = CrashingMachine()
    try:
        machine.open(False, None)
        own = PLAIN[0]
        machine.die_at_a_put("a", own, at=3, body=b"left", headers=HEADERS[0], restart=False)
        assert [left.id for left in machine.left()] == [own]
        machine.shell_adds_a_file(own, NEW, b"brought")
        machine.fsck_finds_nothing()
        machine.the_tree_matches_the_model()
        machine.pass_time(30)
        machine.deliver()
        machine.deliver()
        machine.fsck_finds_nothing()
        machine.the_tree_matches_the_model()
        assert machine.left() == []
        assert machine.model("a").messages[own].body == b"brought"
    finally:
        machine.teardown()


@pytest.mark.parametrize("by_mover", [False, True], ids=["release", "mover"])
def test_a_burial_that_dies_at_any_of_its_calls_agrees_with_the_model(by_mover: bool) -> None:
    for at in count():
        machine = CrashingMachine()
        try:
            machine.open(False, 1)
            before = CrashingMachine.crashes
            if by_mover:
                machine.pass_time(round(VISIBILITY_S) + 1)
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
    run_state_machine_as_test(CrashingMachine, settings=machine_settings(15, 25, steps=30))
    assert CrashingMachine.crashes > 10, "too few crashes"
