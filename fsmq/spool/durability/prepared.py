"""Verbs that have changed the tree and are not durable yet, and what they send into fifo queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import FsmqError, NoSuchQueue, Unavailable
from ..layout.steps import giving_way
from .drafts import Draft, Staged
from .sync import Dirty

T = TypeVar("T")
# Names of fifo queues, sorted.
Key = tuple[str, ...]


class Send:
    """Messages of one put into one fifo queue, and what becomes of them.

    ids: of all; where the deduplication id is known, that of the message that was stored before.
    stored: those that were stored now. stands: nobody takes them back, whatever fails. error: why
    nothing was stored or shown, once this is over. still: asked while nobody can delete the queue;
    if it is False, it counts as one that was deleted.
    """

    def __init__(
        self, queue: str, drafts: Sequence[Draft], still: Callable[[], bool] = lambda: True
    ) -> None:
        self.queue = queue
        self.drafts = drafts
        self.still = still
        self.ids: list[str] = []
        self.stored: list[Staged] = []
        self.stands = False
        self.error: FsmqError | None = None
        self.is_over = False

    def end(self, error: FsmqError | None) -> None:
        """Note how it has ended; what is over stays as it is."""
        if not self.is_over:
            self.error, self.is_over = error, True

    def check(self) -> None:
        """Raise its error, if it has one."""
        if not self.is_over:
            raise Unavailable(f"nothing was sent into queue {self.queue!r}")
        if self.error is not None:
            raise self.error


def _nothing() -> None:
    return None


@dataclass(slots=True, eq=False)
class Prepared(Generic[T]):
    """A verb that has changed the tree and is not durable yet.

    Sync ``dirty``, then call ``commit`` for the verb's result; or, when the sync failed, ``abort``
    to take back what can be taken back. Exactly one of the two.

    sends: what it puts into fifo queues. Where there is something, a group of `Sequencer` writes
    that, syncs it with ``dirty``, calls ``before``, the last that may fail without leaving
    anything, and shows it; then comes ``commit``.

    over: what may be called when it can only stand: it lets go of what ``abort`` needs, which may
    be of many messages, and takes long where all of it goes at once.
    """

    dirty: Dirty
    commit: Callable[[], T]
    abort: Callable[[], None] = _nothing
    sends: Sequence[Send] = ()
    before: Callable[[], None] = _nothing
    over: Callable[[], None] = _nothing

    def end(self) -> T:
        """Its result, when it is durable and its sends are over.

        If one of these has failed, all that it did is taken back, as far as nothing of it stands.
        Raises what that failed for.
        """
        for send in self.sends:
            try:
                send.check()
            except NoSuchQueue:
                continue  # whoever finishes it knows what that means
            except FsmqError:
                self.abort()
                raise
        return self.commit()


def join(all_prepared: Sequence[Prepared[T]]) -> Prepared[list[T]]:
    """Several verbs as one, to be made durable with one sync."""
    dirty = Dirty()
    for prepared in all_prepared:
        dirty.take(prepared.dirty)

    left = deque(all_prepared)

    def finish() -> list[T]:
        results: list[T] = []
        first: FsmqError | None = None
        for prepared in giving_way(_taken(left)):
            try:
                results.append(prepared.commit())
                prepared.over()
            except FsmqError as error:
                first = first or error  # a queue that was deleted must not keep the others
        if first is not None:
            raise first
        return results

    def each(do: Callable[[Prepared[T]], None]) -> None:
        for prepared in left:
            do(prepared)

    return Prepared(
        dirty,
        finish,
        lambda: each(lambda prepared: prepared.abort()),
        [send for prepared in all_prepared for send in prepared.sends],
        lambda: each(lambda prepared: prepared.before()),
    )


def _taken(things: deque[T]) -> Iterator[T]:
    """The things of a queue, which keeps none that was given: they may be many."""
    while things:
        yield things.popleft()


def key_of(prepared: Prepared[Any]) -> Key:
    """The fifo queues of a verb. Verbs of the same queues are sent together."""
    return tuple(sorted({send.queue for send in prepared.sends}))


def end_all(all_prepared: Sequence[Prepared[Any]], error: FsmqError) -> None:
    """Let all fail of some verbs that is not over yet."""
    for prepared in all_prepared:
        # Each has an error of its own: one that is raised in many threads mixes their tracebacks.
        alone = error if len(all_prepared) == 1 else Unavailable(str(error), 1)
        for send in prepared.sends:
            send.end(alone)
