"""One channel of a log as one process sees it: its folder, its lock, and its progress.

    channels/<channel>/
      channel.json    settings
      tally.json      what was lost and skipped
      .lock           locked to claim and to change; a counter of changes
      <generation>/   the highest counts; one more with each seek
        done/  claims/  retry/

A claim needs no sync: if all are lost, messages are handed out again. What is done is synced before
it is answered, and nothing can be done that is not durable in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from ..durability.sync import Work
from ..errors import ClaimVoid, FsmqError, NotInFlight, Unavailable
from ..layout.dead_letter import USED_UP
from ..layout.uuids import uuid7
from .channel_files import LOCK, make_generation, write_tally
from .handing import Asked, Chooser, Chosen, together
from .holds import CLAIMS, Hold
from .log_settings import ChannelSettings
from .open_channel import OpenChannel
from .progress import Progress
from .ranges import Range, Ranges, ranges_of
from .record import LogMessage


class Bury(Protocol):
    def __call__(self, messages: list[LogMessage], deliveries: int, reason: str | None) -> None: ...


class ChannelStore(OpenChannel):
    """The verbs of one channel. Safe in threads. Each raises as `locked` does."""

    # -- claim -----------------------------------------------------------------------------------

    def claim_each(self, asked: Sequence[Asked], bury: Bury) -> list[list[tuple[LogMessage, Hold]]]:
        """Hand out messages to each in turn, each message with the claim that it is in.

        When one gets nothing, nobody behind it does. Raises as `locked`, and OSError.

        bury: stores messages in the dead-letter queue, durably, with their deliveries and a reason.
        """
        settings = self.settings()
        found: list[list[tuple[LogMessage, Hold]]] = []
        if not settings.paused:
            with self.locked() as progress:
                now_ns = int(self.store.disk.clock() * 1e9)
                known = self.store.known()
                self._lose_before(progress, known.first)
                progress.end_timers(now_ns)
                self._end_poison(progress, settings, bury)
                limit = min(known.end, progress.position + settings.max_window)
                while len(found) < len(asked):
                    some = together(asked[len(found) :], settings.order)
                    try:
                        handed = self._claim(progress, settings, limit, some, now_ns)
                    except (OSError, FsmqError):
                        if not found:
                            raise
                        self._progress = None  # what was changed in part is to be read anew
                        break
                    if not handed:
                        break
                    found += [handed] if len(some) == 1 else [[one] for one in handed]
        return found + [[] for _ in asked[len(found) :]]

    def _claim(
        self,
        progress: Progress,
        settings: ChannelSettings,
        limit: int,
        asked: Sequence[Asked],
        now_ns: int,
    ) -> list[tuple[LogMessage, Hold]]:
        """What those get together who ask, below an offset; they have the same deadline."""
        visibility_s = asked[0].visibility
        if visibility_s is None:
            visibility_s = settings.visibility_timeout
        max_bytes = min(one.max_bytes for one in asked)  # as much as one of them reads at a time
        chosen = Chooser(
            *(progress, settings.order, self.store.page, limit, settings.max_deliveries, max_bytes),
            apart=len(asked) > 1,
        ).choose(sum(one.number for one in asked))
        if chosen.lost:
            self._lose(progress, chosen.lost)
        return self._hand_out(progress, chosen, now_ns + int(visibility_s * 1e9))

    def _hand_out(
        self, progress: Progress, chosen: Chosen, deadline_ns: int
    ) -> list[tuple[LogMessage, Hold]]:
        if chosen.offsets:
            self._announce()
        progress.note_keys(chosen.keys)
        handed: list[tuple[LogMessage, Hold]] = []
        for deliveries, offsets in chosen.offsets.items():
            offsets.sort()
            hold = progress.hand_out(offsets, deliveries + 1, CLAIMS, deadline_ns)
            handed += [(chosen.messages[offset], hold) for offset in offsets]
            if self.note is not None:
                self.note("claimed", ranges_of(offsets), deliveries=deliveries + 1)
        if len(chosen.offsets) > 1:
            handed.sort(key=lambda one: one[0].offset)
        return handed

    def end_poison(self, bury: Bury) -> None:
        """Bury or skip the messages whose deliveries are used up, though nobody claims."""
        settings = self.settings()
        if settings.max_deliveries is None or settings.poison == "block":
            return
        with self.locked() as progress:
            progress.end_timers(int(self.store.disk.clock() * 1e9))
            self._end_poison(progress, settings, bury)

    def _end_poison(
        self,
        progress: Progress,
        settings: ChannelSettings,
        bury: Bury,
    ) -> None:
        """Bury or skip the messages whose deliveries are used up."""
        most, how = settings.max_deliveries, settings.poison
        if most is None or how == "block":
            return
        for hold in progress.due_holds():
            if hold.deliveries >= most:
                buried = partial(bury, deliveries=hold.deliveries, reason=USED_UP)
                self._end(progress, hold.ranges.copy(), buried if how == "bury" else None)

    def _end(
        self,
        progress: Progress,
        ranges: Ranges,
        bury: Callable[[list[LogMessage]], None] | None,
    ) -> None:
        tally = self.tally()
        if bury is not None:
            messages = [m for a, b in ranges for m in self._messages(a, b)]
            bury(messages)
            tally.buried += ranges.count()
        else:
            tally.skipped += ranges.count()
        write_tally(self._tree, self.folder, tally)
        self._finish(progress, list(ranges), "skipped" if bury is None else "buried")

    def _messages(self, start: int, end: int) -> Iterator[LogMessage]:
        while start < end:
            page = self.store.page(start, end - start)
            yield from (message for message in page.messages if message.offset < end)
            if page.next <= start:
                return
            start = page.next

    # -- what a channel does not get -------------------------------------------------------------

    def lose_before(self, first: int) -> int:
        """Count what retention has removed, or is about to, as lost; how many that are."""
        with self.locked() as progress:
            return self._lose_before(progress, first)

    def _lose_before(self, progress: Progress, first: int) -> int:
        if progress.position >= first:
            return 0
        return self._lose(progress, list(progress.done.gaps(progress.position, first)))

    def _lose(self, progress: Progress, ranges: list[Range]) -> int:
        tally = self.tally()
        # A crash between the two must not count them twice.
        new = Ranges(one for one in ranges)
        new.remove(0, tally.lost_through)
        lost = new.count()
        if lost:
            tally.lost += lost
            start = next(iter(new))[0]
            tally.first_lost = start if tally.first_lost is None else tally.first_lost
            tally.lost_through = max(tally.lost_through, new.end)
            write_tally(self._tree, self.folder, tally)
        self._finish(progress, ranges, "lost")
        return lost

    # -- done ------------------------------------------------------------------------------------

    def _finish(self, progress: Progress, ranges: list[Range], event: str) -> None:
        """Write down what is done, durably, under the lock. event: what has become of it."""
        self._announce()
        work, old = progress.finished.add(ranges)
        for hold in progress.forget(ranges):
            old.append(progress.files.path(hold))
        self._settled(progress, work, old, ranges, event)

    def _settled(
        self,
        progress: Progress,
        work: Work,
        old: list[str],
        ranges: list[Range],
        event: str = "done",
    ) -> None:
        self._sync(work)
        progress.finished.unlink(old)
        if self.note is not None:
            self.note(event, ranges)

    def done(self, ranges: list[Range], generation: int | None) -> int:
        """Finish messages that were handed out, durably; how many had not been done yet.

        generation: that of their claims; None: whatever it is now.

        Raises ClaimVoid, NotInFlight, Unavailable.
        """
        with self.locked() as progress:
            self._check(generation)
            new = self._unfinished(progress, ranges)
            if new:
                self._announce()
                work, old = progress.finished.add(new)
                old += [progress.files.path(hold) for hold in progress.forget(new)]
            else:
                # The process that did it may not have synced it yet.
                work, old = Work(folders={progress.finished.folder}), []
        self._settled(progress, work, old, new)
        return sum(end - start for start, end in new)

    def done_each(
        self, asked: Sequence[tuple[list[Range], int | None]]
    ) -> list[int | ClaimVoid | NotInFlight]:
        """The same for many who ask at the same moment, with one sync: what each is answered."""
        found: list[int | ClaimVoid | NotInFlight] = []
        new = Ranges()
        work = Work()
        old: list[str] = []
        with self.locked() as progress:
            for ranges, generation in asked:
                try:
                    self._check(generation)
                    of_one = Ranges(self._unfinished(progress, ranges))
                except (ClaimVoid, NotInFlight) as error:
                    found.append(error)
                    continue
                of_one.discard(list(new))
                found.append(of_one.count())
                new.update(list(of_one))
            if new:
                self._announce()
                work, old = progress.finished.add(list(new))
                old += [progress.files.path(hold) for hold in progress.forget(list(new))]
            elif 0 in found:
                # The process that did it may not have synced it yet.
                work = Work(folders={progress.finished.folder})
        self._settled(progress, work, old, list(new))
        return found

    def _unfinished(self, progress: Progress, ranges: list[Range]) -> list[Range]:
        """What of some ranges is handed out and not done. Raises NotInFlight, ClaimVoid."""
        new: list[Range] = []
        for start, end in ranges:
            for gap_start, gap_end in progress.done.gaps(start, end):
                for offset in range(gap_start, gap_end):
                    if offset not in progress.owner:
                        if self._generation > 1:
                            raise ClaimVoid(self.store.disk.name, self.name)
                        raise NotInFlight(self.store.disk.name, self.name, offset)
                new.append((gap_start, gap_end))
        return new

    def done_through(self, last: int, generation: int | None) -> int:
        """Finish all that were handed out up to an offset, this one included; how many."""
        with self.locked() as progress:
            self._check(generation)
            new = ranges_of(sorted(offset for offset in progress.owner if offset <= last))
            self._announce()
            work, old = progress.finished.add(new)
            old += [progress.files.path(hold) for hold in progress.forget(new)]
        self._settled(progress, work, old, new)
        return sum(end - start for start, end in new)

    def _check(self, generation: int | None) -> None:
        if generation is not None and generation != self._generation:
            raise ClaimVoid(self.store.disk.name, self.name)

    # -- claims in hand --------------------------------------------------------------------------

    def renew(self, offsets: list[int], visibility: float, generation: int | None) -> float:
        """Move the deadline of claimed messages; the new one in Unix seconds."""
        deadline = self.store.disk.clock() + visibility
        with self.locked() as progress:
            for group in self._claimed(progress, offsets, generation):
                self._announce()
                progress.renew(group, int(deadline * 1e9))
        if self.note is not None:
            self.note("renewed", ranges_of(sorted(set(offsets))))
        return deadline

    def release(self, offsets: list[int], delay: float, generation: int | None) -> None:
        """Give messages up, until ``delay`` seconds are over; durably."""
        work = Work()
        with self.locked() as progress:
            until_ns = int((self.store.disk.clock() + delay) * 1e9)
            for group in self._claimed(progress, offsets, generation):
                self._announce()
                hold = progress.give_up(group, until_ns)
                path = progress.files.path(hold)
                with suppress(FileNotFoundError):
                    work.files.append(self._tree.open(path))
                work.folders.add(path.rpartition("/")[0])
            if self._tree.network:
                # Without the lock another host may claim them: the file would be gone.
                self._sync(work)
                work = Work()
        self._sync(work)
        if self.note is not None:
            self.note("released", ranges_of(sorted(set(offsets))))

    def bury(
        self,
        offsets: list[int],
        generation: int | None,
        reason: str | None,
        bury: Bury,
    ) -> None:
        """Store messages in the dead-letter queue, and finish them here; durably."""
        with self.locked() as progress:
            for group in self._claimed(progress, offsets, generation):
                deliveries = progress.owner[group[0]].deliveries
                buried = partial(bury, deliveries=deliveries, reason=reason)
                self._end(progress, Ranges(ranges_of(group)), buried)

    def _claimed(
        self, progress: Progress, offsets: list[int], generation: int | None
    ) -> list[list[int]]:
        """Offsets that are handed out, by their holds. Raises NotInFlight, ClaimVoid."""
        self._check(generation)
        groups: dict[int, list[int]] = {}
        for offset in sorted(set(offsets)):
            hold = progress.owner.get(offset)
            if hold is None:
                raise NotInFlight(self.store.disk.name, self.name, offset)
            groups.setdefault(id(hold), []).append(offset)
        return list(groups.values())

    def ready_in(self) -> float | None:
        """In how many seconds the next claim or delay ends; None if there is none."""
        with self.locked() as progress:
            progress.end_timers(int(self.store.disk.clock() * 1e9))
            deadline_ns = progress.next_deadline_ns()
        if deadline_ns is None:
            return None
        return max(0.0, deadline_ns / 1e9 - self.store.disk.clock())

    # -- seek ------------------------------------------------------------------------------------

    def seek(self, to: int) -> None:
        """Send the channel to an offset, durably; claims are void from now on."""
        with self.locked():
            self._announce()
            old = f"{self.folder}/{self._generation}"
            draft = f"{self.folder}/.{uuid7()}"
            make_generation(self._tree, draft, to)
            try:
                self._tree.rename(draft, f"{self.folder}/{self._generation + 1}")
            except FileExistsError:
                self.store.disk.trash(draft)
                raise Unavailable("another program sends the channel elsewhere") from None
            self.store.disk.sync_folder(self.folder)
            with suppress(OSError):
                self.store.disk.trash(old)
            self._progress = None
        if self.note is not None:
            self.note("sought", [(to, to)])

    def touch(self) -> None:
        """Note that the channel is in use."""
        self._tree.touch(f"{self.folder}/{LOCK}")

    def changed_at_ns(self) -> int | None:
        """When a program changed the channel last; None if nobody has, or it is gone."""
        found = self._tree.look(f"{self.folder}/{LOCK}")
        return None if found is None else found.st_mtime_ns

    def used_at(self) -> float:
        """When a message was claimed or finished last, Unix seconds."""
        found = self._tree.stat(f"{self.folder}/{LOCK}")
        if found is None:
            found = self._tree.stat(self.folder)
        return found.st_mtime if found is not None else 0.0
