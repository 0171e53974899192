"""Verbs that have changed the tree but are not durable yet, and what they send to fifo queues."""

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
    """The messages of one put into one fifo queue, and the outcome.

    ids: of all messages; where a deduplication id is known, that of the message stored before.
    stored: those that were stored now. stands: nothing is taken back any more, whatever fails.
    error: why nothing was stored or shown, once this is over. still: called while nobody can delete
    the queue; if it returns False, the queue counts as deleted.
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
        """Note the outcome; only the first one counts."""
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
    """A verb that has changed the tree but is not durable yet.

    Sync ``dirty``, then call ``commit`` for the verb's result; or, when the sync failed, ``abort``
    to take back what can be taken back. Exactly one of the two.

    sends: what it puts into fifo queues. If there is any, a group of `Sequencer` writes it, syncs
    it with ``dirty``, calls ``before``, the last step that can fail without leaving anything, and
    shows it; then ``commit`` is called.

    over: may be called once nothing can be aborted any more: frees what ``abort`` needs, which for
    many messages takes long if it is freed all at once.
    """

    dirty: Dirty
    commit: Callable[[], T]
    abort: Callable[[], None] = _nothing
    sends: Sequence[Send] = ()
    before: Callable[[], None] = _nothing
    over: Callable[[], None] = _nothing

    def end(self) -> T:
        """The result, once it is durable and its sends are over.

        If a send has failed, aborts the verb, which takes back what does not stand, and raises the
        error.
        """
        for send in self.sends:
            try:
                send.check()
            except NoSuchQueue:
                continue  # `commit` handles a deleted queue
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
                first = first or error  # a deleted queue must not hold up the others
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
    """Takes items out one by one, so that the memory of many is freed gradually."""
    while things:
        yield things.popleft()


def key_of(prepared: Prepared[Any]) -> Key:
    """The fifo queues of a verb. Verbs with the same queues are sent together."""
    return tuple(sorted({send.queue for send in prepared.sends}))


def end_all(all_prepared: Sequence[Prepared[Any]], error: FsmqError) -> None:
    """Fail all sends of some verbs that are not over yet."""
    for prepared in all_prepared:
        # A new error for each: raising one object in many threads would mix their tracebacks.
        alone = error if len(all_prepared) == 1 else Unavailable(str(error), 1)
        for send in prepared.sends:
            send.end(alone)
