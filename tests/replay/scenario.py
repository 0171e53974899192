"""Records short scenarios of verbs on a spool, and checks the promises of each crash state."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path

from fsmq.spool import FsmqError, NoSuchQueue, NoSuchTopic, Queue, Spool, Unavailable, prepare
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability import unfinished
from fsmq.spool.durability.settings_lock import settings_held
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.calls import Trap, failing, seen
from tests.replay.dead import DEAD_VERBS, GRAVE, fill_dead, problem
from tests.replay.given import GIVEN, ID_VERBS, Outcome, fill_given, fill_new
from tests.replay.place import remove_tree, scratch, state_folder
from tests.replay.recorder import Mark, Recorder, Step, Sync, SyncAll
from tests.replay.sound import errors_in
from tests.replay.states import Files, Reading, crash_states
from tests.replay.verbs import (
    ABOUT,
    AHEAD_S,
    CLAIMED,
    CONSUMER,
    DEPTH,
    DUPS,
    FILTER,
    FIRST,
    HELD,
    HERE,
    HOLD_S,
    JOBS,
    LATER,
    MOVING,
    NEW,
    READY,
    SHOWN,
    SIDE,
    STREAM,
    THERE,
    WAITS,
    WIDE,
    Actor,
    Promised,
    run_job,
)
from tests.spool.helpers import Clock, back_to_new

_OF_ANOTHER = 1000  # the numbers of its messages


@dataclass
class Scenario:
    """Recorded steps, and the tree before them."""

    before: Files
    steps: list[Step]
    now: float  # Unix seconds of its clock
    has_happened: bool = True  # whether the call of its happening was reached


@dataclass(frozen=True)
class Happens:
    """A happening at a call of a verb: the call fails, or a program starts."""

    at: int
    action: Callable[..., OSError | None]


@cache
def first_tree(wide: bool, given: bool = False, dead: bool = False) -> tuple[Files, float]:
    """The tree at the start of scenarios, and its time in Unix seconds.

    wide: with a dedup queue and queues for moves, which make scenarios slower. given: with queues
    that have an index. dead: with dead letters.
    """
    clock = Clock()
    clock.advance(AHEAD_S)
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
        root = Path(folder) / "mq"
        with Spool(root, sync="none", clock=clock) as spool:
            jobs = spool.queue(JOBS, create=True)
            jobs.configure(max_depth=DEPTH)
            if wide:
                spool.create_queue(THERE)
                _fill_dedup_queue(spool)
                _fill(spool.queue(HERE, create=True), MOVING)
            _fill(jobs, FIRST)
            spool.create_queue(SIDE)
            if given:
                fill_given(spool)
            if dead:
                fill_dead(spool, HOLD_S)
            for topic in ("news", "quiet"):
                spool.create_topic(topic)
            for queue in (JOBS, SIDE):
                spool.topic("news").subscribe(queue)
            # Messages of a shell user that are not delivered.
            jobs.put(NEW, id="new")
            jobs.put(LATER, id="later", delay=HOLD_S)
            for name in ("new", "later"):
                back_to_new(root, JOBS, name)
            if given:
                fill_new(spool)
            if wide:
                spool.queue(HERE).put(MOVING["new"], id="new")
                back_to_new(root, HERE, "new")
                spool.complete(prepare.dedup_send(spool.context, DUPS, [WAITS]))
                back_to_new(root, write_side(DUPS))
        return Files.of(root), clock()


def _fill_dedup_queue(spool: Spool) -> None:
    for side in (read_side(DUPS), write_side(DUPS)):
        spool.create_queue(side)
    for body in (CLAIMED, SHOWN):
        spool.complete(prepare.dedup_send(spool.context, DUPS, [body]))
        spool.deliver()
        if body == CLAIMED:
            spool.complete(dedup.poll(spool.context, DUPS, 1, HOLD_S))
    spool.complete(dedup.peek(spool.context, DUPS, 9))


def _fill(queue: Queue, bodies: Mapping[str, bytes]) -> None:
    """Put a message and claim it, and a ready one."""
    for name in ("held", "ready"):
        queue.put(bodies[name], id=name)
        queue.spool.deliver()
        if name == "held":
            queue.claim(visibility=HOLD_S)


def record(
    verbs: Sequence[str],
    sync: SyncMode = "fsync",
    others: Sequence[str] = (),
    happens: Happens | None = None,
) -> Scenario:
    """Run a scenario on a new spool and record every call that changes the tree.

    others: verbs of other processes before, without the syncs at their ends: the processes died
        there, or the disk is slow. These were not acknowledged.
    happens: at a call of the first verb. The later verbs are then of another process.
    """
    names = [*verbs, *others]
    kinds = (WIDE, set(ID_VERBS), set(DEAD_VERBS))
    first, now = first_tree(*(not kind.isdisjoint(names) for kind in kinds))
    clock = Clock()
    clock.now = now
    has_happened = True
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
        root = Path(folder) / "mq"
        first.write_to(root)
        # Opened before the recording, which has no steps of the start.
        with Spool(root, sync=sync, workers=1, clock=clock) as spool:
            before = Files.of(root)
            recorder = Recorder(root)
            try:
                with recorder.recording():
                    actor = Actor(spool, recorder, clock)
                    actor.is_acknowledged = False
                    for verb in others:
                        _act(actor, verb)
                        _drop_last_syncs(recorder.steps)
                    actor.is_acknowledged = True
                    if happens is not None:
                        trap = Trap(happens.at, partial(happens.action, root, clock))
                        with seen(trap):
                            _act(actor, verbs[0])
                        has_happened = trap.is_sprung
                        with Spool(root, sync=sync, workers=1, clock=clock) as other:
                            _act_all(Actor(other, recorder, clock, _OF_ANOTHER), verbs[1:])
                    else:
                        _act_all(actor, verbs)
            finally:
                recorder.close()
    return Scenario(before, recorder.steps, now, has_happened)


def _act_all(actor: Actor, verbs: Iterable[str]) -> None:
    for verb in verbs:
        _act(actor, verb)


def _act(actor: Actor, verb: str) -> None:
    with suppress(NoSuchQueue, NoSuchTopic, Unavailable):
        getattr(actor, verb)()


def fails(which: int) -> Callable[..., OSError | None]:
    """A happening: the call fails."""
    fail = failing(which)
    return lambda root, clock, name, arguments: fail(name, arguments)


def starts(root: Path, clock: Clock, name: str, arguments: object) -> None:
    """A happening: a mover starts, which takes unfinished work for that of a dead writer."""
    with Spool(root, sync="fsync", workers=1, clock=clock) as mover:
        mover.deliver()


def _drop_last_syncs(steps: list[Step]) -> None:
    while steps and isinstance(steps[-1], Sync | SyncAll):
        steps.pop()


def at_first(now: float) -> Promised:
    """The promises at the start of a scenario."""
    bodies = set(FIRST.values())
    held = {HELD: now + HOLD_S, LATER: now + HOLD_S}
    promised = Promised(set(bodies), set(bodies), held, {READY, NEW})
    promised.dups_held[CLAIMED] = now + HOLD_S
    promised.by_id.held.update({"held": now + HOLD_S, "later": now + HOLD_S})
    return promised


class Broken(AssertionError):
    """A promise that a crash state breaks."""


@dataclass
class Checked:
    """The numbers of crash states, and the broken promises."""

    states: int = 0
    distinct: int = 0
    broken: list[str] = field(default_factory=list)


def check_scenario(
    scenario: Scenario,
    *,
    without: Callable[[Step], bool] = lambda step: False,
    readings: Sequence[Reading] = tuple(Reading),
    seen: set[object] | None = None,
    first_only: bool = False,
) -> Checked:
    """Inspect every crash state of a scenario.

    without: selects steps (syncs) to leave out, as if the program did not do them.
    seen: states that were inspected before, in any scenario.
    """
    checked = Checked()
    seen = set() if seen is None else seen
    steps = [step for step in scenario.steps if not without(step)]
    promises: dict[int, str] = {}  # keys of promises by the number of marks
    with state_folder() as root:
        for reading, files, marks in crash_states(scenario.before, steps, readings):
            checked.states += 1
            if len(marks) not in promises:
                promises[len(marks)] = _key(_promised(scenario, marks))
            key = (files.key, promises[len(marks)])
            if key in seen:
                continue
            seen.add(key)
            checked.distinct += 1
            try:
                inspect(files, _promised(scenario, marks), scenario.now, root)
            except Broken as broken:
                checked.broken.append(f"{reading.value}: {broken}")
                if first_only:
                    return checked
    return checked


def _promised(scenario: Scenario, marks: Sequence[Mark]) -> Promised:
    promised = at_first(scenario.now)
    for mark in marks:
        mark.what(promised)
    return promised


def _key(promised: Promised) -> str:
    return repr([_in_order(getattr(promised, part.name)) for part in fields(promised)])


def _in_order(value: object) -> object:
    if isinstance(value, Mapping):
        value = set(value.items())
    return sorted(value, key=repr) if isinstance(value, Set) else value


def inspect(files: Files, promised: Promised, now: float, root: Path) -> None:
    """Restart on a tree after a crash and check the promises. Raises Broken.

    root: a path that does not exist before and after.
    """
    files.write_to(root)
    try:
        clock = Clock()
        clock.now = now
        with Spool(root, sync="none", clock=clock, watch="poll", poll_interval=60) as spool:
            _inspect(spool, root, clock, promised)
    finally:
        remove_tree(str(root))


def _check_settings(spool: Spool, promised: Promised) -> None:
    # A deleted queue may leave settings, which a queue of a shell user would get.
    found = spool.context.settings.get(JOBS).max_depth
    if promised.queue is not None and found not in promised.depths:
        raise Broken(f"settings: {found} of {promised.depths}")
    if f".{JOBS}.lock" in spool.tree.names("config"):
        with settings_held(spool.tree, JOBS):
            pass  # the lock of a dead process blocks nobody


def _inspect(spool: Spool, root: Path, clock: Clock, promised: Promised) -> None:
    for name, exists in ((JOBS, promised.queue), ("fresh", promised.fresh)):
        if exists is not None and spool.has_queue(name) != exists:
            raise Broken(f"queue {name} {'is gone' if exists else 'is back'}")
    _check_topics(spool, root, promised)
    _check_settings(spool, promised)
    is_given = _check_batch(spool, promised)
    _run_jobs_again(spool, promised)
    outcome = _claim_by_id(spool, clock, promised)
    is_wide = spool.has_queue(THERE)
    dups = _poll(spool, clock, promised) if is_wide else []
    _check_dead(spool, promised)
    bodies = _drain(spool, clock, promised)
    if is_wide:
        _check_dups(promised, dups + _poll(spool, clock, promised))
        _check_moved(spool, promised)
    _check_by_id(outcome)
    came = set(bodies) & promised.batch
    is_one = promised.is_whole and promised.given is None
    if is_one and came != (promised.batch if is_given else set()):
        raise Broken("only a part of a batch was committed")
    promised.dying -= _check_side(spool, promised, set(bodies))
    if lost := (promised.must | promised.dying) - set(bodies):
        raise Broken(f"{lost} are lost")
    if extra := set(bodies) - promised.may:
        raise Broken(f"{extra} are torn or resurrected")
    if len(bodies) != len(set(bodies)):
        raise Broken(f"delivered twice: {sorted(bodies)}")
    if errors := errors_in(root, clock):
        raise Broken(f"fsck: {errors}")


def _claim_by_id(spool: Spool, clock: Clock, promised: Promised) -> Outcome | None:
    if not spool.has_queue(GIVEN):
        return None
    spool.make_moves()
    spool.deliver()  # finishes what a crash has left
    outcome = Outcome(spool, clock, promised.by_id)
    if problem := outcome.claim():
        raise Broken(problem)
    return outcome


def _check_by_id(outcome: Outcome | None) -> None:
    if outcome is not None and (problem := outcome.problem()):
        raise Broken(problem)


def _check_dead(spool: Spool, promised: Promised) -> None:
    if spool.has_queue(GRAVE) and (wrong := problem(spool, promised.dead)):
        raise Broken(wrong)


def _check_topics(spool: Spool, root: Path, promised: Promised) -> None:
    for name, exists in promised.topics.items():
        if exists is not None and (root / "topics" / name).exists() != exists:
            raise Broken(f"topic or subscription {name} {'is gone' if exists else 'is back'}")
    if promised.topics["quiet/jobs"]:
        found = spool.subscriptions("quiet")[JOBS]
        if found is None or found.policy != FILTER.policy:
            raise Broken("the filter of a subscription is gone")
    if promised.topics["quiet/_about.json"] and spool.context.topics.about("quiet") != ABOUT:
        raise Broken("the description of a topic is gone")


def _check_batch(spool: Spool, promised: Promised) -> bool:
    """Whether the whole batch of the consumer is given again."""
    if not promised.batch:
        return False
    with Consumer(spool, CONSUMER, visibility=HOLD_S) as consumer:
        batches, noted = consumer.batches(STREAM, 0), consumer.committed()
    if promised.is_begun and (noted is None or not (batches or noted.number)):
        raise Broken(f"a batch is committed, and its number is not noted: {noted}")
    claims = [claim for batch in batches for claim in batch.claims[JOBS]]
    if len(claims) > len({claim.id for claim in claims}):
        raise Broken(f"given in two batches: {batches}")
    ours = [claim.id for claim in claims if claim.id in FIRST]  # a batch may have other messages
    given = {FIRST[id] for id in ours if unfinished.exists(spool.tree, JOBS, id)}
    if promised.given is not None and bool(batches) != promised.given:
        raise Broken(f"a batch is {'gone' if promised.given else 'given again'}")
    # Without removed messages, and without those that were in no part at the crash.
    least = promised.batch - promised.doomed if promised.is_whole or promised.given else set()
    most = given if promised.is_taking else promised.batch
    if batches and not least <= given <= most:
        raise Broken(f"of the batch {promised.batch} only {given} is given again")
    return bool(batches)


def _run_jobs_again(spool: Spool, promised: Promised) -> None:
    """Run unacknowledged jobs again; after that their messages must be stored."""
    for number, body in sorted(promised.jobs.items()):
        try:
            is_new = bool(run_job(spool, number, body))
        except NoSuchQueue:
            if promised.queue:
                raise Broken("a job cannot be run again: its queue is gone") from None
            continue
        except FsmqError as error:
            raise Broken(f"a job cannot be run again: {error}") from error
        if is_new and number in promised.done:
            raise Broken("a committed job was done again")
        if is_new:
            promised.may.add(body)
        if is_new or body not in promised.doomed:
            promised.must.add(body)


def _check_side(spool: Spool, promised: Promised, out: set[bytes]) -> set[bytes]:
    """The messages of the queue "side", which must not be in jobs."""
    side = [message.body for message in spool.queue(SIDE).claim(100)]
    if not promised.side_must <= set(side) <= promised.side_may or len(side) > len(set(side)):
        raise Broken(f"{SIDE} has {side}: {promised.side_must} to {promised.side_may}")
    if twice := promised.dying & out & set(side):
        raise Broken(f"{twice} are in {JOBS} and in {SIDE}")
    return set(side)


def _poll(spool: Spool, clock: Clock, promised: Promised) -> list[bytes]:
    """Poll the dedup queue until it is empty."""
    bodies: list[bytes] = []
    while True:
        spool.deliver()
        prepared = dedup.poll(spool.context, DUPS, 100, 20 * HOLD_S)
        if not (messages := spool.complete(prepared)):
            return bodies
        bodies += [message.body for message in messages]
        if early := [body for body in bodies if promised.dups_held.get(body, 0.0) > clock()]:
            raise Broken(f"{early} of the dedup queue were delivered while they were held")


def _check_dups(promised: Promised, out: Sequence[bytes]) -> None:
    if lost := promised.dups_must - set(out):
        raise Broken(f"{lost} of the dedup queue are lost")
    for body, copies in Counter(out).items():
        if copies > promised.dups_may[body]:
            raise Broken(f"the dedup queue has {copies} of {body!r}")


def _check_moved(spool: Spool, promised: Promised) -> None:
    spool.make_moves()
    here, there = ([m.body for m in spool.queue(name).claim(100)] for name in (HERE, THERE))
    if sorted(here + there) != sorted(MOVING.values()):
        raise Broken(f"{HERE} has {here} and {THERE} has {there}")
    if (promised.moved and here) or (promised.moved is False and there):
        raise Broken(f"moved: {promised.moved}; {here} are in {HERE} and {there} in {THERE}")


def _drain(spool: Spool, clock: Clock, promised: Promised) -> list[bytes]:
    """Claim everything: now, a moment before each hold ends, and when all have ended."""
    # Leftovers of a deleted queue show in the next queue of its name.
    jobs = spool.queue(JOBS, create=True)
    bodies: list[bytes] = []
    ends = (clock() + 5 * HOLD_S, clock() + 9 * HOLD_S)  # of holds, and of backoffs after them
    moments = {clock(), *(until - 1 for until in promised.held.values()), *ends}
    for moment in sorted(moments):
        clock.now = moment
        for message in jobs.claim(100, visibility=10 * HOLD_S):
            bodies.append(message.body)
            if (message.deliveries or 0) <= promised.least.get(message.body, 0):
                raise Broken(f"{message.body!r} was claimed {promised.least[message.body]} times")
            if promised.held.get(message.body, 0.0) > moment:
                raise Broken(f"{message.body!r} was delivered while it was held")
        if missing := promised.free - set(bodies):
            raise Broken(f"{missing} are not ready")
    return bodies
