"""Upsert and ensure: put messages by the ids that their producers give, into a queue with an index.

The file is linked to its id before anything is written to it, so that a dot-name with a right
checksum has had its id. An id that a message has already is taken from it after the sync, and that
message is removed, durably, before the new one is shown: there is no moment, and no crash, in which
the id has neither of the two, or both are shown.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..context import Context, Pending
from ..durability.links import (
    Refused,
    forget_link,
    hold,
    link_of_replaced,
    make_link,
    note_replaced,
    relink,
    remove_replaced,
    state_of,
    take_link,
)
from ..durability.sync import Work
from ..errors import FsmqError, InvalidValue, NoSuchMessage, NoSuchQueue, Unavailable, unavailable
from ..layout.given_ids import Given
from ..layout.message import NewMessage
from ..layout.names import check_queue
from ..layout.settings import QueueSettings
from ..layout.transitions import ACCEPTED, DELAY, IDS, NEW, QUEUES, REMOVE, State
from ..records.journal import Details
from ..views.counts import Depths
from .draft import Draft, draft
from .put import MAX_BATCH, max_open
from .removal import remove_known


class Stored(NamedTuple):
    """What an upsert stored: the messages' names, in order.

    rest: what is left to be done, if ids are taken from other messages; complete it, and what
    comes of it, before anyone is told.
    """

    names: list[str]
    rest: Pending[Stored] | None = None


def upsert(
    context: Context,
    depths: Depths,
    queue: str,
    messages: Sequence[NewMessage],
    instead_of: str | None = None,
) -> Pending[Stored]:
    """Put messages, all or none; each takes the place of the one that has its id, if there is one.

    The ``id`` of a message may be any text. Of an id that comes twice the last one counts.
    instead_of: the name of a delayed message, which alone may be replaced.

    Raises:
        NoSuchMessage: from ``finish``: that message is not delayed any more; nothing was put.
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    staging = _written(context, depths, queue, messages, only_new=False)
    staging.instead_of = instead_of
    return Pending(staging.work, staging.stored, staging.abandon)


def ensure(
    context: Context, depths: Depths, queue: str, messages: Sequence[NewMessage]
) -> Pending[list[bool]]:
    """Put those messages whose ids no message of the queue has; for each, whether it was put.

    Of any number of callers, on any host, one puts a message of an id.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    staging = _written(context, depths, queue, messages, only_new=True)

    def finish() -> list[bool]:
        staging.publish()
        return staging.is_put

    return Pending(staging.work, finish, staging.abandon)


def _written(
    context: Context, depths: Depths, queue: str, messages: Sequence[NewMessage], *, only_new: bool
) -> _Staging:
    check_queue(queue)
    if len(messages) > MAX_BATCH:
        raise InvalidValue("messages", f"are {len(messages)}; one batch takes {MAX_BATCH}")
    try:
        settings = context.settings_of(queue)
        check_index(queue, settings)
        checked = [draft(context, message, settings, is_indexed=True) for message in messages]
        depths.admit(queue, settings.max_depth, len(checked))
        staging = _Staging(context, queue, only_new)
        try:
            staging.write_all([message.id or "" for message in messages], checked)
        except BaseException:
            staging.abandon()
            raise
    except OSError as error:
        raise unavailable(error, f"cannot store a message for queue {queue!r}") from error
    return staging


def check_index(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidValue unless the queue has an index."""
    if not settings.index:
        raise InvalidValue("queue", f"{queue!r} was created without an index of ids")


class _Written(NamedTuple):
    draft: Draft
    given_id: str
    path: str  # its dot-name, relative to the root
    inode: int
    has_id: bool  # else the id is taken from the message that has it


class _Staging:
    """Messages written under their dot-names, each locked until it is whole."""

    def __init__(self, context: Context, queue: str, only_new: bool) -> None:
        tree = context.tree
        self.work = Work(folders={tree.folder(NEW), tree.folder(IDS, queue)})
        self.is_put: list[bool] = []
        self.instead_of: str | None = None
        self.must_stay = False
        self._context = context
        self._tree = tree
        self._queue = queue
        self._only_new = only_new
        self._written: list[_Written] = []
        self._replaced: dict[str, tuple[str, int]] = {}  # by given id: names and inodes

    def write_all(self, given_ids: list[str], drafts: list[Draft]) -> None:
        last = {given_id: number for number, given_id in enumerate(given_ids)}
        for number, (given_id, one) in enumerate(zip(given_ids, drafts, strict=True)):
            if self._only_new or last[given_id] == number:
                self.is_put.append(self._write(given_id, one))
        if not all(self.is_put):
            # What is said to stand must stand after a crash: its writer may not have synced yet.
            tree = self._tree
            self.work.folders |= {tree.folder(QUEUES, self._queue), tree.folder(DELAY)}

    def _write(self, given_id: str, draft: Draft) -> bool:
        tree = self._tree
        path = tree.folder(NEW, draft.staged(self._queue))
        fd = tree.create(path)
        is_kept = len(self.work.files) < max_open()
        if is_kept:
            self.work.files.append(fd)
        else:
            self.work.written.append(path)
        try:
            # While it is empty its link shows that a put of the id is under way, or has died.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                return self._fill(given_id, draft, path, fd)
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            if not is_kept:
                os.close(fd)

    def _fill(self, given_id: str, draft: Draft, path: str, fd: int) -> bool:
        tree, inode = self._tree, os.fstat(fd).st_ino
        try:
            has_id = make_link(tree, self._queue, given_id, path, inode)
        except FileNotFoundError:
            tree.unlink(path)
            raise NoSuchQueue(self._queue) from None  # it was deleted just now
        except BaseException:
            tree.unlink(path)
            raise
        if self._only_new and not has_id:
            tree.unlink(path)
            return False
        self._written.append(_Written(draft, given_id, path, inode, has_id))
        if not has_id:
            note_replaced(tree, self._queue, given_id, draft.message_id)
        draft.write(fd)
        if draft.delay_ms is not None:
            deadline_ms = self._context.now_ms() + draft.delay_ms
            mtime = self._context.stamps.encode(draft.message_id, deadline_ms, 0)
            os.utime(fd, ns=(mtime, mtime))
        return True

    def stored(self) -> Stored:
        """Go on when the messages are durable: show them, or take their ids from others first."""
        if all(written.has_id for written in self._written) and self.instead_of is None:
            return Stored(self.publish())
        try:
            for written in self._written:
                if not written.has_id or self.instead_of is not None:
                    self._take_id(written)
        except OSError as error:
            self.abandon()
            raise unavailable(error, f"cannot publish to queue {self._queue!r}") from error
        except BaseException:
            self.abandon()
            raise
        # What is shown has its id after any crash: so the links first.
        work = Work(folders={self._tree.folder(IDS, self._queue)})
        return Stored([], Pending(work, self._replace, self.abandon))

    def _replace(self) -> Stored:
        """Remove the messages whose ids were taken, before the new ones are shown.

        A crash does the same: whoever shows one then finds what it replaces by its second link.
        """
        tree = self._tree
        work = Work(folders={tree.folder(name) for name in (NEW, DELAY, REMOVE)})
        work.folders.add(tree.folder(QUEUES, self._queue))
        for name, inode in self._replaced.values():
            # Without its links a claim that finds it removes it, as long as the new one stands.
            with suppress(OSError):
                remove_replaced(tree, self._queue, name, inode)
        return Stored([], Pending(work, self._show_instead, self._show_all_the_same))

    def _show_instead(self) -> Stored:
        """Show the messages when what they replace has gone: from here on they must stay."""
        for written in self._written:
            self._forget_replaced(written)
        self.must_stay = True
        return Stored(self.publish())

    def _show_all_the_same(self) -> None:
        """What they replace has gone, and might be back after a crash: the sync has failed."""
        with suppress(FsmqError):
            self._show_instead()

    def _forget_replaced(self, written: _Written) -> None:
        if not written.has_id:
            with suppress(OSError):
                path = link_of_replaced(self._tree, self._queue, written.draft.message_id)
                self._tree.unlink(path)

    def publish(self) -> list[str]:
        """Show the messages, which are durable now, to the mover; their names."""
        try:
            for written in self._written:
                self._show(written)
            if not self._tree.has_queue(self._queue):
                raise NoSuchQueue(self._queue)
        except OSError as error:
            if not self.must_stay:  # else the mover shows them
                self.abandon()
            raise unavailable(error, f"cannot publish to queue {self._queue!r}") from error
        except BaseException:
            self.abandon()
            raise
        accepted: list[tuple[str, Details]] = [
            (written.draft.message_id, {"size": written.draft.size}) for written in self._written
        ]
        context = self._context
        context.record_all(ACCEPTED, self._queue, accepted)
        if context.coming is not None:
            ready = [w.draft.message_id for w in self._written if w.draft.delay_ms is None]
            if ready:
                context.coming.note(self._queue, ready[-1])
        return [message_id for message_id, _ in accepted]

    def _take_id(self, written: _Written) -> None:
        path = written.path
        if self._tree.stat(path) is None:
            path = self._tree.path(State.NEW, self._queue, written.draft.message_id)
        # Whoever finds the new message complete shows it, and removes the other one before: not
        # while it may yet be taken back.
        held = hold(self._tree, path) if self.instead_of is not None else None
        try:
            found = self._take_link(written, path)
            if self.instead_of is not None and (
                # A removal needs no latch: what was removed just now must not come back.
                found is None or state_of(self._tree, self._queue, *found) is None
            ):
                raise NoSuchMessage(self._queue, self.instead_of, "that is delayed")
            if found is not None:
                self._replaced[written.given_id] = found
        finally:
            if held is not None:
                held.unlock()

    def _take_link(self, written: _Written, path: str) -> tuple[str, int] | None:
        name = written.draft.message_id
        given_id, inode = written.given_id, written.inode
        try:
            return take_link(self._tree, self._queue, given_id, name, path, inode, self._is_free)
        except FileNotFoundError:
            raise _was_removed(written) from None
        except Refused:
            return None

    def _is_free(self, given: Given, found: os.stat_result) -> bool:
        """Whether a message may be replaced."""
        if self.instead_of is None:
            return True
        path = self._tree.path(State.DELAY, self._queue, given.name)
        here = self._tree.look(path)
        is_there = here is not None and here.st_ino == found.st_ino
        deliveries = self._context.stamps.deliveries(given.name, found.st_mtime_ns)
        return is_there and given.name == self.instead_of and not deliveries

    def _show(self, written: _Written) -> None:
        tree, name = self._tree, written.draft.message_id
        if tree.rename(written.path, tree.path(State.NEW, self._queue, name)):
            return
        # A mover, or a put of the same id, has shown it already; or the queue has been deleted.
        if state_of(tree, self._queue, name, written.inode) is None:
            if not tree.has_queue(self._queue):
                raise NoSuchQueue(self._queue)
            if tree.stat(tree.path(State.REMOVE, self._queue, name)) is None:
                raise _was_removed(written)

    def abandon(self) -> None:
        """Remove what was written. What cannot be removed now, the mover removes."""
        self.work.close()
        for written in self._written:
            try:
                self._abandon(written)
            except (OSError, Unavailable):
                continue  # fsck finds it

    def _abandon(self, written: _Written) -> None:
        tree, queue = self._tree, self._queue
        replaced = self._replaced.get(written.given_id)
        # Nobody shows it meanwhile, in the place of the one that it has replaced.
        held = hold(tree, written.path) if replaced is not None else None
        try:
            has_gone = replaced is not None and state_of(tree, queue, *replaced) is None
            if has_gone and tree.has_queue(queue):
                return  # so this one has to stay
            if not tree.unlink(written.path):
                _remove(self._context, queue, written.draft.message_id, written.inode)
        finally:
            if held is not None:
                held.unlock()
        forget_link(tree, queue, written.given_id, written.inode)
        self._forget_replaced(written)
        if replaced is not None:
            state = state_of(tree, queue, *replaced)
            if state is not None:
                relink(tree, tree.path(state, queue, replaced[0]), queue)


def _remove(context: Context, queue: str, name: str, inode: int) -> None:
    remove_known(context, queue, name, lambda _, fd, found: found.st_ino == inode)


def _was_removed(written: _Written) -> Unavailable:
    return Unavailable(
        f"the message of the id {written.given_id!r} was removed before it was finished"
    )
