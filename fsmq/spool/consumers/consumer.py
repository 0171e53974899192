"""One consumer at work: it claims batches, renews and commits them; see `batches.py`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..context import OpenSpool
from ..errors import FsmqError, as_unavailable, reraise, unavailable
from ..layout.names import check_queue
from ..layout.uuids import uuid7
from . import stream_note
from .batches import finish_committed, take_lock
from .claims import Claimed, Renewals, release_claims
from .manifest import LOCK, Batch, by_queue, folder_of, path_of
from .open_batches import OpenBatches
from .renewals import Until, are_renewed, renew, renewals_until, until_of
from .renewer import NOTHING_S, RETRY_S, Renewer
from .retry import retry
from .shares import Shares

# How many claims are renewed in one go.
_PART = 1000


class Consumer:
    """One consumer. While it is open, this object renews the claims of its batches.

    visibility: seconds until a claim ends if it is not renewed; None: each queue's setting.
    counts_again: whether claiming a stored batch's message again, after its claim, is a delivery.
    reads: names and globs of the queues that it claims from, to show how far it is behind.
    patience: seconds to wait for another program that works as this consumer to end.
    on_lost: called with a queue and ids if messages of a batch are gone, or claimed by another
        consumer; in the thread that notices it.
    on_problem: called when claims could not be renewed, or committed messages not removed; both are
        tried again.

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
        self._shares = Shares(spool, visibility)
        self._renewing = threading.Lock()
        self._mutex = threading.RLock()
        self._is_unfinished = False  # committed messages may still be there
        self._renewer = Renewer(name, self._tasks, on_problem)
        with as_unavailable(f"cannot open consumer {name!r}"):
            self._lock = take_lock(self._tree, name, patience)
            try:
                with suppress(OSError):  # nothing depends on it
                    settings = {} if reads is None else {"queues": [*reads]}
                    self._lock.write(json.dumps(settings).encode())
                # The program that stored a batch may have died before it synced the folder.
                self._tree.sync_folder(folder_of(self._tree, name))
                self._finish_left()
                self._open = OpenBatches(self._tree, name)
            except BaseException:
                self._lock.unlock()
                raise
        for batch in self._open:
            self._renewer.be_due(self._third_of(batch))
        self._renewer.start()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the consumer for other programs. Uncommitted batches stay as they are."""
        self._renewer.close()
        with suppress(OSError):  # the next program gets what is left
            self._open.forget_untold()
        self._lock.unlock()

    def pass_once(self) -> None:
        """From now on claim only messages that are ready now."""
        with self._mutex, as_unavailable("cannot read the spool's clock"):
            path = path_of(self._tree, self.name, "", LOCK)
            self._tree.touch(path)  # by the clock that sets the messages' times, too
            found = self._tree.stat(path)
            self._shares.begin_pass(found.st_mtime_ns if found is not None else time.time_ns())

    def committed(self) -> stream_note.Committed | None:
        """The stream that was begun last, and what is committed of it. Raises Unavailable."""
        with as_unavailable(f"cannot read the stream of consumer {self.name!r}"):
            return stream_note.read(self._tree, self.name)

    def begin(self, stream: str, after: int) -> None:
        """Note a stream, a UUIDv7, whose batches beyond ``after`` are worked on from now on.

        Durable. Raises Unavailable.
        """
        with self._mutex, as_unavailable(f"cannot note a stream of consumer {self.name!r}"):
            stream_note.begin(self._tree, self.name, stream, after)

    def batches(self, stream: str, after: int, upto: int | None = None) -> list[Batch]:
        """The open batches of a stream beyond a number, in order."""
        with self._mutex:
            return self._open.of(stream, after, upto)

    def adopt(self, stream: str, after: int) -> None:
        """Assign batches of other streams to this one, with numbers beyond ``after`` and its own.

        Raises Unavailable.
        """
        with self._mutex, as_unavailable(f"cannot store a batch of consumer {self.name!r}"):
            for batch in sorted(self._open, key=lambda b: b.name):
                if batch.stream != stream:
                    number = self._open.next_number(stream, after)
                    self._open.store(replace(batch, stream=stream, number=number))

    def claim(
        self,
        stream: str,
        after: int,
        queues: Sequence[str],
        count: int,
        max_bytes: int | None = None,
    ) -> Batch | None:
        """Claim a new batch of up to ``count`` messages, durably; None if nothing is ready.

        Its number is beyond ``after`` and all others of the stream. Deleted queues are skipped.
        Each queue has a share of the batch before others get the rest, and each batch begins with
        another queue. max_bytes: of all files together; a larger message makes a batch of its own.

        Raises:
            InvalidValue, Unavailable
        """
        claims: dict[str, list[Claimed]] = {}
        with self._mutex, as_unavailable(f"cannot store a batch of consumer {self.name!r}"):
            number = self._open.next_number(stream, after)
            try:
                self._shares.claim(queues, count, max_bytes, claims)
                if not claims:
                    return None
                batch = Batch(uuid7(), stream, number, claims)
                self._open.add(batch)
            except BaseException:
                # On a full disk, say, each new attempt would count as a delivery.
                self._release_all(claims)
                raise
            self._renewer.be_due(self._third_of(batch))
            self._context.journal.flush()
            return batch

    def renew_batch(self, batch: Batch) -> Batch:
        """Renew the claims of a batch; returns the batch without messages that are lost.

        A message that is free is claimed again. Raises Unavailable, after renewing the others.
        """
        with self._renewing, as_unavailable(f"cannot renew a batch of consumer {self.name!r}"):
            until = until_of(self._context, batch.claims, self._visibility)
            with self._mutex:
                now = self._open.get(batch.name)
                if now is None:
                    return batch  # it has been committed
                batch, unnoted = now, self._open.note(now, renewals_until(self._context, until))
            renewed: dict[str, list[Claimed | None]] = {queue: [] for queue in batch.claims}
            faults: list[Exception] = []
            for queue, part in batch.parts(_PART):
                with self._mutex:
                    if self._open.get(batch.name) is None:
                        return batch
                    after = renew(
                        self._spool,
                        queue,
                        part,
                        until[queue],
                        batch.renewals,
                        counts=self._counts_again,
                        unnoted=unnoted,
                    )
                renewed[queue] += after.claims
                faults += after.faults
            batch = self._end_renewal(batch, renewed, until)
            self._check(faults, unnoted)
            return batch

    def divide(self, batch: Batch, parts: int) -> list[Batch]:
        """Split a batch that fails, to separate harmless messages from others; in order.

        The first part keeps name and number, the others come last in the stream. A message that
        fails alone is delivered once more, or buried if its deliveries are used up.

        Raises Unavailable.
        """
        with self._renewing, self._mutex, as_unavailable(f"cannot divide {batch.name}"):
            now = self._open.get(batch.name)
            if now is None:
                return [batch]  # it has been committed
            batch = now
            if len(batch) <= 1:
                return [self._retry(batch)]
            pairs = [(queue, claim) for queue, claims in batch.claims.items() for claim in claims]
            size = -(-len(pairs) // parts)
            shares = [by_queue(pairs[n : n + size]) for n in range(0, len(pairs), size)]
            # First shrink this one: after a crash no message is in two batches, and one that is in
            # none comes back by its timer. If the shrinking fails the batch is whole.
            number = self._open.next_number(batch.stream, batch.number)
            divided = [replace(batch, claims=shares[0])]
            self._open.store(divided[0])
            try:
                for share in shares[1:]:
                    part = Batch(uuid7(), batch.stream, number, share, batch.renewals)
                    self._open.add(part)
                    divided.append(part)
                    number += 1
            except BaseException:
                for share in shares[len(divided) :]:
                    self._release_all(share, batch.renewals)
                raise
            return divided

    def commit(self, stream: str, upto: int) -> int:
        """Remove the messages of all batches of a stream up to a number, durably; how many.

        Raises Unavailable: batches that were renamed by then are committed, and are finished by the
        next try of any process.
        """
        with self._mutex, as_unavailable(f"cannot commit for consumer {self.name!r}"):
            for batch in self.batches(stream, -1, upto):
                self._is_unfinished = True
                self._renewer.be_due(RETRY_S)
                self._open.commit(batch)
            return self._finish()

    # -- within ----------------------------------------------------------------------------------

    def _release_all(
        self, claims: Mapping[str, Sequence[Claimed]], renewals: Renewals = ()
    ) -> None:
        """Release claims that nobody has seen, as far as possible."""
        for queue, of_queue in claims.items():
            with suppress(FsmqError):
                self._spool.complete(release_claims(self._context, queue, of_queue, renewals))
        self._shares.forget()

    def _retry(self, batch: Batch) -> Batch:
        """Retry a batch of one message or none after it has failed."""
        until = until_of(self._context, batch.claims, self._visibility)
        unnoted = self._open.note(batch, renewals_until(self._context, until))
        if unnoted is not None:
            raise unnoted
        for queue, claims in batch.claims.items():
            for claim in claims:
                kept = retry(self._spool, queue, claim, until[queue], batch.renewals)
                batch = batch.with_claims(queue, [] if kept is None else [kept])
        batch = replace(batch, renewals=())
        self._open.store(batch)
        return batch

    def _end_renewal(
        self,
        batch: Batch,
        renewed: Mapping[str, list[Claimed | None]],
        until: Mapping[str, Until],
    ) -> Batch:
        """The batch after the renewal of its claims, stored if that matters after a crash."""
        lost = {
            queue: [old.id for old, new in zip(claims, renewed[queue], strict=True) if new is None]
            for queue, claims in batch.claims.items()
        }
        kept = {queue: [one for one in now if one is not None] for queue, now in renewed.items()}
        with self._mutex:
            now = self._open.get(batch.name)
            if now is None:
                return batch
            # Another stream may have adopted it.
            now = replace(now, claims=kept)
            if are_renewed(self._context, kept, until):
                now = replace(now, renewals=())
            if any(lost.values()) or now.counts != batch.counts:
                self._open.store(now)
            self._open.remember(now)
            self._renewer.be_due(self._third_of(now))
        for queue, ids in lost.items():
            if ids:
                self._on_lost(queue, ids)
        return now

    def _check(self, faults: Sequence[Exception], unnoted: OSError | None) -> None:
        """Raise the error of a renewal, or report a failed note if all claims were renewed."""
        failed = "renew" if unnoted is None else "store"
        doing = f"cannot {failed} a batch of consumer {self.name!r}"
        if faults:
            reraise(faults[0], doing)
        if unnoted is not None:
            self._on_problem(unavailable(unnoted, doing))

    def _finish_left(self) -> None:
        """Remove committed messages, as far as possible: the rest must not block the consumer."""
        try:
            finish_committed(self._context, self.name)
        except (OSError, FsmqError):
            self._is_unfinished = True
            self._renewer.be_due(0.0)  # it tries again, and reports

    def _finish(self) -> int:
        """Remove committed messages; how many. Raises Unavailable."""
        with self._mutex, as_unavailable(f"cannot commit for consumer {self.name!r}"):
            if not self._is_unfinished:
                return 0
            self._tree.sync_folder(folder_of(self._tree, self.name))
            removed = finish_committed(self._context, self.name)
            self._is_unfinished = False
            # The program may end before the journal's thread does this.
            self._context.journal.flush()
            return removed

    def _tasks(self) -> Iterator[Callable[[], object]]:
        """What the renewer does after each third of the visibility."""
        yield self._finish
        with self._mutex:
            open_now = [*self._open]
        for batch in open_now:
            yield partial(self._renew_in_time, batch)

    def _renew_in_time(self, batch: Batch) -> None:
        try:
            self.renew_batch(batch)
        except BaseException:
            self._renewer.be_due(self._third_of(batch))
            raise

    def _third_of(self, batch: Batch) -> float:
        """Seconds until the claims of a batch have to be renewed."""
        deadlines = [claim.deadline_ms for of in batch.claims.values() for claim in of]
        left = (min(deadlines) - self._context.now_ms()) / 1000 if deadlines else NOTHING_S
        return left / 3 if left > 0 else RETRY_S
