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
from ..durability.unfinished import exists, finish
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

# What clients may send in one batch; and what a dialect without such a limit may put at once.
MAX_BATCH = 1000
_MAX_PUT = 100_000


class Batch:
    """What puts share that become durable together: open files, the lock of their own ids, and the
    number of all that have no own ids."""

    def __init__(self, tree: Tree) -> None:
        self.dirty = Dirty()
        self.reservations = Reservations(tree)
        self._number: PutNumber | None = None
        self._open = 0  # puts that have it, and are not over
        self._is_left = False  # whether one of them has left a dot-name

    def take_number(self, numbers: PutNumbers) -> int | None:
        """The number for one more put, until that ends; None where none can be locked.

        One for all: the kernel goes through all locks of the file for each.
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
) -> Prepared[list[str]]:
    """Write messages, all or none; their ids come from ``finish``, in the order given.

    settings: the queue's, if the caller has just read them. Whether the queue is still there is
        looked up before the messages are shown.
    collapse: leave out messages whose own id stands in the spool, instead of raising
        DuplicateMessage; and raise Reserved for one that is being put right now.
    batch: that of other puts, to share a sync with them. Abandon all of them, or none.
    still: asked behind the last look at the queue, before the messages are shown: if it is False,
        the queue counts as one that was deleted.
    stands: asked when it fails: if it is True, nothing is removed, and who recovers what dead
        puts have left shows it.
    letter_of: the subscription whose dead letters they are.

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
        checked = drafts(context, given, settings, letter_of)
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
            staging.abandon()
            if batch is not None:
                raise
            return Prepared(dirty_of(context.tree, queue), partial(_raise, error))
        except BaseException:
            staging.abandon()
            raise
    except OSError as error:
        raise unavailable(error, f"cannot store a message for queue {queue!r}") from error
    return Prepared(staging.dirty, staging.publish, staging.abandon, over=staging.forget)


def _raise(error: DuplicateMessage) -> list[str]:
    """Tell that an id is in use. Who brought its message there may not have synced that."""
    raise error


def _sent(context: Context, send: Send) -> list[str]:
    """Tell of messages that a group has sent; the ids of all of the put. Raises its error."""
    send.check()
    note_stored(context, send.queue, send.stored)
    return send.ids


def note_stored(context: Context, queue: str, staged: Sequence[Staged]) -> list[str]:
    """Note that messages are stored, and where they are shown; their ids."""
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
    """Messages of one put, written under their dot-names.

    Whoever recovers what dead puts have left keeps off while a lock is held: for own ids their
    reservation, for the others the number of the put.
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
        self._shown = False  # whether one of them is, so that somebody may have it
        self._left = False  # whether one of them is left to who recovers what dead puts have left

    def write_all(self, drafts: list[Draft]) -> None:
        own = [draft for draft in drafts if draft.own]
        if own:
            self._reserve({_bare(draft) for draft in own})
        if len(own) < len(drafts):
            self._has_number = True
            self._number = self._batch.take_number(self._context.put_numbers)
        new = self._tree.folder(NEW)
        self.dirty.folders.add(new)
        seen: set[str] = set()
        for index, draft in enumerate(giving_way(drafts)):
            try:
                if draft.own:
                    self._check_is_new(draft, seen)
                self._write(draft, new)
            except DuplicateMessage as error:
                if self._collapse:
                    self.dirty.folders |= dirty_of(self._tree, self._queue).folders
                    continue
                error.index = index if len(drafts) > 1 else None
                raise

    def _write(self, draft: Draft, new: str) -> None:
        context, number = self._context, None if draft.own else self._number
        staged = Staged(draft, f"{new}/{draft.staged(self._queue, number)}")
        self._written.append(staged)
        try:
            fd = self._tree.create(staged.path)
        except FileExistsError:
            # A crash left it. If it is complete, it may have been acknowledged: it is the message.
            if finish(self._tree, draft.staged(self._queue)).promoted:
                raise DuplicateMessage(self._queue, draft.message_id) from None
            fd = self._tree.create(staged.path)
        staged.fill(fd, self._tree, context.stamps, self.dirty, context.clock)

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
            self.abandon()
            reraise(error, f"cannot publish to queue {self._queue!r}")
        self._free()
        self._end_number(is_over=not self._left)
        return note_stored(self._context, self._queue, self._written)

    def _check_queue(self) -> None:
        """Make sure that the queue is there, and none that was made anew and takes no such message.

        Whoever deletes it from now on removes our dot-names with it, or what is shown of them: so
        no later queue of the name gets any, whatever its kind is.
        """
        if self._context.settings_of(self._queue).fifo or not self._still():
            raise NoSuchQueue(self._queue)

    def abandon(self) -> None:
        """Remove what was written, unless it stands."""
        if not self._stands():
            self._remove_written()
            return
        self.dirty.close()
        self._free({_bare(staged.draft) for staged in self._written})
        self._end_number(is_over=False)

    def forget(self) -> None:
        """Throw away what is needed to take it back."""
        free_all(self._written)

    def _remove_written(self) -> None:
        """Remove what was written. What cannot be removed now, a retry or the mover removes."""
        self.dirty.close()
        unfinished = set()
        for staged in self._written:
            draft = staged.draft
            try:
                if not staged.inode and draft.own and self._tree.look(staged.path) is not None:
                    unfinished.add(_bare(draft))  # it may be what a crash has left
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
        """Remove a message that is visible, through us or a mover that thought we had crashed.

        The inode tells it from another message of its id, which may be durable.
        """
        remove_known(
            self._context, self._queue, draft.message_id, lambda _, fd, found: found.st_ino == inode
        )

    def _show(self, staged: Staged, now_ms: int) -> None:
        draft = staged.draft
        # Somebody may have what is shown, and be done with it: so from then on the put stands. What
        # is purged or deleted meanwhile was put before that, and recovery shows what fails.
        stands = self._shown and not draft.own and self._number is not None
        try:
            if staged.show_or_leave(self._tree, self._context.stamps, self._queue, now_ms):
                self._shown = True
                return
        except FileExistsError:
            if not self._collapse:
                raise DuplicateMessage(self._queue, draft.message_id) from None
            # A move, which needs no reservation, has brought an equal message here.
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

        In order, so that of two batches with common ids one gets all of them, and not each a part.
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
        for name in siblings(draft.message_id):
            if exists(self._tree, self._queue, name):
                raise DuplicateMessage(self._queue, name)

    def _free(self, unfinished: Container[str] = ()) -> None:
        reserved, self._reserved = self._reserved, set()
        if not reserved:
            return
        try:
            self._reservations.free(self._queue, reserved, unfinished)
        except OSError:
            return  # a name is left without a lock: recovery removes it


def _bare(draft: Draft) -> str:
    return siblings(draft.message_id)[0]
