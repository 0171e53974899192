"""The context of all verbs: a spool as one process sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar, Unpack

from .durability.prepared import Prepared as Prepared
from .durability.prepared import join as join
from .durability.put_numbers import PutNumbers
from .durability.sync import Syncer
from .errors import NoSuchQueue, as_unavailable
from .index.counting import Counts, count
from .index.ready import Ready
from .index.ready_index import GRACE_S
from .layout.messages.compression import MAX_PLAIN_BYTES
from .layout.messages.message import MAX_HEADER_BYTES, NewMessage
from .layout.names import check_queue
from .layout.settings import QueueSettings
from .layout.settings_store import SettingsStore
from .layout.stamps import Stamps
from .layout.topics.topics import Topics
from .layout.transitions import MOVED, State, Step, Transition
from .layout.tree import Tree
from .limits.depths import Depths
from .limits.groups import Groups
from .limits.limiter import Limiter
from .limits.sequencer import Sequencer
from .records.journal import Details, NoJournal
from .records.metrics import Metrics

T = TypeVar("T")
ToLog: TypeAlias = Callable[[str, NewMessage], Callable[[], int]]


@dataclass(slots=True)
class Context:
    """An opened spool.

    clock: gives Unix seconds. keeps_inodes: a file keeps its inode number for life, and it is the
    same for every process. to_log: publishes to a log; set by the spool, as logs are a layer above.
    """

    tree: Tree
    stamps: Stamps
    settings: SettingsStore
    ready: Ready
    topics: Topics
    clock: Callable[[], float] = time.time
    keeps_inodes: bool = True
    max_message_bytes: int = 16 * 1024 * 1024
    metrics: Metrics = field(default_factory=Metrics)
    journal: NoJournal = field(default_factory=NoJournal)
    limiter: Limiter = field(init=False)
    groups: Groups = field(init=False)
    sequencer: Sequencer = field(init=False)
    put_numbers: PutNumbers = field(init=False)
    depths: Depths = field(init=False)
    to_log: ToLog = field(init=False)

    def __post_init__(self) -> None:
        self.depths = Depths(self.tree, lambda queue: self.counts(queue).total)
        self.limiter = Limiter(self)
        self.groups = Groups(self)
        self.sequencer = Sequencer(self)
        self.put_numbers = PutNumbers(self.tree)

    def close(self) -> None:
        """Close the descriptors of the journal and of puts."""
        self.journal.close()
        self.put_numbers.close()

    @property
    def max_plain_bytes(self) -> int:
        """The limit of a decompressed body, as protection against decompression bombs."""
        return max(self.max_message_bytes, MAX_PLAIN_BYTES)

    @property
    def max_file_bytes(self) -> int:
        """The largest message file that is read as a whole."""
        return self.max_plain_bytes + MAX_HEADER_BYTES

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    def counts(self, queue: str) -> Counts:
        """The number of a queue's messages in each state, by listing.

        Raises InvalidValue, NoSuchQueue and Unavailable.
        """
        check_queue(queue)
        with as_unavailable(f"cannot count queue {queue!r}"):
            if not self.tree.has_queue(queue):
                raise NoSuchQueue(queue)
            return count(self.tree, self.stamps, queue, self.now_ms())

    def settings_of(self, queue: str) -> QueueSettings:
        """The settings of an existing queue. Raises NoSuchQueue and OSError."""
        if not self.tree.has_queue(queue):
            raise NoSuchQueue(queue)
        return self.settings.get(queue)

    def is_same_kind(self, queue: str, before: QueueSettings) -> bool:
        """Whether a queue still has the kind it had in ``before``.

        It changes if the queue is deleted and created again. Whoever has acted on ``before`` checks
        this before reporting success. Raises OSError.
        """
        return self.settings.get(queue).kind == before.kind

    def pause_of(self, queue: str, at_most: float) -> float:
        """Seconds until a claim that got nothing can get something, even if nothing arrives."""
        if self.limiter.shut and self.limiter.is_shut(queue):
            return min(at_most, self.limiter.look_in(queue))
        if not self.ready.hears_all and self.ready.count(queue) and self.groups.polls(queue):
            return min(at_most, self.ready.poll_interval)
        ripens_in = self._ripens_in(queue)
        if self.limiter.has_just_opened(queue) and self.ready.count(queue):
            ripens_in = GRACE_S
        return at_most if ripens_in is None else min(at_most, ripens_in)

    def _ripens_in(self, queue: str) -> float | None:
        """Seconds until a retry for messages that could not be claimed; None if there are none."""
        try:
            in_groups = self.settings.get(queue).in_groups
        except OSError:
            in_groups = False  # the next claim reports the error
        return self.groups.ripens_in(queue) if in_groups else self.ready.ripens_in(queue)

    def make(
        self,
        how: Transition,
        queue: str,
        message_id: str,
        to_queue: str | None = None,
        to_id: str | None = None,
        **details: Unpack[Details],
    ) -> bool:
        """Make a transition that waits for no sync, and record it; False if the message is gone.

        Raises what `Tree.move` raises.
        """
        if not self.tree.move(how, queue, message_id, to_queue, to_id):
            return False
        if how.step is MOVED:
            details["source"] = queue
            if to_id is not None:
                details["was"] = message_id
        queue, message_id = to_queue or queue, to_id or message_id
        if how.target is State.READY:
            self.ready.add(queue, message_id)
        self.record(how.step, queue, message_id, **details)
        return True

    def record(self, step: Step, queue: str, message_id: str, **details: Unpack[Details]) -> None:
        """Count a step and note it in the journal; call it when the step is durable."""
        if step.metric is not None:
            self.metrics.count((step.metric, details.get("source", queue)))
        self.journal.note(step.event, queue, message_id, **details)

    def record_all(self, step: Step, queue: str, messages: Sequence[tuple[str, Details]]) -> None:
        """Do the same for several messages of a queue, each with its id and details."""
        if not messages:
            return
        if step.metric is not None:
            self.metrics.count((step.metric, queue), len(messages))
        self.journal.note_all(step.event, queue, messages)


class OpenSpool(Protocol):
    """The parts of a spool that the layers above the verbs need."""

    @property
    def context(self) -> Context: ...

    @property
    def syncer(self) -> Syncer: ...

    def complete(self, prepared: Prepared[T]) -> T:
        """Make a verb durable and return its result. Raises Unavailable."""


def complete(context: Context, syncer: Syncer, prepared: Prepared[T]) -> T:
    """Make a verb durable and return its result. Raises Unavailable on a disk error."""
    dirty = prepared.dirty
    try:
        if prepared.sends:
            context.sequencer.send(prepared, syncer)
        elif not dirty.is_clean:
            syncer.sync(dirty)
    except BaseException:  # also from a signal handler: nobody will finish the verb
        prepared.abort()
        raise
    return prepared.end()
