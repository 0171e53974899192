"""One consumer at work: it claims batches, renews and commits them; see `batches.py`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..context import OpenSpool
from ..durability.unfinished import exists
from ..errors import FsmqError, NoSuchMessage, NoSuchQueue, as_unavailable
from ..layout.dead_letter import USED_UP
from ..layout.names import check_queue, fits
from ..layout.uuids import uuid7
from ..verbs.release import bury_now, is_used_up
from .batches import finish_committed, take_lock
from .claims import Claimed, claim_ids, count_delivery, release_claims, renew_claims
from .manifest import DONE, LOCK, Batch, batches, folder_of, path_of, save
from .window import Window

# How many claims are renewed in one go.
_PART = 1000
_LEAST_PAUSE_S = 0.05
_NO_BATCH_S = 3600.0


class Consumer:
    """One consumer. While this object is open, it renews the claims of its batches.

    visibility: seconds until a claim ends if it is not renewed; None: each queue's setting.
    counts_again: whether it is a delivery to claim a message of a stored batch once more, when its
        claim had ended meanwhile.
    reads: the names and globs of the queues that it claims from, for who asks how far it is behind.
    patience: seconds to wait for another program that works as this consumer to end.
    on_lost: called with a queue and ids if messages of a batch are gone, or claimed by another
        consumer; in the thread that finds it.
    on_problem: called when claims could not be renewed; they are tried again.

    Safe in threads. Close it, or use it in a ``with``.

    Raises:
        InvalidValue, ConsumerInUse, Unavailable
    """

    def __init__(
        self,
        spool: OpenSpool,
        name: str,
        *,
        visibility: float | None = None,
        counts_again: bool = True,
        reads: Sequence[str] | None = None,
        patience: float = 0.0,
        on_lost: Callable[[str, list[str]], None] = lambda queue, ids: None,
        on_problem: Callable[[FsmqError], None] = lambda error: None,
    ) -> None:
        self.name = check_queue(name, "consumer")
        self._spool = spool
        self._context = spool.context
        self._tree = spool.context.tree
        self._visibility = visibility
        self._counts_again = counts_again
        self._on_lost = on_lost
        self._on_problem = on_problem
        self._windows: dict[str, Window] = {}
        self._before_ns: int | None = None  # in a pass: leave what came later
        self._turn = 0
        self._renewing = threading.Lock()
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._is_over = False
        with as_unavailable(f"cannot open consumer {name!r}"):
            self._lock = take_lock(self._tree, name, patience)
            try:
                with suppress(OSError):  # nothing depends on it
                    said = {} if reads is None else {"queues": [*reads]}
                    self._lock.write(json.dumps(said).encode())
                # The program that stored a batch may have died before it synced the folder.
                self._tree.sync_folder(folder_of(self._tree, name))
                finish_committed(self._context, name)
                self._open = {batch.name: batch for batch in batches(self._tree, name)}
            except BaseException:
                self._lock.unlock()
                raise
            self._due = time.monotonic() + self._third(self._open.values())
        self._renewer = threading.Thread(target=self._renew, name=f"fsmq-{name}", daemon=True)
        self._renewer.start()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the consumer for other programs. Batches that are not committed stay as they are."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._renewer.join()
        self._lock.unlock()

    def pass_once(self) -> None:
        """From now on claim only messages that are ready now, and none that come later."""
        with self._mutex, as_unavailable("cannot read the spool's clock"):
            path = path_of(self._tree, self.name, "", LOCK)
            self._tree.touch(path)  # by the clock that sets the messages' times, too
            found = self._tree.stat(path)
            self._before_ns = found.st_mtime_ns if found is not None else time.time_ns()
            self._windows.clear()

    def batches(self, stream: str, after: int, upto: int | None = None) -> list[Batch]:
        """The open batches of a stream beyond a number, in order."""
        with self._mutex:
            found = [b for b in self._open.values() if b.stream == stream and b.number > after]
        return sorted(
            (b for b in found if upto is None or b.number <= upto), key=lambda b: b.number
        )

    def adopt(self, stream: str, after: int) -> None:
        """Give batches of other streams to this one, with numbers beyond ``after`` and its own.

        Raises Unavailable.
        """
        with self._mutex, as_unavailable(f"cannot store a batch of consumer {self.name!r}"):
            for batch in sorted(self._open.values(), key=lambda b: b.name):
                if batch.stream != stream:
                    number = self._beyond(stream, after)
                    self._store(replace(batch, stream=stream, number=number))

    def claim(
        self,
        stream: str,
        after: int,
        queues: Sequence[str],
        count: int,
        max_bytes: int | None = None,
    ) -> Batch | None:
        """Claim a new batch of up to ``count`` messages, durably; None if nothing is ready.

        Its number is beyond ``after`` and all others of the stream. Queues that are gone are
        skipped; each batch begins with another queue. max_bytes: of all files together; a message
        with a larger file makes a batch of its own.

        Raises:
            InvalidValue, Unavailable
        """
        claims: dict[str, list[Claimed]] = {}
        with self._mutex:
            turn = self._turn % len(queues) if queues else 0
            try:
                self._claim_all((*queues[turn:], *queues[:turn]), count, max_bytes, claims)
                if not claims:
                    return None
                self._turn = turn + 1
                batch = Batch(uuid7(), stream, self._beyond(stream, after), claims)
                with as_unavailable(f"cannot store a batch of consumer {self.name!r}"):
                    self._store(batch)
            except BaseException:
                # On a full disk, say: each new attempt would count as a delivery to nobody.
                self._release_all(claims)
                raise
            self._context.journal.flush()
            return batch

    def renew_batch(self, batch: Batch) -> Batch:
        """Renew the claims of a batch; the batch without the messages that are lost.

        A message that is ready again is claimed again. Raises Unavailable.
        """
        with self._renewing:
            now = self._open.get(batch.name, batch)
            for queue, claims in now.claims.items():
                for start in range(0, len(claims), _PART):
                    with self._mutex:
                        if batch.name not in self._open:
                            return now  # it has been committed
                        now = self._renew_part(now, queue, claims[start : start + _PART])
            return now

    def divide(self, batch: Batch, parts: int) -> list[Batch]:
        """Make several batches of one that fails, so that what does no harm is in others; in order.

        The first keeps its name and number, the others come behind all of its stream. One message
        that fails alone is delivered once more, or buried if its deliveries are used up.

        Raises Unavailable.
        """
        with self._renewing, self._mutex, as_unavailable(f"cannot divide {batch.name}"):
            if len(batch) <= 1:
                return [self._retry(batch)]
            pairs = [(queue, claim) for queue, claims in batch.claims.items() for claim in claims]
            size = -(-len(pairs) // parts)
            shares = [_by_queue(pairs[n : n + size]) for n in range(0, len(pairs), size)]
            # First the smaller one: after a crash nothing is in two batches, and what is in none
            # comes back by its timer.
            divided = [replace(batch, claims=shares[0])]
            try:
                self._store(divided[0])
                for share in shares[1:]:
                    number = self._beyond(batch.stream, batch.number)
                    part = Batch(uuid7(), batch.stream, number, share)
                    self._store(part)
                    divided.append(part)
            except BaseException:
                for share in shares[len(divided) :]:
                    self._release_all(share)
                raise
            return divided

    def commit(self, stream: str, upto: int) -> int:
        """Remove the messages of all batches of a stream up to a number, durably; how many.

        Raises Unavailable: batches that were renamed by then are committed, and finished later.
        """
        removed = 0
        with self._mutex, as_unavailable(f"cannot commit for consumer {self.name!r}"):
            done = self.batches(stream, -1, upto)
            for batch in done:
                source = path_of(self._tree, self.name, batch.name)
                self._tree.rename(source, path_of(self._tree, self.name, batch.name, DONE))
                self._open.pop(batch.name)
            if done:
                self._tree.sync_folder(folder_of(self._tree, self.name))
                removed = finish_committed(self._context, self.name)
                # The program may end, or be ended, before a thread has done so.
                self._context.journal.flush()
        return removed

    # -- within ----------------------------------------------------------------------------------

    def _claim_all(
        self, queues: Sequence[str], left: int, room: int | None, claims: dict[str, list[Claimed]]
    ) -> None:
        """Claim from one queue after the other, and add what was claimed to ``claims``."""
        for queue in queues:
            if left == 0 or (room is not None and room <= 0):
                return
            claimed = self._claim(queue, left, room)
            if claimed:
                claims[queue] = claimed
                left -= len(claimed)
            if claimed and room is not None:
                room -= sum(claim.size for claim in claimed)

    def _release_all(self, claims: Mapping[str, Sequence[Claimed]]) -> None:
        """Release claims that nobody has seen, as far as the disk lets us."""
        for queue, of_queue in claims.items():
            with suppress(FsmqError):
                self._spool.complete(release_claims(self._context, queue, of_queue))
        self._windows.clear()

    def _claim(self, queue: str, count: int, room: int | None) -> list[Claimed]:
        is_pass = self._before_ns is not None
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = Window(self._tree, queue, once=is_pass)
        try:
            return self._spool.complete(
                claim_ids(
                    self._context,
                    window,
                    count,
                    max_bytes=room,
                    visibility=self._visibility,
                    before_ns=self._before_ns,
                )
            )
        except NoSuchQueue:
            del self._windows[queue]
            return []

    def _retry(self, batch: Batch) -> Batch:
        """A batch of one message, or of none, after it has failed."""
        for queue, claims in batch.claims.items():
            for claim in claims:
                try:
                    kept = self._retry_one(queue, claim)
                except (NoSuchQueue, NoSuchMessage):
                    kept = None
                batch = batch.with_claims(queue, [] if kept is None else [kept])
                try:
                    self._store(batch)
                except BaseException:
                    self._release_all(batch.claims)  # or the file has a count that nobody knows
                    raise
        return batch

    def _retry_one(self, queue: str, claim: Claimed) -> Claimed | None:
        context = self._context
        if self._is_buried_next(queue, claim):
            self._spool.complete(bury_now(context, queue, claim.id, USED_UP, claim.is_held))
            return None
        return self._spool.complete(count_delivery(context, queue, claim, self._visibility))

    def _is_buried_next(self, queue: str, claim: Claimed) -> bool:
        settings = self._context.settings_of(queue)
        to = settings.dead_letter_queue
        if to is None or not is_used_up(settings, claim.deliveries) or not fits(to, claim.id):
            return False
        # One whose id is there already is delivered once more, as the mover does it.
        return not exists(self._tree, to, claim.id)

    def _renew_part(self, batch: Batch, queue: str, claims: Sequence[Claimed]) -> Batch:
        """Renew some claims of a batch; the batch as it is then, stored if it has changed."""
        try:
            pending = renew_claims(
                self._context, queue, claims, self._visibility, counts=self._counts_again
            )
            renewed = self._spool.complete(pending)
        except NoSuchQueue:
            renewed = [None] * len(claims)
        changes = {old: new for old, new in zip(claims, renewed, strict=True) if old != new}
        if not changes:
            return batch
        now = (changes.get(claim, claim) for claim in batch.claims[queue])
        batch = batch.with_claims(queue, [claim for claim in now if claim is not None])
        # If we crash before this is stored, what was claimed again comes back by its timer.
        try:
            with as_unavailable(f"cannot store a batch of consumer {self.name!r}"):
                self._store(batch)
        except BaseException:
            self._release_all({queue: [new for new in changes.values() if new is not None]})
            raise
        lost = [old.id for old, new in changes.items() if new is None]
        if lost:
            self._on_lost(queue, lost)
        return batch

    def _store(self, batch: Batch) -> None:
        save(self._tree, self.name, batch)
        self._open[batch.name] = batch
        self._due = min(self._due, time.monotonic() + self._third([batch]))
        self._changed.notify_all()

    def _beyond(self, stream: str, after: int) -> int:
        return max(after, *(b.number for b in self._open.values() if b.stream == stream), 0) + 1

    def _renew(self) -> None:
        """Renew the claims of all open batches each third of the time for which they are held."""
        while True:
            with self._changed:
                while not self._is_over and (pause := self._due - time.monotonic()) > 0.0:
                    self._changed.wait(min(pause, _NO_BATCH_S))
                if self._is_over:
                    return
                # From now on: a renewal that takes long must not make the next one late.
                self._due = time.monotonic() + self._third(self._open.values())
                open_now = list(self._open.values())
            for batch in open_now:
                try:
                    self.renew_batch(batch)
                except FsmqError as error:
                    self._on_problem(error)

    def _third(self, of: Iterable[Batch]) -> float:
        """Seconds until claims of these batches have to be renewed."""
        queues = {queue for batch in of for queue in batch.claims}
        if not queues:
            return _NO_BATCH_S
        if self._visibility is not None:
            return max(_LEAST_PAUSE_S, self._visibility / 3)
        get = self._context.settings.get
        return max(_LEAST_PAUSE_S, min(get(queue).visibility_timeout for queue in queues) / 3)


def _by_queue(pairs: Iterable[tuple[str, Claimed]]) -> dict[str, list[Claimed]]:
    found: dict[str, list[Claimed]] = {}
    for queue, claim in pairs:
        found.setdefault(queue, []).append(claim)
    return found
