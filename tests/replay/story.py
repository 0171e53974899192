"""A short story of verbs on a spool, recorded, and what is promised at each moment of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fsmq.spool import FsmqError, NoSuchQueue, NoSuchTopic, Spool
from fsmq.spool.consumer import Consumer
from fsmq.spool.fsck import check
from fsmq.spool.put import stands
from fsmq.spool.sync import SyncMode
from tests.replay.recorder import Recorder, Step, Sync, SyncAll
from tests.replay.states import Files, Reading, crash_states
from tests.replay.teller import (
    AHEAD_S,
    CONSUMER,
    FILTER,
    FIRST,
    HELD,
    HOLD_S,
    JOBS,
    LATER,
    NEW,
    READY,
    SIDE,
    Promised,
    Teller,
    run_job,
)
from tests.spool.helpers import Clock


@dataclass
class Story:
    """What was recorded, and the tree before it."""

    before: Files
    steps: list[Step]
    now: float  # Unix seconds of its clock


@cache
def first_tree() -> tuple[Files, float]:
    """The tree that every story begins with, and its time in Unix seconds."""
    clock = Clock()
    clock.advance(AHEAD_S)
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
        root = Path(folder) / "mq"
        with Spool(root, sync="none", clock=clock) as spool:
            jobs = spool.queue(JOBS)
            for name in ("held", "ready", "new"):
                jobs.put(FIRST[name], id=name)
                if name != "new":
                    spool.deliver()
                if name == "held":
                    jobs.claim(visibility=HOLD_S)
            jobs.put(LATER, id="later", delay=HOLD_S)
            spool.create_queue(SIDE)
            for topic in ("news", "quiet"):
                spool.create_topic(topic)
            for queue in (JOBS, SIDE):
                spool.topic("news").subscribe(queue)
        return Files.of(root), clock()


def record(verbs: Sequence[str], sync: SyncMode = "fsync", others: Sequence[str] = ()) -> Story:
    """Tell a story on a new spool and write down every call by which it changes the tree.

    others: verbs that other processes have done before, but for the syncs at their ends: they have
        died there, or the disk is slow. No one was told that these were done.
    """
    first, now = first_tree()
    clock = Clock()
    clock.now = now
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
        root = Path(folder) / "mq"
        first.write_to(root)
        # Opened before the recording, so that its start belongs to what stands there before.
        with Spool(root, sync=sync, workers=1, clock=clock) as spool:
            before = Files.of(root)
            recorder = Recorder(root)
            try:
                with recorder.recording():
                    teller = Teller(spool, recorder, clock)
                    teller.is_told = False
                    for verb in others:
                        _tell(teller, verb)
                        _drop_last_syncs(recorder.steps)
                    teller.is_told = True
                    for verb in verbs:
                        _tell(teller, verb)
            finally:
                recorder.close()
    return Story(before, recorder.steps, now)


def _tell(teller: Teller, verb: str) -> None:
    with suppress(NoSuchQueue, NoSuchTopic):
        getattr(teller, verb)()


def _drop_last_syncs(steps: list[Step]) -> None:
    while steps and isinstance(steps[-1], Sync | SyncAll):
        steps.pop()


def at_first(now: float) -> Promised:
    """What is promised before a story begins."""
    bodies = set(FIRST.values())
    held = {HELD: now + HOLD_S, LATER: now + HOLD_S}
    return Promised(set(bodies), set(bodies), held, {READY, NEW})


class Broken(AssertionError):
    """A promise that a crash state breaks."""


@dataclass
class Checked:
    """How many crash states were looked at, and the first that breaks a promise."""

    states: int = 0
    distinct: int = 0
    broken: list[str] = field(default_factory=list)


def check_story(
    story: Story,
    *,
    without: Callable[[Step], bool] = lambda step: False,
    readings: Sequence[Reading] = tuple(Reading),
    seen: set[object] | None = None,
    first_only: bool = False,
) -> Checked:
    """Look at every crash state of a story.

    without: tells steps (syncs) to be left out, as if the program did not do them.
    seen: states that have been looked at, by all stories.
    """
    checked = Checked()
    seen = set() if seen is None else seen
    steps = [step for step in story.steps if not without(step)]
    for reading in readings:
        for files, marks in crash_states(story.before, steps, reading):
            checked.states += 1
            promised = at_first(story.now)
            for mark in marks:
                mark.what(promised)
            key = (files.key(), _key(promised))
            if key in seen:
                continue
            seen.add(key)
            checked.distinct += 1
            try:
                look(files, promised, story.now)
            except Broken as broken:
                checked.broken.append(f"{reading.value}: {broken}")
                if first_only:
                    return checked
    return checked


def _key(promised: Promised) -> str:
    return repr(
        (
            sorted(promised.must),
            sorted(promised.may),
            sorted(promised.held.items()),
            sorted(promised.free),
            promised.queue,
            promised.fresh,
            sorted(promised.depths, key=str),
            sorted(promised.side_must),
            sorted(promised.side_may),
            sorted(promised.topics.items()),
            (sorted(promised.batch), promised.given),
            sorted(promised.jobs.items()),
            sorted(promised.doomed),
        )
    )


def look(files: Files, promised: Promised, now: float) -> None:
    """Restart on a tree that a crash has left and hold it against the promises. Raises Broken."""
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-replay-") as folder:
        root = Path(folder) / "mq"
        files.write_to(root)
        clock = Clock()
        clock.now = now
        with Spool(root, sync="none", clock=clock, watch="poll", poll_interval=60) as spool:
            _look(spool, root, clock, promised)


def _look(spool: Spool, root: Path, clock: Clock, promised: Promised) -> None:
    for name, exists in ((JOBS, promised.queue), ("fresh", promised.fresh)):
        if exists is not None and spool.has_queue(name) != exists:
            raise Broken(f"queue {name} {'is gone' if exists else 'is back'}")
    _check_topics(spool, root, promised)
    if promised.queue and spool.settings(JOBS).max_depth not in promised.depths:
        raise Broken(f"settings: {spool.settings(JOBS).max_depth} of {promised.depths}")
    is_given = _check_batch(spool, promised)
    _run_jobs_again(spool, promised)
    bodies = _drain(spool, clock, promised)
    came = set(bodies) & promised.batch
    if promised.given is None and came != (promised.batch if is_given else set()):
        raise Broken("a part of a batch was committed")
    _check_side(spool, promised)
    if lost := promised.must - set(bodies):
        raise Broken(f"{lost} are lost")
    if extra := set(bodies) - promised.may:
        raise Broken(f"{extra} are torn, or back")
    if len(bodies) != len(set(bodies)):
        raise Broken(f"handed out twice: {sorted(bodies)}")
    found = check(root, offline=True, clock=clock).findings
    if errors := [finding for finding in found if finding.severity.value == "error"]:
        raise Broken(f"fsck: {errors}")


def _check_topics(spool: Spool, root: Path, promised: Promised) -> None:
    for name, exists in promised.topics.items():
        if exists is not None and (root / "topics" / name).exists() != exists:
            raise Broken(f"topic or subscription {name} {'is gone' if exists else 'is back'}")
    if promised.topics["quiet/jobs"]:
        found = spool.subscriptions("quiet")[JOBS]
        if found is None or found.policy != FILTER.policy:
            raise Broken("the filter of a subscription is gone")


def _check_batch(spool: Spool, promised: Promised) -> bool:
    """Whether the consumer's batch is given again, all of it."""
    if not promised.batch:
        return False
    with Consumer(spool, CONSUMER, visibility=HOLD_S) as consumer:
        batches = consumer.batches("story", 0)
    claims = [claim for batch in batches for claim in batch.claims[JOBS]]
    given = {FIRST[claim.id] for claim in claims if stands(spool.context, JOBS, claim.id)}
    if promised.given is not None and bool(batches) != promised.given:
        raise Broken(f"a batch is {'gone' if promised.given else 'given again'}")
    if batches and given != promised.batch:
        raise Broken(f"of the batch {promised.batch} only {given} is given again")
    return bool(batches)


def _run_jobs_again(spool: Spool, promised: Promised) -> None:
    """Who was not told that a job is committed runs it again; from then on it must be whole."""
    for number, body in sorted(promised.jobs.items()):
        try:
            run_job(spool, number, body)
        except FsmqError as error:
            raise Broken(f"a job cannot be run again: {error}") from error
        if body not in promised.doomed:
            promised.must.add(body)


def _check_side(spool: Spool, promised: Promised) -> None:
    side = [message.body for message in spool.queue(SIDE).claim(100)]
    if not promised.side_must <= set(side) <= promised.side_may or len(side) > len(set(side)):
        raise Broken(f"{side} came out of {SIDE}: {promised.side_must} to {promised.side_may}")


def _drain(spool: Spool, clock: Clock, promised: Promised) -> list[bytes]:
    """Claim everything: now, a moment before each hold ends, and when all have ended."""
    jobs = spool.queue(JOBS)  # what is left of a deleted queue shows itself in the next of its name
    bodies: list[bytes] = []
    moments = {clock(), *(until - 1 for until in promised.held.values()), clock() + 5 * HOLD_S}
    for moment in sorted(moments):
        clock.now = moment
        for message in jobs.claim(100, visibility=10 * HOLD_S):
            bodies.append(message.body)
            if promised.held.get(message.body, 0.0) > moment:
                raise Broken(f"{message.body!r} was handed out while it was held")
        if missing := promised.free - set(bodies):
            raise Broken(f"{missing} are not ready")
    return bodies


def scratch() -> str | None:
    """Where files are made quickly."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
