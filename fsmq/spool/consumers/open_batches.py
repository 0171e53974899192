"""The open batches of a consumer, in memory and on the disk; its lock is held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import Unavailable
from ..layout.tree import Tree
from .manifest import DONE, Batch, batches, folder_of, load, path_of, save


class OpenBatches:
    """The batches that a consumer got and has not committed. The caller locks it; raises OSError.

    A batch whose storing failed may be on disk all the same: a rename whose sync fails may or may
    not hold. So a failure never changes what is in memory; a batch is stored again before its
    commit unless the file is right; and the file of a batch that was never returned to the program
    is removed before another one gets a number.
    """

    def __init__(self, tree: Tree, consumer: str) -> None:
        self._tree = tree
        self._consumer = consumer
        self._untold: set[str] = set()  # new batches, released, whose files may exist
        self._unsure: set[str] = set()  # batches whose files may have another version
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
        # Otherwise a program that repeats its last batch could be given one that it never had.
        self.forget_untold()
        return max(after, *(b.number for b in self._open.values() if b.stream == stream), 0) + 1

    def forget_untold(self) -> None:
        """Remove the files of new batches whose storing failed."""
        for name in self._untold:
            self._tree.unlink(path_of(self._tree, self._consumer, name))
        if self._untold:
            self._tree.sync_folder(folder_of(self._tree, self._consumer))
            self._unsure -= self._untold
            self._untold.clear()

    def add(self, batch: Batch) -> None:
        """Store a new batch. If that fails, the caller releases its claims and returns no batch."""
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
        """Update a batch in memory only; its file is good enough."""
        self._open[batch.name] = batch

    def note(self, batch: Batch, renewals: Iterable[int]) -> OSError | None:
        """Note the deadlines that renewals are about to set; returns the error of storing that.

        ``batch`` itself stays unchanged: nobody has set them yet.
        """
        noted = batch.with_renewals(renewals)
        self.remember(noted)
        try:
            self.store(noted)
        except OSError as error:
            return error
        return None

    def commit(self, batch: Batch) -> None:
        """Rename a batch: once that is synced, it is committed with all its messages.

        Raises Unavailable.
        """
        if batch.name in self._unsure and not self._stands(batch):
            self.store(batch)
        source, done = (path_of(self._tree, self._consumer, batch.name, *s) for s in ((), (DONE,)))
        # A network filesystem may have renamed it and yet answered ENOENT, if its server restarted.
        if not self._tree.rename(source, done, replace=True) and not self._tree.look(done):
            self._unsure.add(batch.name)  # the next commit stores it again
            raise Unavailable(f"{source} is gone")
        del self._open[batch.name]
        self._unsure.discard(batch.name)

    def _stands(self, batch: Batch) -> bool:
        """Whether the stored batch has the same messages: a full disk cannot store it again."""
        stored = load(self._tree, self._consumer, batch.name)
        return stored is not None and stored.ids == batch.ids
