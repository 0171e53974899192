"""Receive: claim ready messages, and read them."""

from __future__ import annotations

import os
from contextlib import closing

from ..context import Context, Prepared
from ..durability.send_lines import Line, Recovery, read_line
from ..durability.shared_names import sends_name
from ..durability.sync import Dirty
from ..errors import FsmqError, NoRoom, is_full, unavailable
from ..layout.claim_names import claim_name
from ..layout.messages.message import Message, found_message
from ..layout.names import Facts, check_queue, facts, sequence_of
from ..layout.settings import DEFAULTS, check_number
from ..layout.steps import Steps, finish
from ..layout.transitions import CLAIMED, CONFIG, DELAY, QUEUES
from ..records.journal import Details
from ..views.reading import MAX_ANSWER_BYTES, Budget, Content, Room, is_plain, read, read_plain
from .claim import Claim, claims_of, too_large
from .release import claim_stamp, release_uncounted

MAX_CLAIMS = 1000


def claim(
    context: Context,
    queue: str,
    count: int = 1,
    visibility: float | None = None,
    whole_groups: bool = False,
) -> Prepared[list[Message]]:
    """`claim_in`, to its end."""
    return finish(claim_in(context, queue, count, visibility, whole_groups=whole_groups))


def claim_in(
    context: Context,
    queue: str,
    count: int = 1,
    visibility: float | None = None,
    room: Room | None = None,
    whole_groups: bool = False,
) -> Steps[Prepared[list[Message]]]:
    """Claim up to ``count`` ready messages for ``visibility`` seconds (None: the queue's setting).

    whole_groups: see `claims_of`; for everything else see `claims_in`.
    """
    claims = yield from claims_in(context, queue, count, visibility, room, whole_groups)
    return Prepared(claims.dirty, claims.give_out, claims.release)


def claims_in(
    context: Context,
    queue: str,
    count: int,
    visibility: float | None,
    room: Room | None,
    whole_groups: bool = False,
) -> Steps[Claims]:
    """The same for a caller that looks at the messages before they are handed out.

    room: the memory for the bodies; a message that does not fit is not claimed.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    check_queue(queue)
    check_number("count", count, 1, MAX_CLAIMS)
    claims = Claims(context, queue, room)
    try:
        yield from claims.take_in(count, visibility, whole_groups)
    except OSError as error:
        # Messages that were claimed before the error are handed out. One that could not be read
        # comes back when its timer ends.
        if not claims.messages:
            claims.dirty.close()
            raise unavailable(error, f"cannot claim from queue {queue!r}") from error
    except NoRoom:
        if not claims.messages:
            claims.dirty.close()
            raise
    except BaseException:
        claims.dirty.close()
        raise
    finally:
        claims.budget.close()
    claims.check_kind()
    if not claims.messages:
        claims.dirty = Dirty()
    return claims


class Claims:
    """Messages that are claimed or being claimed; no claim is durable yet."""

    def __init__(self, context: Context, queue: str, room: Room | None) -> None:
        tree = context.tree
        self.messages: list[Message] = []
        self.dirty = Dirty(folders={tree.folder(QUEUES, queue), tree.folder(DELAY)})
        self.budget = Budget(room)
        self._most = context.max_file_bytes
        self._settings = DEFAULTS  # by which they are claimed
        self._line: Line | None = None  # of a fifo queue's sends, once needed
        self._context = context
        self._queue = queue

    def take_in(
        self, count: int, visibility: float | None, whole_groups: bool = False
    ) -> Steps[None]:
        context, queue = self._context, self._queue
        settings = self._settings = context.settings_of(queue)
        context.ready.set_partitions(queue, settings)
        ids = context.ready.popped(queue, count)
        size = 0
        wanted = self._is_wanted
        found = claims_of(context, queue, settings, ids, visibility, wanted, whole_groups)
        with closing(ids), closing(found):
            for claim in found:
                if claim is None:
                    yield
                    continue
                self.dirty.files.append(claim.fd)
                known = facts(claim.message_id)
                if is_plain(claim.size, known):
                    content = read_plain(claim.fd, claim.size, known, self.budget)
                else:
                    content = yield from self._read(claim, known)
                if settings.fifo and content.own.dedup_id is not None:
                    self._keep_record(claim.message_id)
                self.messages.append(claimed_message(context, queue, claim, known, content))
                size += max(claim.size, len(content.body))
                if len(self.messages) == count or size >= MAX_ANSWER_BYTES:
                    break

    def _keep_record(self, message_id: str) -> None:
        """Make the record of its deduplication id hold, durably, before the message can go.

        After a power cut the line of the sends can be an older one. Then the claim settles the
        places after it, since a record whose message is gone would not hold.
        """
        context, queue = self._context, self._queue
        if self._line is None:
            path = context.tree.folder(CONFIG, sends_name(queue))
            try:
                self.dirty.files.append(context.tree.open(path))
            except FileNotFoundError:
                return  # nothing was ever sent: the message was moved here
            self._line = read_line(self.dirty.files[-1])
        place = sequence_of(message_id) or 0
        if self._line.settled < min(place, self._line.last):
            try:
                now = context.clock()
                Recovery(context.tree, context.stamps, queue, now, claims=True).try_it()
            except OSError as error:
                if not is_full(error):  # then only a removal makes room
                    raise
            self._line = self._line._replace(settled=self._line.last)

    def check_kind(self) -> None:
        """Give all messages back if the name now belongs to a queue of another kind.

        No consumer has been handed one yet. Raises Unavailable.
        """
        if not self.messages:
            return
        try:
            is_same = self._context.is_same_kind(self._queue, self._settings)
        except OSError as error:
            self.dirty.close()
            raise unavailable(error, f"cannot claim from queue {self._queue!r}") from error
        if not is_same:
            self.dirty.close()
            self.release()
            self.messages.clear()

    def give_out(self) -> list[Message]:
        """Record the claims, once they are durable; returns the messages."""
        context, now = self._context, self._context.clock()
        claimed: list[tuple[str, Details]] = []
        for message in self.messages:
            claim_ms = round(((message.deadline or now) - now) * 1000)
            details: Details = {"deliveries": message.deliveries, "claim_ms": claim_ms}
            claimed.append((message.id, details))
        context.record_all(CLAIMED, self._queue, claimed)
        return self.messages

    def release(self) -> None:
        """Make the messages ready again, as if they had not been claimed."""
        for message in self.messages:
            self._return(message.id, claim_stamp(self._context, message))
        self._context.limiter.uncount(self._queue, len(self.messages))

    def _is_wanted(self, context: Context, fd: int, found: os.stat_result) -> bool:
        """Whether a message may be read; raises NoRoom and OSError."""
        if found.st_size > self._most:
            raise too_large()
        self.budget.need(found.st_size)
        return True

    def _read(self, claim: Claim, known: Facts) -> Steps[Content]:
        try:
            return (yield from read(self._context, claim.fd, claim.size, known, self.budget))
        except NoRoom:
            self._return(claim.message_id, claim.mtime_ns)  # unpacked it is larger than its file
            raise

    def _return(self, message_id: str, mtime_ns: int) -> None:
        try:
            release_uncounted(self._context, self._queue, message_id, mtime_ns)
        except (OSError, FsmqError):
            return  # its timer brings it back


def claimed_message(
    context: Context, queue: str, claim: Claim, known: Facts, content: Content
) -> Message:
    """The message that a claim hands out."""
    return found_message(
        queue,
        claim.message_id,
        content.body,
        None if context.stamps.coarse else claim.deliveries,
        claim.deadline_ms / 1000,
        content.content_type,
        content.attributes,
        known.priority,
        None if known.created_ms is None else known.created_ms / 1000,
        known.expires_s,
        "in_flight",
        None,
        claim_name(context.stamps, claim.deliveries, claim.deadline_ms),
        *content.own,
    )
