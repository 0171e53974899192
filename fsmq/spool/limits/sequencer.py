"""Sends into fifo queues: puts that wait for the same queues are sent together, as one group.

A group has the locks of its queues from the recovery of what others left to the last rename, and
goes through three states, noted in the line of each queue (`send_lines`): written, settled, over.
Any failure ends it where it is, and the next holder of the lock recovers what it left. A put is
answered only once its own messages are shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..durability.dedup_records import DedupRecords, Record
from ..durability.drafts import was_removed
from ..durability.locks import Lock, patiently
from ..durability.prepared import Key, Prepared, Send, end_all, key_of
from ..durability.send_lines import (
    PATIENCE_S,
    Line,
    Recovery,
    is_ahead,
    lock_sends,
    read_line,
    write_line,
)
from ..durability.shared_names import sends_name
from ..durability.sync import Dirty, Syncer
from ..errors import FsmqError, NoSuchQueue, Unavailable, reraise
from ..index import listings
from ..layout.of_queues import OfQueues
from ..layout.transitions import CONFIG, NEW
from ..layout.tree import Tree
from ..layout.uuids import now_ticks
from .gate import SpoolView

_PAUSE_S = 0.001
# How many bytes of others' records a thread that may not wait reads.
_MOST_BYTES = 100_000
# How often to check whether places ahead of the clock can be abandoned.
_LOOK_EVERY_S = 30.0


class Unsent(Unavailable):
    """Others send into the queue, or claim while it has to be recovered: wait for them."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"another put into queue {queue!r} is under way", 1)


class Unrecovered(Unavailable):
    """Others may have left messages in the queue: a thread that may list folders has to look."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the puts into queue {queue!r} have to be recovered", 1)


class Sequencer:
    """The sends of one process into all fifo queues. Safe in threads."""

    def __init__(self, spool_view: SpoolView) -> None:
        self._spool_view = spool_view
        self._queues: OfQueues[_Queue] = OfQueues(spool_view.tree)
        self._waiting: dict[Key, tuple[threading.Lock, list[Prepared[Any]]]] = {}
        self._led: dict[Key, Group] = {}
        self._guard = threading.Lock()

    def send(self, prepared: Prepared[Any], syncer: Syncer) -> None:
        """Send a verb's messages for fifo queues, in a group; ``prepared.end`` has the outcome.

        An exception of a signal handler ends the group, too, and is raised here.
        """
        key = key_of(prepared)
        with self._guard:
            leading, waiting = self._waiting.setdefault(key, (threading.Lock(), []))
            waiting.append(prepared)
        try:
            with leading:  # the first thread to get it leads for all that wait
                if not prepared.sends[0].is_over:
                    self._lead(key, syncer)
        finally:
            end_all(self._taken(key, prepared), Unavailable("the put was interrupted"))

    def group(self, key: Key) -> Group:
        """An empty group for these queues."""
        return Group([_Turn(self._spool_view, self._queue(name)) for name in key])

    def _lead(self, key: Key, syncer: Syncer) -> None:
        if (left := self._led.get(key)) is not None:
            left.end()  # a signal handler has interrupted it in its last step
        group = self._led[key] = self.group(key)
        taken: list[Prepared[Any]] = []
        error: FsmqError = Unavailable("the put was interrupted")
        try:
            group.wait()
            taken = self._taken(key)
            group.run(taken, syncer)
        except FsmqError as problem:
            error = problem
        finally:
            group.end()
            del self._led[key]
            end_all(taken or self._taken(key), error)

    def _taken(self, key: Key, one: Prepared[Any] | None = None) -> list[Prepared[Any]]:
        """Take all that wait, or one if it does; forget the queues if none is left."""
        with self._guard:
            leading, waiting = self._waiting.get(key, (self._guard, []))
            taken = [prepared for prepared in waiting if one is None or prepared is one]
            waiting[:] = [prepared for prepared in waiting if prepared not in taken]
            if not waiting and not leading.locked():
                self._waiting.pop(key, None)
            return taken

    def _queue(self, name: str) -> _Queue:
        with self._guard:
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = _Queue(self._spool_view.tree, name)
            return queue


class _Queue:
    """What this process knows of the sends into one queue. The caller has the lock."""

    def __init__(self, tree: Tree, name: str) -> None:
        self.name = name
        self.records = DedupRecords(tree, name)
        self.has_ids = False  # whether this process puts with deduplication ids
        self.is_known = False  # nothing that others left is unshown, as far as is known
        self.looks_at = 0.0  # when to check again for places ahead of the clock


class Group:
    """Puts into some queues that are sent together: `enter`, `write`, sync, commit."""

    def __init__(self, turns: list[_Turn]) -> None:
        self._turns = turns
        self._pendings: Sequence[Prepared[Any]] = ()

    def enter(self) -> None:
        """Lock the queues, all or none, until the end of the group.

        Raises:
            Unsent: another has locked one of them.
            Unrecovered: it needs a listing, which this thread may not do.
            Unavailable
        """
        turn = self._turns[0]
        try:
            for turn in self._turns:
                turn.enter()
        except BaseException as error:
            self._leave()
            reraise(error, f"cannot send into queue {turn.queue.name!r}")

    def wait(self) -> None:
        """The same, with patience, in a thread that may list. Raises Unavailable."""
        if not patiently(self._is_entered, PATIENCE_S, _PAUSE_S):
            raise Unavailable(str(Unsent(self._turns[0].queue.name)))

    def _is_entered(self) -> bool:
        try:
            self.enter()
        except Unsent:
            return False
        return True

    def run(self, all_prepared: Sequence[Prepared[Any]], syncer: Syncer) -> None:
        """Send all of it, and end. Raises Unavailable."""
        try:
            sent = self.write(all_prepared)
            if not sent.dirty.is_clean:
                syncer.sync(sent.dirty)
            sent.commit()
        finally:
            self.end()

    def write(self, all_prepared: Sequence[Prepared[Any]]) -> Prepared[None]:
        """Write the messages of puts under dot-names; returns a verb that shows them. Unavailable.

        The sends get the outcome of each put; if this raises, those that are not over fail.
        """
        self._pendings = all_prepared
        dirty = Dirty()
        sends = [send for prepared in all_prepared for send in prepared.sends]
        try:
            for turn in self._turns:
                turn.write([send for send in sends if send.queue == turn.queue.name], dirty)
            for prepared in all_prepared:
                dirty.take(prepared.dirty)
        except BaseException as error:
            dirty.close()
            self.end()
            reraise(error, "cannot store a message for a fifo queue")
        return Prepared(dirty, self._finish, self.end)

    def _finish(self) -> None:
        try:
            for prepared in self._pendings:
                self._prepare(prepared)
            for turn in self._turns:
                turn.settle()
            for turn in self._turns:
                turn.show()
            self._leave()
        except BaseException as error:
            self.end()
            reraise(error, "cannot publish to a fifo queue")
        for prepared in self._pendings:
            for send in prepared.sends:
                send.end(NoSuchQueue(send.queue))  # all others are over

    def _prepare(self, prepared: Prepared[Any]) -> None:
        try:
            prepared.before()
        except FsmqError as error:
            for send in prepared.sends:
                send.end(error)
            raise Unavailable("another put of the same group has failed", 1) from error
        # In all queues at once, before any line says so: in doubt nothing is taken back.
        for send in prepared.sends:
            send.stands = bool(send.stored)

    def end(self) -> None:
        """End the group where it is, if it has not ended."""
        try:
            for turn in self._turns:
                turn.undo()
        finally:
            self._leave()

    def _leave(self) -> None:
        for turn in self._turns:
            turn.leave()


class _Turn:
    """The turn of a group in one of its queues."""

    def __init__(self, spool_view: SpoolView, queue: _Queue) -> None:
        self.queue = queue
        self._spool_view = spool_view
        self._held: Lock | None = None
        # The line to write as over at the end; None: there is nothing, or the next one recovers.
        self._line: Line | None = None
        self._is_fresh = False
        self._sends: Sequence[Send] = ()
        self._has_records = False

    def enter(self) -> None:
        """Lock the queue, and recover what was left there; does nothing if the queue is gone."""
        spool_view, queue = self._spool_view, self.queue
        self._held = lock_sends(spool_view.tree, queue.name)
        if self._held is None:
            raise Unsent(queue.name)
        # Under the lock, which a deletion holds, too.
        if (
            not spool_view.tree.has_queue(queue.name)
            or not spool_view.settings.get(queue.name).fifo
        ):
            self._held.free()
            self._held = None
            return
        now = spool_view.clock()
        line, self._is_fresh = read_line(self._held.fd), not queue.is_known
        is_late = is_ahead(line.last, now) and time.monotonic() >= queue.looks_at
        if self._is_fresh or is_late or not line.is_over:
            line = self._recover(self._held.fd, now)
        if queue.has_ids:
            most = None if listings.are_allowed() else _MOST_BYTES
            if not queue.records.learn(int(now * 1000), most):
                raise Unrecovered(queue.name)
        self._line = line

    def _recover(self, fd: int, now: float) -> Line:
        spool_view, queue = self._spool_view, self.queue
        queue.is_known = False
        if not listings.are_allowed():
            raise Unrecovered(queue.name)
        queue.records.forget()
        try:
            Recovery(spool_view.tree, spool_view.stamps, queue.name, now).run(fd)
        except BlockingIOError:
            raise Unsent(queue.name) from None
        queue.records.learn(int(now * 1000))  # here, where it may take long
        queue.is_known = True
        queue.looks_at = time.monotonic() + _LOOK_EVERY_S
        return read_line(fd)

    def write(self, sends: Sequence[Send], dirty: Dirty) -> None:
        """Give places, and write messages that are new, for ``dirty`` to sync. Raises OSError."""
        if self._held is None or self._line is None:
            return
        spool_view, now = self._spool_view, self._spool_view.clock()
        sends = [send for send in sends if send.still()]
        first = max(self._line.last + 1, now_ticks(now))
        self._sends = sends
        records = self._place(sends, first, int(now * 1000))
        number = sum(len(send.stored) for send in sends)
        if not number:
            return
        tree = spool_view.tree
        # Opened before it is written: so the sync reports its errors, whoever else syncs the file.
        dirty.files.append(tree.open(tree.folder(CONFIG, sends_name(self.queue.name))))
        dirty.folders.add(tree.folder(NEW))
        if self._is_fresh:
            dirty.folders.add(tree.folder(CONFIG))  # the creator of the file may have died
        self._line = Line(first + number - 1, settled=self._line.settled)
        write_line(self._held.fd, self._line)
        if records:
            self._has_records = True
            self.queue.records.append(records, int(now * 1000), dirty)
        for send in sends:
            for staged in send.stored:
                staged.fill(tree.create(staged.path), tree, dirty)

    def _place(self, sends: Sequence[Send], place: int, now_ms: int) -> list[Record]:
        """Give each message a place, or the known id of its duplicate; returns the new records."""
        known: dict[bytes, str] = {}
        records, view = [], self._spool_view
        for send in sends:
            for draft in send.drafts:
                key = draft.key
                found = None if key is None else known.get(key) or self._find(key, now_ms)
                if found is None:
                    draft = draft.placed(self.queue.name, place)
                    place += 1
                    found = draft.message_id
                    send.stored.append(
                        draft.staged(view.tree, view.stamps, self.queue.name, now_ms)
                    )
                    if key is not None:
                        records.append(Record(key, now_ms, found))
                        known[key] = found
                send.ids.append(found)
        return records

    def _find(self, key: bytes, now_ms: int) -> str | None:
        if not self.queue.has_ids:
            self.queue.records.learn(now_ms)
            self.queue.has_ids = True
        return self.queue.records.find(key, now_ms)

    def settle(self) -> None:
        """Note that all messages are stored: they are durable, and nobody has seen them yet.

        With records the line has to say so: they must hold even when their messages are done and
        gone. Messages without records are shown by recovery in any case.
        """
        if self._held is not None and self._line is not None and not self._line.is_over:
            self._line = Line(self._line.last, settled=self._line.last)
            if self._has_records:
                write_line(self._held.fd, self._line)

    def show(self) -> None:
        """Show the messages in their order. Raises FsmqError, OSError."""
        spool_view, now_ms = self._spool_view, int(self._spool_view.clock() * 1000)
        for send in self._sends:
            for staged in send.stored:
                if not staged.show(spool_view.tree, spool_view.stamps, self.queue.name, now_ms):
                    raise was_removed(staged.draft)
            send.end(None)

    def undo(self) -> None:
        """Remove messages that do not stand, the last first, until one cannot be removed."""
        if self._held is None:
            return
        # Let the next group recover, possibly in this process.
        self._line, self.queue.is_known = None, False
        self.queue.records.forget()
        written = [staged for send in self._sends if not send.stands for staged in send.stored]
        with suppress(OSError):
            for staged in reversed(written):
                self._spool_view.tree.unlink(staged.path)

    def leave(self) -> None:
        """Let others send; note that all is over if it is."""
        if self._held is None:
            return
        try:
            if self._line is not None and not self._line.is_over:
                write_line(self._held.fd, Line(self._line.last, True, self._line.last))
        except OSError:
            self.queue.is_known = False
        finally:
            self._held.unlock()
            self._held = None
