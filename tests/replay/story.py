"""A short story of verbs on a spool, recorded, and what is promised at each moment of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fsmq.spool import NewMessage, NoSuchMessage, NoSuchQueue, Queue, Spool
from fsmq.spool.fsck import check
from fsmq.spool.recovery import recover
from fsmq.spool.sync import SyncMode
from tests.replay.recorder import Recorder, Step
from tests.replay.states import Files, Reading, crash_states
from tests.spool.helpers import Clock

HOLD_S = 600.0
# The stories' clock runs ahead of the kernel's, so that no file looks freshly made.
AHEAD_S = 1000.0
JOBS = "jobs"
# What stands there before a story begins: ready, in flight, new, and hidden by its own delay.
READY, HELD, NEW, LATER = b"ready at first", b"held at first", b"new at first", b"later at first"
FIRST = {"ready": READY, "held": HELD, "new": NEW, "later": LATER}
_IDS = {body: name for name, body in FIRST.items()}


@dataclass
class Promised:
    """What must hold if everything ended now."""

    must: set[bytes] = field(default_factory=set)  # bodies that come out
    may: set[bytes] = field(default_factory=set)  # bodies that may come out
    held: dict[bytes, float] = field(default_factory=dict)  # not before so many Unix seconds
    free: set[bytes] = field(default_factory=set)  # not hidden
    queue: bool | None = True  # whether jobs exists; None: it may
    fresh: bool | None = False  # the same of the queue "fresh"
    depths: set[int | None] = field(default_factory=lambda: {None})  # the setting max_depth


Effect = Callable[[Promised], None]


class Teller:
    """Does verbs on a spool, and marks before and after each what it changes."""

    def __init__(self, spool: Spool, recorder: Recorder, clock: Clock) -> None:
        self.spool = spool
        self.clock = clock
        self._recorder = recorder
        self._posted = 0

    @property
    def jobs(self) -> Queue:
        return Queue(self.spool, JOBS)

    def mark(self, effect: Effect) -> None:
        self._recorder.mark(effect)

    # Each verb: what may be from its beginning on, the verb, what must be from its answer on.

    def put(self, **more: object) -> None:
        self._posted += 1
        body = b"put in the story, number %d" % self._posted
        self.mark(lambda p: p.may.add(body))
        self.jobs.put(body, **more)  # type: ignore[arg-type]

        def stored(p: Promised) -> None:
            p.must.add(body)

        self.mark(stored)

    def put_promoted(self) -> None:
        """A mover that starts in the middle of a put promotes it before it is synced."""
        self._posted += 1
        body = b"put in the story, number %d" % self._posted
        self.mark(lambda p: p.may.add(body))
        pending = self.spool.put(JOBS, [NewMessage(body)])
        recover(self.spool.tree, self.clock(), at_start=True)
        self.spool.complete(pending)
        self.mark(lambda p: p.must.add(body))

    def put_batch(self) -> None:
        bodies = {b"in a batch, number %d" % (self._posted + n) for n in range(2)}
        self._posted += 2
        self.mark(lambda p: p.may.update(bodies))
        self.jobs.put_many(sorted(bodies))
        self.mark(lambda p: p.must.update(bodies))

    def put_delayed(self) -> None:
        self.put(delay=HOLD_S, content_type="text/plain")

    def put_own(self) -> None:
        self.put(id=f"own-{self._posted}")

    def deliver(self) -> None:
        self.spool.deliver()

    def claim(self) -> None:
        self.mark(lambda p: p.free.clear())
        messages = self.spool.complete(self.spool.claim(JOBS, 1, HOLD_S))
        deadline = self.clock() + HOLD_S

        def claimed(p: Promised) -> None:
            p.held.update({message.body: deadline for message in messages})

        self.mark(claimed)

    def renew(self) -> None:
        def begin(p: Promised) -> None:
            p.held.pop(HELD, None)
            p.free.discard(HELD)

        self.mark(begin)
        with suppress(NoSuchMessage):
            deadline = self.jobs.renew("held", 2 * HOLD_S)
            self.mark(lambda p: p.held.update({HELD: deadline}))

    def renew_ready(self) -> None:
        """A late renewal claims again what went back to its queue."""
        self.mark(lambda p: p.free.discard(READY))
        with suppress(NoSuchMessage):
            deadline = self.jobs.renew("ready", 2 * HOLD_S)
            self.mark(lambda p: p.held.update({READY: deadline}))

    def release(self) -> None:
        self.mark(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage):
            self.jobs.release("held")
            self.mark(lambda p: p.free.add(HELD))

    def back_off(self) -> None:
        self.mark(lambda p: p.held.pop(HELD, None))
        with suppress(NoSuchMessage):
            self.jobs.release("held", 1.5 * HOLD_S)
            deadline = self.clock() + 1.5 * HOLD_S
            self.mark(lambda p: p.held.update({HELD: deadline}))

    def remove_held(self) -> None:
        self._remove(HELD)

    def remove_ready(self) -> None:
        self._remove(READY)

    def remove_new(self) -> None:
        self._remove(NEW)

    def _remove(self, body: bytes) -> None:
        self.mark(lambda p: _forget(p, {body}))
        if self.jobs.remove(_IDS[body]):
            self.mark(lambda p: p.may.discard(body))

    def purge(self) -> None:
        self.mark(lambda p: _forget(p, set(p.must)))
        self.jobs.purge()
        self.mark(lambda p: p.may.clear())

    def delete_queue(self) -> None:
        def begin(p: Promised) -> None:
            _forget(p, set(p.must))
            p.queue = None
            p.depths = {None, *p.depths}

        def end(p: Promised) -> None:
            p.may.clear()
            p.queue = False
            p.depths = {None}

        self.mark(begin)
        self.spool.delete_queue(JOBS)
        self.mark(end)

    def create_queue(self) -> None:
        self.mark(lambda p: setattr(p, "fresh", None))
        self.spool.create_queue("fresh")
        self.mark(lambda p: setattr(p, "fresh", True))

    def configure(self) -> None:
        self.mark(lambda p: p.depths.add(77))
        self.jobs.configure(max_depth=77)
        self.mark(lambda p: setattr(p, "depths", {77}))

    def reap(self) -> None:
        self.spool.reap()


VERBS = (
    "put",
    "put_promoted",
    "put_batch",
    "put_delayed",
    "put_own",
    "deliver",
    "claim",
    "renew",
    "renew_ready",
    "release",
    "back_off",
    "remove_held",
    "remove_ready",
    "remove_new",
    "purge",
    "delete_queue",
    "create_queue",
    "configure",
    "reap",
)


def _forget(promised: Promised, bodies: set[bytes]) -> None:
    """A removal has begun: nothing is promised of these any more."""
    promised.must -= bodies
    promised.free -= bodies
    for body in bodies:
        promised.held.pop(body, None)


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
        return Files.of(root), clock()


def record(verbs: Sequence[str], sync: SyncMode = "fsync") -> Story:
    """Tell a story on a new spool and write down every call by which it changes the tree."""
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
                    for verb in verbs:
                        with suppress(NoSuchQueue):
                            getattr(teller, verb)()
            finally:
                recorder.close()
    return Story(before, recorder.steps, now)


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
    if promised.queue and spool.settings(JOBS).max_depth not in promised.depths:
        raise Broken(f"settings: {spool.settings(JOBS).max_depth} of {promised.depths}")
    bodies = _drain(spool, clock, promised)
    if lost := promised.must - set(bodies):
        raise Broken(f"{lost} are lost")
    if extra := set(bodies) - promised.may:
        raise Broken(f"{extra} are torn, or back")
    if len(bodies) != len(set(bodies)):
        raise Broken(f"handed out twice: {sorted(bodies)}")
    found = check(root, offline=True, clock=clock).findings
    if errors := [finding for finding in found if finding.severity.value == "error"]:
        raise Broken(f"fsck: {errors}")


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
