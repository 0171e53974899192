"""The verbs of one channel of a log, as one process sees it.

    channels/<channel>/
      channel.json    settings
      progress.<k>    what is done, handed out, given up and lost, in lines

A claim needs no sync: if it is lost, messages are handed out again. An ack is synced before it is
answered, and only messages that are durable in the log can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ...durability.sync import Dirty
from ...errors import ClaimVoid, FsmqError, InvalidValue, MessageTooLarge, NotInFlight
from ...layout.messages.dead_letter import USED_UP, used_up
from ..ranges import Range, Ranges, ranges_of, size_of
from ..segment.record import LogMessage
from .dispatch import Asked, Chosen, Dispatcher, together
from .lines import BURIED, CLAIMED, DONE, LOST, RELEASED, SKIPPED, SOUGHT, UNBURIED, Line
from .open_channel import OpenChannel
from .progress import Held, Progress

log = logging.getLogger(__name__)
# A message that could not be buried is tried again after this time.
_UNBURIED_S = 10.0
# Poison is buried under the lock, with two syncs for each message: so others wait for no more than
# these. The rest is not handed out either, and follows at the next claim or look.
_BURIED_AT_A_TIME = 100


class Bury(Protocol):
    def __call__(self, message: LogMessage, deliveries: int, reason: str | None) -> None: ...


class ChannelStore(OpenChannel):
    """The verbs of one channel. Safe in threads. Each raises as `locked` does."""

    # -- claim -----------------------------------------------------------------------------------

    def claim_each(
        self, asked: Sequence[Asked], bury: Bury
    ) -> tuple[list[list[tuple[LogMessage, Line]]], int]:
        """Hand out messages for each request in turn, each with its claim; and the generation.

        When one request gets nothing, none of the later ones does. Raises as `locked`, and OSError.

        bury: stores a message in the dead-letter queue, durably, with its deliveries and a reason.
        """
        found: list[list[tuple[LogMessage, Line]]] = []
        with self.locked() as progress:
            generation = progress.generation
            if not self._settings.paused:
                now_ns = int(self.store.disk.clock() * 1e9)
                known = self.store.known()
                self._lose(progress, progress.done.gaps(progress.position, known.first))
                progress.end_timers(now_ns)
                self._end_poison(progress, bury)
                limit = min(known.end, progress.position + self._settings.max_window)
                while len(found) < len(asked):
                    group = together(asked[len(found) :], self._settings.order)
                    try:
                        handed = self._claim(progress, limit, group, now_ns)
                    except (OSError, FsmqError):
                        if not found:
                            raise
                        self._progress = None  # it is changed in part: read it again
                        break
                    if not handed:
                        break
                    found += [handed] if len(group) == 1 else [[one] for one in handed]
            if not found:
                self._note_use()
        return found + [[] for _ in asked[len(found) :]], generation

    def _claim(
        self,
        progress: Progress,
        limit: int,
        asked: Sequence[Asked],
        now_ns: int,
    ) -> list[tuple[LogMessage, Line]]:
        """Messages below an offset for several requests together, with one deadline."""
        settings, visibility_s = self._settings, asked[0].visibility
        if visibility_s is None:
            visibility_s = settings.visibility_timeout
        max_bytes = min(one.max_bytes for one in asked)  # what one of them reads at a time
        if settings.order == "key":
            progress.keys.learn(progress.held, self._keys_of)
        chosen = Dispatcher(
            progress,
            settings.order,
            self.page,
            limit,
            max_bytes,
            apart=len(asked) > 1,
        ).choose(sum(one.number for one in asked))
        self._lose(progress, chosen.lost)
        return self._hand_out(progress, chosen, now_ns + int(visibility_s * 1e9))

    def _hand_out(
        self, progress: Progress, chosen: Chosen, deadline_ns: int
    ) -> list[tuple[LogMessage, Line]]:
        lines = [
            Line(CLAIMED, ranges_of(sorted(offsets)), deliveries + 1, deadline_ns)
            for deliveries, offsets in chosen.offsets.items()
        ]
        self._write(progress, lines, chosen.keys)
        handed: list[tuple[LogMessage, Line]] = []
        for line in lines:
            handed += [(chosen.messages[o], line) for a, b in line.ranges for o in range(a, b)]
            self._note("claimed", line.ranges, deliveries=line.deliveries)
        if len(lines) > 1:
            handed.sort(key=lambda one: one[0].offset)
        return handed

    def end_poison(self, bury: Bury) -> None:
        """Bury or skip the messages whose deliveries are used up, even if nobody claims."""
        settings = self.settings()
        if settings.max_deliveries is None or settings.poison == "block":
            return
        with self.locked_unused() as progress:
            progress.end_timers(int(self.store.disk.clock() * 1e9))
            self._end_poison(progress, bury)

    def _end_poison(self, progress: Progress, bury: Bury) -> None:
        if self._settings.poison == "bury":
            used = progress.lowest_poison(_BURIED_AT_A_TIME)
            self._bury_if_taken(progress, used, USED_UP, bury)
            until_ns = int((self.store.disk.clock() + _UNBURIED_S) * 1e9)
            for deliveries, ranges in used:
                left = [one for start, end in ranges for one in progress.done.gaps(start, end)]
                self._write(progress, [Line(UNBURIED, left, deliveries, until_ns)])
        elif self._settings.poison == "skip":
            poison = [one for hold in progress.poison for one in hold.ranges]
            self._finish(progress, SKIPPED, poison)

    def _bury_if_taken(
        self, progress: Progress, held: Sequence[Held], reason: str, bury: Bury
    ) -> None:
        """Bury messages that the dead-letter queue takes. The rest has to wait: it must not block
        claims of other messages."""
        for offset in self._taken(progress, held, reason, bury):
            # Before the next one: a consumer may already have removed the dead letter.
            self._finish(progress, BURIED, [(offset, offset + 1)])

    def _taken(
        self, progress: Progress, held: Sequence[Held], reason: str, bury: Bury
    ) -> Iterator[int]:
        """Store messages in the dead-letter queue; the offsets of those that it takes."""
        try:
            for deliveries, ranges in held:
                for message in self._messages(progress, ranges):
                    try:
                        bury(message, deliveries, reason)
                    except (InvalidValue, MessageTooLarge) as error:
                        self._note_unburied(error)  # other messages may still be accepted
                    else:
                        yield message.offset
        except (OSError, FsmqError) as error:
            self._note_unburied(error)

    def _note_unburied(self, error: Exception) -> None:
        of = f"channel {self.name!r} of log {self.store.disk.name!r}"
        log.warning("%s cannot bury a message, and tries again later: %s", of, error)

    def _messages(self, progress: Progress, ranges: Iterable[Range]) -> Iterator[LogMessage]:
        """The messages of ranges; notes those that are lost."""
        for start, end in ranges:
            for page in self._pages(start, end):
                self._lose(progress, [(a, min(b, end)) for a, b in page.lost if a < end])
                yield from (one for one in page.messages if one.offset < end)

    # -- what a channel does not get -------------------------------------------------------------

    def lose_before(self, first: int) -> int:
        """Count as lost what retention is about to remove, and sync what was finished; how many."""
        dirty = Dirty()
        with self.locked_unused() as progress:
            lost = list(progress.done.gaps(progress.position, first))
            self._write(progress, [Line(LOST, lost)], dirty=dirty)
            if not lost:
                dirty.files.append(self._tree.open(self.path))
        self._sync(dirty)
        self._note(LOST, lost)
        return size_of(lost)

    def _lose(self, progress: Progress, ranges: Iterable[Range]) -> None:
        self._finish(progress, LOST, list(ranges))

    # -- done ------------------------------------------------------------------------------------

    def _finish(self, progress: Progress, kind: str, ranges: Sequence[Range]) -> None:
        """Write the outcome of messages durably, under the lock."""
        if not ranges:
            return
        dirty = Dirty()
        self._write(progress, [Line(kind, ranges)], dirty=dirty)
        self._sync(dirty)
        self._note(kind, ranges)

    def _note(self, event: str, ranges: Sequence[Range], **more: int) -> None:
        if ranges:
            self._journal(event, self.store.disk.name, self.name, list(ranges), **more)

    def done_each(
        self, asked: Sequence[tuple[list[Range], int | None]]
    ) -> list[int | ClaimVoid | NotInFlight]:
        """Finish messages that were handed out, for many simultaneous requests, with one sync.

        asked: ranges, and the generation of their claims; None: whatever it is now. Returns for
        each how many had not been done yet, or an error.
        """
        found: list[int | ClaimVoid | NotInFlight] = []
        new, given, dirty = Ranges(), Ranges(), Dirty()
        with self.locked() as progress:
            for ranges, generation in asked:
                try:
                    self._check(progress, generation)
                    of_one = Ranges(self._unfinished(progress, ranges))
                except (ClaimVoid, NotInFlight) as error:
                    found.append(error)
                    continue
                before = new.count()
                new.update(of_one)
                found.append(new.count() - before)
                given.update(ranges)
            # Including what is done already: another process's sync of it may have failed.
            self._write(progress, [Line(DONE, list(given))], dirty=dirty)
        self._sync(dirty)
        self._note(DONE, list(new))
        return found

    def _unfinished(self, progress: Progress, ranges: list[Range]) -> list[Range]:
        """The parts of ranges that are handed out and not done. Raises NotInFlight."""
        new = [one for start, end in ranges for one in progress.done.gaps(start, end)]
        for start, end in new:
            offset = progress.held.after(start)
            if offset < end:
                raise NotInFlight(self.store.disk.name, self.name, offset)
        return new

    def done_through(self, last: int, generation: int | None) -> int:
        """Finish all messages handed out up to and including an offset; how many."""
        dirty = Dirty()
        with self.locked() as progress:
            self._check(progress, generation)
            new = list(progress.held.within(0, last + 1))
            given = Ranges(progress.done.within(0, last + 1))
            given.update(new)
            self._write(progress, [Line(DONE, list(given))], dirty=dirty)
        self._sync(dirty)
        self._note(DONE, new)
        return size_of(new)

    def _check(self, progress: Progress, generation: int | None) -> None:
        if generation is not None and generation != progress.generation:
            raise ClaimVoid(self.store.disk.name, self.name)

    # -- claims in hand --------------------------------------------------------------------------

    def renew(self, claims: Mapping[int, int], visibility: float, generation: int | None) -> float:
        """Set a new deadline for claimed messages; returns it in Unix seconds.

        Not for those whose claim has ended, or that were released: another claim may have messages
        of their key by now, and a renewal that comes late must not end a delay.
        """
        with self.locked() as progress:
            now = self.store.disk.clock()
            deadline = now + visibility
            progress.end_timers(int(now * 1e9))
            held = self._claimed(progress, claims, generation, is_on=True)
            until_ns = int(deadline * 1e9)
            self._write(progress, [Line(CLAIMED, of, n, until_ns) for n, of in held.items()])
        self._note("renewed", ranges_of(sorted(claims)))
        return deadline

    def release(
        self,
        claims: Mapping[int, int],
        delay: float,
        generation: int | None,
        *,
        is_seen: bool = True,
    ) -> None:
        """Release messages, durably; they are handed out again after ``delay`` seconds.

        is_seen: False if they reached no consumer: then this was no delivery.
        """
        dirty, unseen = Dirty(), 0 if is_seen else 1
        with self.locked() as progress:
            until_ns = int((self.store.disk.clock() + delay) * 1e9)
            held = self._claimed(progress, claims, generation)
            lines = [Line(RELEASED, of, max(0, n - unseen), until_ns) for n, of in held.items()]
            self._write(progress, lines, dirty=dirty)
        self._sync(dirty)
        self._note(RELEASED, ranges_of(sorted(claims)))

    def bury(
        self,
        claims: Mapping[int, int],
        generation: int | None,
        reason: str | None,
        bury: Bury,
    ) -> None:
        """Store messages in the dead-letter queue, and finish each here, durably, before the next.

        If one cannot be stored, those before it are buried, and the rest stays as it is.
        """
        with self.locked() as progress:
            for deliveries, held in self._claimed(progress, claims, generation).items():
                for message in self._messages(progress, held):
                    bury(message, deliveries, reason)
                    self._finish(progress, BURIED, [(message.offset, message.offset + 1)])

    def bury_used_up(
        self, claims: dict[int, int], generation: int | None, reason: str, bury: Bury
    ) -> dict[int, int]:
        """Bury those messages whose deliveries are used up; returns the others.

        Those that cannot be buried are among these: once released, they are buried later.
        """
        with self.locked() as progress:
            most = self._settings.max_deliveries
            if most is None or self._settings.poison != "bury":
                return claims
            held = self._claimed(progress, claims, generation)
            used = [one for one in held.items() if one[0] >= most]
            self._bury_if_taken(progress, used, used_up(reason), bury)
            return {offset: n for offset, n in claims.items() if offset in progress.owner}

    def _claimed(
        self,
        progress: Progress,
        claims: Mapping[int, int],
        generation: int | None,
        *,
        is_on: bool = False,
    ) -> dict[int, list[Range]]:
        """Offsets that are held, by their deliveries.

        claims: offsets, each with the deliveries of its claim; 0: whatever they are now. is_on: the
        hold must be a claim that has not ended.

        Raises NotInFlight, ClaimVoid.
        """
        self._check(progress, generation)
        found: dict[int, list[int]] = {}
        for offset, deliveries in sorted(claims.items()):
            hold = progress.owner.get(offset)
            if (
                hold is None
                or deliveries not in (0, hold.deliveries)
                or (is_on and not hold.is_claimed)
            ):
                raise NotInFlight(self.store.disk.name, self.name, offset)
            found.setdefault(hold.deliveries, []).append(offset)
        return {n: ranges_of(offsets) for n, offsets in found.items()}

    def again_in(self) -> float | None:
        """In how many seconds to claim again if nothing changes: when the next claim or delay ends,
        or early enough for the channel to count as used; None: never."""
        with self.locked() as progress:
            now = self.store.disk.clock()
            progress.end_timers(int(now * 1e9))
            deadline_ns, expires = progress.next_deadline_ns(), self._settings.expires
            is_poison_left = progress.poison and self._settings.poison == "bury"
            if (is_poison_left or progress.is_cut) and not self._settings.paused:
                deadline_ns = 0  # the last claim has buried, or looked at, a part
        ends = None if deadline_ns is None else max(0.0, deadline_ns / 1e9 - now)
        return min((at for at in (ends, expires and expires / 2) if at is not None), default=None)

    # -- seek ------------------------------------------------------------------------------------

    def seek(self, to: int) -> None:
        """Move the channel to an offset, durably; all claims are void from now on."""
        dirty = Dirty()
        with self.locked() as progress:
            self._write(progress, [Line(SOUGHT, [(0, to)])], dirty=dirty)
            self._sync(dirty)  # before anything is handed out from there
        self._note(SOUGHT, [(to, to)])
