"""Put: write under a dot-name, sync, rename to where it can be claimed, or into ``delay/``.

Whatever the moment of a crash, a message is seen whole or not at all: a dot-name carries a checksum
of the file, and the mover promotes what is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from itertools import islice

from ..context import Context, Prepared
from ..durability.drafts import Draft, Staged, was_removed
from ..durability.locks import Reservations
from ..durability.prepared import Send
from ..durability.put_numbers import PutNumber, PutNumbers
from ..durability.sync import Dirty
from ..durability.unfinished import exists, finish, found_as
from ..errors import (
    DuplicateMessage,
    InvalidValue,
    NoSuchQueue,
    Reserved,
    Unavailable,
    reraise,
    unavailable,
)
from ..layout.messages.message import NewMessage
from ..layout.names import check_queue, siblings
from ..layout.settings import QueueSettings
from ..layout.steps import free_all, giving_way, in_order
from ..layout.transitions import ACCEPTED, DEFERRED, DELIVERED, NEW, State
from ..layout.tree import Tree
from ..records.journal import Details
from .draft import drafts
from .removal import dirty_of
from .remove_known import remove_known

# The limit of a client's batch, and that of one put by a dialect without such a limit.
MAX_BATCH = 1000
_MAX_PUT = 100_000


class Batch:
    """Shared by puts that become durable together: open files, the lock of their own ids, and the
    number of all puts without own ids."""

    def __init__(self, tree: Tree) -> None:
        self.dirty = Dirty()
        self.reservations = Reservations(tree)
        self._number: PutNumber | None = None
        self._open = 0  # puts that have it, and are not over
        self._is_left = False  # whether one of them has left a dot-name

    def take_number(self, numbers: PutNumbers) -> int | None:
        """The number for one more put, until that ends; None where none can be locked.

        One number for all: the kernel goes through all locks of the file for each new one.
        """
        if not self._open:
            self._number, self._is_left = numbers.take(), False
        self._open += 1
        return None if self._number is None else self._number.value

    def end_number(self, numbers: PutNumbers, *, is_over: bool) -> None:
        """End one of these puts. is_over: none of its dot-names is left."""
        self._open -= 1
        self._is_left |= not is_over
        if not self._open:
            number, self._number = self._number, None
            numbers.end(number, is_over=not self._is_left)


def put(
    context: Context,
    queue: str,
    messages: Iterable[NewMessage],
    settings: QueueSettings | None = None,
    *,
    collapse: bool = False,
    batch: Batch | None = None,
    still: Callable[[], bool] = lambda: True,
    stands: Callable[[], bool] = lambda: False,
    letter_of: str | None = None,
    dead: bytes | None = None,
) -> Prepared[list[str]]:
    """Write messages, all or none; their ids come from ``commit``, in the order given.

    settings: the queue's, if the caller has just read them. That the queue still exists is checked
        before the messages are shown.
    collapse: leave out messages whose own id is in the spool, instead of raising DuplicateMessage;
        and raise Reserved for one that is being put right now.
    batch: that of other puts, to share a sync with them. Abort all of them, or none.
    still: called after the last look at the queue, before the messages are shown: if it returns
        False, the queue counts as deleted.
    stands: called when the put fails: if it returns True, nothing is removed, and recovery shows
        all.
    letter_of: the subscription whose dead letters they are.
    dead: the attribute of dead letters, if they are some.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, DuplicateMessage, QueueFull, Unavailable
    """
    check_queue(queue)
    try:
        if settings is None:
            settings = context.settings.get(queue)
            if not settings.fifo and not context.tree.has_queue(queue):
                raise NoSuchQueue(queue)
        given = list(islice(messages, _MAX_PUT + 1))
        checked = drafts(context, queue, given, settings, letter_of)
        if dead is not None:
            checked = [draft._replace(dead=dead) for draft in checked]
        if len(checked) > _MAX_PUT:
            raise InvalidValue("messages", f"are more than the {_MAX_PUT} that one batch takes")
        context.depths.admit(queue, settings.max_depth, len(checked))
        shared = batch or Batch(context.tree)
        if settings.fifo:
            send = Send(queue, checked, still)
            return Prepared(shared.dirty, partial(_sent, context, send), sends=[send])
        staging = Staging(context, queue, collapse, shared, still, stands)
        try:
            staging.write_all(checked)
        except DuplicateMessage as error:
            staging.abort()
            if batch is not None:
                raise
            return Prepared(dirty_of(context.tree, queue), partial(_raise, error))
        except BaseException:
            staging.abort()
            raise
    except OSError as error:
        raise unavailable(error, f"cannot store a message for queue {queue!r}") from error
    return Prepared(staging.dirty, staging.publish, staging.abort, over=staging.forget)


def _raise(error: DuplicateMessage) -> list[str]:
    """Raise it only after a sync: whoever brought that message there may not have synced it."""
    raise error


def _sent(context: Context, send: Send) -> list[str]:
    """Record what a group has sent; returns the ids of the put, or raises its error."""
    send.check()
    note_stored(context, send.queue, send.stored)
    return send.ids


def note_stored(context: Context, queue: str, staged: Sequence[Staged]) -> list[str]:
    """Record that messages are stored, and where they were shown; returns their ids."""
    stored: list[tuple[str, Details]] = []
    of_state: dict[State | None, list[tuple[str, Details]]] = {}
    for one in staged:
        noted: tuple[str, Details] = (one.draft.message_id, {"size": one.draft.size})
        stored.append(noted)
        of_state.setdefault(one.state, []).append(noted)
    context.record_all(ACCEPTED, queue, stored)
    if shown := of_state.get(State.READY):
        context.ready.add(queue, *[message_id for message_id, _ in shown])
        context.record_all(DELIVERED, queue, shown)
    if hidden := of_state.get(State.DELAY):
        context.record_all(DEFERRED, queue, hidden)
    return [message_id for message_id, _ in stored]


class Staging:
    """The messages of one put, written under their dot-names.

    Recovery leaves them alone while a lock is held: the reservation of own ids, and for other
    messages the number of the put.
    """

    def __init__(
        self,
        context: Context,
        queue: str,
        collapse: bool,
        batch: Batch,
        still: Callable[[], bool] = lambda: True,
        stands: Callable[[], bool] = lambda: False,
    ) -> None:
        self._still = still
        self._stands = stands
        self.dirty = batch.dirty
        self._batch = batch
        self._reservations = batch.reservations
        self._collapse = collapse
        self._context = context
        self._tree = context.tree
        self._queue = queue
        self._written: list[Staged] = []
        self._reserved: set[str] = set()
        self._has_number = False
        self._number: int | None = None  # that of its dot-names
        self._shown = False  # whether one was, so that a consumer may have it
        self._left = False  # whether one is left to recovery

    def write_all(self, drafts: list[Draft]) -> None:
        own = [draft for draft in drafts if draft.own]
        if own:
            self._reserve({_bare(draft) for draft in own})
        if len(own) < len(drafts):
            self._has_number = True
            self._number = self._batch.take_number(self._context.put_numbers)
        self.dirty.folders.add(self._tree.folder(NEW))
        seen: set[str] = set()
        for index, draft in enumerate(giving_way(drafts)):
            try:
                if draft.own:
                    self._check_is_new(draft, seen)
                self._write(draft)
            except DuplicateMessage as error:
                if self._collapse:
                    self.dirty.folders |= dirty_of(self._tree, self._queue).folders
                    continue
                error.index = index if len(drafts) > 1 else None
                raise

    def _write(self, draft: Draft) -> None:
        context, number = self._context, None if draft.own else self._number
        now_ms = context.now_ms()
        staged = draft.staged(self._tree, context.stamps, self._queue, now_ms, number)
        self._written.append(staged)
        try:
            fd = self._tree.create(staged.path)
        except FileExistsError:
            # A crash left it. If it is complete, it may have been acknowledged: it is the message.
            if finish(self._tree, staged.path.rpartition("/")[2]).promoted:
                raise DuplicateMessage(self._queue, draft.message_id) from None
            fd = self._tree.create(staged.path)
        staged.fill(fd, self._tree, self.dirty)

    def publish(self) -> list[str]:
        """Show the messages, which are durable now."""
        try:
            self._check_queue()
            now_ms = self._context.now_ms()
            for staged in giving_way(self._written):
                self._show(staged, now_ms)
        except NoSuchQueue:
            self._remove_written()
            raise
        except BaseException as error:
            self.abort()
            reraise(error, f"cannot publish to queue {self._queue!r}")
        self._free()
        self._end_number(is_over=not self._left)
        return note_stored(self._context, self._queue, self._written)

    def _check_queue(self) -> None:
        """Make sure that the queue exists, and is not a new one that takes no such messages.

        A deletion from now on removes our dot-names, or the messages shown, with the queue: no
        later queue of that name gets any of them.
        """
        if self._context.settings_of(self._queue).fifo or not self._still():
            raise NoSuchQueue(self._queue)

    def abort(self) -> None:
        """Remove what was written, unless it stands."""
        if not self._stands():
            self._remove_written()
            return
        self.dirty.close()
        self._free({_bare(staged.draft) for staged in self._written})
        self._end_number(is_over=False)

    def forget(self) -> None:
        """Free what only `abort` needs."""
        free_all(self._written)

    def _remove_written(self) -> None:
        """Remove what was written. A retry or the mover removes what cannot be removed now."""
        self.dirty.close()
        unfinished = set()
        for staged in self._written:
            draft = staged.draft
            try:
                if not staged.inode and draft.own and self._tree.look(staged.path) is not None:
                    unfinished.add(_bare(draft))  # it may be a crash's leftover
                elif not self._tree.unlink(staged.path) and staged.inode:
                    self._undo(draft, staged.inode)
            except (OSError, Unavailable):
                unfinished.add(_bare(draft))
        self._free(unfinished)
        self._end_number(is_over=not unfinished)

    def _end_number(self, *, is_over: bool) -> None:
        has_number, self._has_number = self._has_number, False
        if has_number:
            self._batch.end_number(self._context.put_numbers, is_over=is_over)

    def _undo(self, draft: Draft, inode: int) -> None:
        """Remove a message that we, or a mover that thought we had crashed, have made visible.

        The inode distinguishes it from another message of its id, which may be durable.
        """
        remove_known(
            self._context, self._queue, draft.message_id, lambda _, fd, found: found.st_ino == inode
        )

    def _show(self, staged: Staged, now_ms: int) -> None:
        draft = staged.draft
        # A message that is shown may already be consumed: from then on the put counts as
        # successful. A purge or deletion of the rest counts as later; recovery shows what fails
        # here.
        stands = self._shown and not draft.own and self._number is not None
        try:
            if staged.show_or_leave(self._tree, self._context.stamps, self._queue, now_ms):
                self._shown = True
                return
        except FileExistsError:
            if not self._collapse:
                raise DuplicateMessage(self._queue, draft.message_id) from None
            # A move, which needs no reservation, has brought a message of this id here.
            self._tree.unlink(staged.path)
            return
        except OSError:
            if not stands:
                raise
        if stands:
            self._left = True
            return
        # The dot-name is gone. A mover that thought we had crashed has promoted it, or removed it
        # if its clock is far off.
        if not exists(self._tree, self._queue, draft.message_id, gone_too=True):
            if not self._tree.has_queue(self._queue):
                raise NoSuchQueue(self._queue)  # deleted just now, with its unfinished puts
            raise was_removed(draft)

    def _reserve(self, ids: set[str]) -> None:
        """Keep other puts of these ids out until this one is over.

        In order, so that one of two batches with common ids gets all, and not each a part.
        """
        for bare in giving_way(in_order(ids)):
            if self._reservations.take(self._queue, bare):
                self._reserved.add(bare)
            elif self._collapse:
                raise Reserved(bare)
            else:
                raise Unavailable(f"another put of the id {bare!r} is under way")

    def _check_is_new(self, draft: Draft, seen: set[str]) -> None:
        bare = _bare(draft)
        if bare in seen:
            raise DuplicateMessage(self._queue, bare)  # twice in one batch
        seen.add(bare)
        name = found_as(self._tree, self._queue, siblings(draft.message_id))
        if name is not None:
            raise DuplicateMessage(self._queue, name)

    def _free(self, unfinished: Container[str] = ()) -> None:
        reserved, self._reserved = self._reserved, set()
        if not reserved:
            return
        try:
            self._reservations.free(self._queue, reserved, unfinished)
        except OSError:
            return  # a name stays without a lock: recovery removes it


def _bare(draft: Draft) -> str:
    return siblings(draft.message_id)[0]
