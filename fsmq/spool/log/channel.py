"""One channel of a log, as programs use it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from .._sync.consumed import Consumed
from ..arguments import Delay, seconds_of
from ..claimed import Claim
from ..durability.locks import patiently
from ..errors import (
    ClaimVoid,
    FsmqError,
    InvalidValue,
    NoSuchChannel,
    NotInFlight,
    as_unavailable,
    understood,
)
from ..layout.messages.dead_letter import check_reason
from ..layout.names import check_queue
from ..layout.settings import (
    LONGEST_WAIT_S,
    MAX_DELAY_S,
    MAX_VISIBILITY_S,
    check_number,
    check_seconds,
)
from ..verbs.remove_if import Acked
from ._sync.channel_base import ChannelBase
from ._sync.channel_message import ChannelMessage
from .consuming import channel_files
from .consuming.burial import bury, choose_queue
from .consuming.channel_files import CHANNEL_FILE
from .consuming.channels import ChannelStore
from .consuming.dispatch import Asked
from .consuming.open_channel import TENDING_S
from .delivered import Given, acked_of, claims_of, generation_of, in_claims, offset_of
from .log_places import From
from .log_settings import ChannelSettings
from .open_log import OpenLog
from .ranges import Range, ranges_of
from .segment.record import LogMessage

log = logging.getLogger(__name__)
_POLL_S = 0.05
MOST_CLAIMED = 100_000


class ChannelState(NamedTuple):
    """The state of a channel. Times are in seconds.

    position: the lowest unfinished offset. lag: unfinished messages, their bytes, and the age of
    the lowest. lost: messages that retention or damage took before they were done; first_lost: the
    offset of the first. skipped, buried: those that on_poison ended. blocked_at: the lowest offset
    whose deliveries are used up, if on_poison is block. unburied_at: the lowest offset that could
    not be buried; it is tried again every 10 seconds. stalled: "window" at max_window.
    """

    position: int
    lag: int
    lag_bytes: int
    lag_seconds: float
    in_flight: int
    delayed: int
    lost: int
    first_lost: int | None
    skipped: int
    buried: int
    blocked_at: int | None
    unburied_at: int | None
    stalled: str | None
    paused: bool
    generation: int
    settings: ChannelSettings


class Channel(ChannelBase, Consumed[ChannelMessage, Any]):
    """One channel of a log: a durable reader with a state of its own. Safe in threads.

    All methods raise :class:`~fsmq.spool.errors.FsmqError`: InvalidValue for a bad argument,
    NoSuchLog, NoSuchChannel if there is none, Unavailable when the disk fails or is full.
    """

    def __init__(self, of: OpenLog, name: str) -> None:
        self.log = of
        self.name = check_queue(name, "channel")

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.log!r}>"

    def create(self, from_: From = "last", **settings: Any) -> bool:
        """Create the channel durably; False if it existed, unchanged.

        from_: where it begins: "first", "last", an offset, or a datetime with a time zone.
        """
        checked = ChannelSettings().changed(settings)
        with as_unavailable(f"cannot create channel {self.name!r}"):
            disk = self.log._store.disk
            if disk.has(disk.channel(self.name)):
                return False  # a starting program must not wait for a lock
            return self._create(from_, checked)

    def _create(self, from_: From, checked: ChannelSettings) -> bool:
        with self._held():
            store = self.log._store
            known = store.known(True)
            start = min(max(self.log.offset_of(from_), known.first), known.end)
            if checked.dead_letter_queue is not None:
                choose_queue(self.log.spool.context, checked.dead_letter_queue)
            return channel_files.create(store.disk, self.name, start, checked)

    def delete(self) -> None:
        """Delete the channel durably. Retention then no longer keeps messages for it."""
        with as_unavailable(f"cannot delete channel {self.name!r}"), self._held(writes=False):
            disk = self.log._store.disk
            if not disk.trash_durably(disk.channel(self.name)):
                raise NoSuchChannel(self.log.name, self.name)

    def delete_if_unused(self) -> bool:
        """Delete it if nobody has used it for the time that its settings allow; whether it was."""
        with self._doing("delete"):
            if not self._store.is_unused():
                return False
            with self._held(writes=False):
                store = self._store
                with store.locked(TENDING_S):  # now nobody uses it, or changes the setting
                    return store.is_unused() and store.store.disk.trash_durably(store.folder)

    def settings(self) -> ChannelSettings:
        """The settings of the channel."""
        with self._doing("read the settings of"):
            return self._store.settings()

    def configure(self, **changes: Any) -> ChannelSettings:
        """Change settings durably, such as ``configure(max_deliveries=5)``; returns all of them."""
        return self.change(lambda _: changes)

    def change(self, change: Callable[[ChannelSettings], Mapping[str, Any]]) -> ChannelSettings:
        """The same; ``change``, called with the current settings, returns the changes or raises."""
        with self._doing("store the settings of"), self._held():
            store = self._store
            store.settings()  # raises NoSuchChannel
            with understood(f"{store.folder}/{CHANNEL_FILE}"):
                before = store.read_settings()
            changes = change(before)
            settings = before.changed(changes)
            if settings.dead_letter_queue is not None and "dead_letter_queue" in changes:
                choose_queue(self.log.spool.context, settings.dead_letter_queue)
            store.replace_settings(settings)
            return settings

    def _held(self, *, writes: bool = True) -> AbstractContextManager[None]:
        """Keep others from creating, changing or deleting it."""
        return self.log._logs.held(self.log.name, writes=writes)

    # -- claim and ack ---------------------------------------------------------------------------

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[ChannelMessage]:
        """Claim up to ``count`` messages, in the order of their offsets; [] if there are none.

        visibility: seconds until an unfinished message comes back; None: the channel's setting.
        wait: seconds to wait for a first message.
        """
        check_number("count", count, 1, MOST_CLAIMED)
        check_seconds("wait", wait, LONGEST_WAIT_S)
        if visibility is not None:
            check_seconds("visibility", visibility, MAX_VISIBILITY_S)
        asked = [Asked(count, visibility)]
        return patiently(lambda: self.claim_each(asked)[0], wait, _POLL_S)

    def claim_each(self, asked: Sequence[Asked]) -> list[list[ChannelMessage]]:
        """Claim for several simultaneous requests in turn, without waiting.

        When one request gets nothing, none of the later ones does.
        """
        with self._doing("claim from"):
            store = self._store
            each, generation = store.claim_each(asked, self._bury)
        number = sum(map(len, each))
        self.log.spool.context.metrics.count(("log_claim", self.log.name), number)
        return [
            [
                ChannelMessage(self, message, claim.deliveries, claim.until_ns / 1e9, generation)
                for message, claim in handed
            ]
            for handed in each
        ]

    def again_in(self) -> float | None:
        """In how many seconds to claim again if nothing changes: when the next claim or delay ends,
        or early enough for the channel to count as used; None: never."""
        with self._doing("look at"):
            return self._store.again_in()

    def changed_at(self) -> int | None:
        """When a program last changed the channel, ns since 1970; None if there is none."""
        try:
            return self._store.changed_at_ns()
        except (FsmqError, OSError):
            return None

    def ack_each(
        self, messages: Iterable[Given], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Acknowledge messages; returns the outcome for each.

        claims: for each message the name of its claim; by default its own.

        An outcome is "removed": it is done, perhaps before; "missing": it was not handed out; or
        "ended": its claim is void.
        """
        asked = [
            (ranges_of([offset_of(one)]), self._generation([one]))
            for one in in_claims(messages, claims)
        ]
        return [acked_of(found) for found in self.done_ranges_each(asked)]

    def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int:
        """Acknowledge half-open ranges of offsets, such as ``[(0, 9)]``; otherwise as ``ack``."""
        [found] = self.done_ranges_each([(list(ranges), generation)])
        if isinstance(found, Exception):
            raise found
        return found

    def done_ranges_each(
        self, asked: Sequence[tuple[list[Range], int | None]]
    ) -> list[int | ClaimVoid | NotInFlight]:
        """Acknowledge for simultaneous requests, each of ranges and a generation, with one sync.

        Returns for each how many had not been done yet, or an error.
        """
        with self._doing("finish messages of"):
            found = self._store.done_each(asked)
        number = sum(one for one in found if isinstance(one, int))
        self.log.spool.context.metrics.count(("log_done", self.log.name), number)
        return found

    def done_through(self, last: Given) -> int:
        """Acknowledge all messages that were handed out up to this one; otherwise as ``ack``."""
        with self._doing("finish messages of"):
            number = self._store.done_through(offset_of(last), self._generation([last]))
        self.log.spool.context.metrics.count(("log_done", self.log.name), number)
        return number

    def renew(
        self, *messages: Given, visibility: float | None = None, claim: str | None = None
    ) -> float:
        """Hold messages for ``visibility`` seconds from now; returns the deadline in Unix seconds.

        claim: as for `ack`. Raises NotInFlight, ClaimVoid.
        """
        given = in_claims(messages, claim)
        with self._doing("renew claims of"):
            store = self._store
            seconds = store.settings().visibility_timeout if visibility is None else visibility
            check_seconds("visibility", seconds, MAX_VISIBILITY_S)
            return store.renew(claims_of(given), seconds, self._generation(given))

    def release(
        self,
        *messages: Given,
        delay: Delay = 0.0,
        claim: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Let messages be handed out again, after ``delay``; durably.

        claim: as for `ack`. reason: why their consumer failed, for those whose deliveries are used
        up: kept in the ``dead_letter``, at most 1024 bytes in UTF-8.

        Raises NotInFlight, ClaimVoid.
        """
        given = in_claims(messages, claim)
        seconds = check_seconds("delay", seconds_of(delay), MAX_DELAY_S)
        claims, generation = claims_of(given), self._generation(given)
        if (reason := check_reason(reason)) is not None:
            with self._doing("bury messages of"):
                claims = self._store.bury_used_up(claims, generation, reason, self._bury)
        with self._doing("release messages of"):
            self._store.release(claims, seconds, generation)

    def release_unseen(self, messages: Iterable[ChannelMessage]) -> None:
        """Release messages that reached no consumer: this does not count as a delivery.

        Raises NotInFlight, ClaimVoid.
        """
        given = list(messages)
        with self._doing("release messages of"):
            claims, generation = claims_of(given), self._generation(given)
            self._store.release(claims, 0.0, generation, is_seen=False)

    def bury(self, *messages: Given, reason: str | None = None, claim: str | None = None) -> None:
        """Move messages to the dead-letter queue: they are durable there before they are done here.

        In the order of their offsets: if one cannot be stored, the ones before it have moved.

        reason: kept in their ``dead_letter``; at most 1024 bytes in UTF-8.
        claim: as for `ack`.

        Raises NotInFlight, ClaimVoid; InvalidValue if the channel has no such queue.
        """
        given = in_claims(messages, claim)
        if self.settings().dead_letter_queue is None:
            raise InvalidValue("dead_letter_queue", "is not set: nothing can be buried")
        reason = check_reason(reason)
        with self._doing("bury messages of"):
            self._store.bury(claims_of(given), self._generation(given), reason, self._bury)

    def end_poison(self) -> None:
        """Bury or skip messages whose deliveries are used up, even if nobody claims."""
        with self._doing("end claims of"):
            self._store.end_poison(self._bury)

    def _bury(self, message: LogMessage, deliveries: int, reason: str | None) -> None:
        bury(self.log.spool, self._store, message, deliveries, reason)

    # -- where it is -----------------------------------------------------------------------------

    def seek(self, to: From) -> int:
        """Move the channel to an offset or a time, durably; returns the new position.

        Claims in flight are void: a later ack raises ClaimVoid.
        """
        with self._doing("seek in"):
            channel = self._store  # before looking: the offset is one of this log
            known = channel.store.known(True)
            offset = min(max(self.log.offset_of(to), known.first), known.end)
            channel.seek(offset)
            return offset

    def state(self) -> ChannelState:
        """Where the channel is, and how far it lags."""
        with self._doing("look at"):
            return self._state(self._store)

    def _state(self, store: ChannelStore) -> ChannelState:
        of = store.store
        known = of.known(True)
        settings = store.settings()
        with store.locked() as progress:
            tally = replace(progress.tally)
            progress.end_timers(int(of.disk.clock() * 1e9))
            position = max(progress.position, known.first)
            lost = known.first - progress.position if progress.position < known.first else 0
            if lost:
                lost -= sum(b - a for a, b in progress.done.within(progress.position, known.first))
            behind = sum(b - a for a, b in progress.done.gaps(position, known.end))
            in_flight, delayed = progress.count()
            is_full = progress.highest - position >= settings.max_window
            blocked = progress.poison_at if settings.poison == "block" else None
            unburied = progress.unburied_at if settings.poison == "bury" else None
            generation = progress.generation
        age = 0.0
        if behind:
            oldest = store.page(position, 1).messages
            if oldest:
                age = max(0.0, of.disk.clock() - oldest[0].published_at)
        first_lost = tally.first_lost
        if lost and first_lost is None:
            first_lost = position - lost
        return ChannelState(
            position=position,
            lag=behind,
            lag_bytes=of.reader.bytes_from(position) if behind else 0,
            lag_seconds=age,
            in_flight=in_flight,
            delayed=delayed,
            lost=tally.lost + lost,
            first_lost=first_lost,
            skipped=tally.skipped,
            buried=tally.buried,
            blocked_at=blocked,
            unburied_at=unburied,
            stalled="window" if is_full else None,
            paused=settings.paused,
            generation=generation,
            settings=settings,
        )

    def _worker(self, handler: Callable[[ChannelMessage, Claim], object], *pace: Any) -> Any:
        make = self.log._logs.worker
        assert make is not None, "only the logs of a spool have workers"
        return make(self, handler, *pace)

    def _generation(self, messages: Iterable[Given]) -> int | None:
        return generation_of(self.log.name, self.name, messages)

    @property
    def _store(self) -> ChannelStore:
        return self.log._logs.channel(self.log.name, self.name)

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_unavailable(f"cannot {what} channel {self.name!r} of log {self.log.name!r}")
