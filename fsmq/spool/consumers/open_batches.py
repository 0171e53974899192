"""The open batches of a consumer, in memory and on the disk; its lock is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..layout.tree import Tree
from .manifest import DONE, Batch, batches, folder_of, load, path_of, save


class OpenBatches:
    """What a consumer was given and has not committed. Hold a lock of your own; raises OSError.

    What could not be stored may stand all the same: a rename whose sync fails is done, or not. So
    what is in memory is never taken back for that, and is stored before it is committed, unless it
    stands; and what may stand of a batch of which nobody was told is removed before another one
    gets a number.
    """

    def __init__(self, tree: Tree, consumer: str) -> None:
        self._tree = tree
        self._consumer = consumer
        self._untold: set[str] = set()  # batches that may stand, whose claims were released
        self._unsure: set[str] = set()  # batches of which another version may stand
        self._open = {batch.name: batch for batch in batches(tree, consumer)}

    def __iter__(self) -> Iterator[Batch]:
        return iter([*self._open.values()])

    def get(self, name: str) -> Batch | None:
        """One of them as it is now; None if it is not open (any more)."""
        return self._open.get(name)

    def of(self, stream: str, after: int, upto: int | None = None) -> list[Batch]:
        """Those of a stream beyond a number, in order."""
        found = [b for b in self._open.values() if b.stream == stream and b.number > after]
        return sorted(
            (b for b in found if upto is None or b.number <= upto), key=lambda b: b.number
        )

    def next_number(self, stream: str, after: int) -> int:
        """The number of the next batch of a stream."""
        # Else a program that runs its last batch again would be given one that was never in it.
        self.forget_untold()
        return max(after, *(b.number for b in self._open.values() if b.stream == stream), 0) + 1

    def forget_untold(self) -> None:
        """Remove what may stand of new batches that could not be stored."""
        for name in self._untold:
            self._tree.unlink(path_of(self._tree, self._consumer, name))
        if self._untold:
            self._tree.sync_folder(folder_of(self._tree, self._consumer))
            self._unsure -= self._untold
            self._untold.clear()

    def add(self, batch: Batch) -> None:
        """Store a new batch. If that fails, release its claims: nobody is told of it."""
        self._untold.add(batch.name)
        self.store(batch)
        self._untold.discard(batch.name)

    def store(self, batch: Batch) -> None:
        """Store a batch as it is now."""
        self._unsure.add(batch.name)
        save(self._tree, self._consumer, batch)
        self._unsure.discard(batch.name)
        self._open[batch.name] = batch

    def remember(self, batch: Batch) -> None:
        """Have a batch as it is now in memory; what is stored says enough."""
        self._open[batch.name] = batch

    def note(self, batch: Batch, renewals: Iterable[int]) -> OSError | None:
        """Note what renewals are about to set; why that could not be stored.

        In ``batch`` itself they are not: nobody but another has set them yet.
        """
        noted = batch.with_renewals(renewals)
        self.remember(noted)
        try:
            self.store(noted)
        except OSError as error:
            return error
        return None

    def commit(self, batch: Batch) -> None:
        """Rename a batch: when that is synced, it is committed, with all messages that it has."""
        if batch.name in self._unsure and not self._stands(batch):
            self.store(batch)
        source, done = (path_of(self._tree, self._consumer, batch.name, *s) for s in ((), (DONE,)))
        self._tree.rename(source, done, replace=True)  # which is there if this failed, though done
        del self._open[batch.name]
        self._unsure.discard(batch.name)

    def _stands(self, batch: Batch) -> bool:
        """Whether what is stored of a batch has its messages: a full disk takes no more."""
        stored = load(self._tree, self._consumer, batch.name)
        return stored is not None and stored.ids == batch.ids
