"""The check: walk the tree, note what seems wrong, check that again, repair, report."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..consumers.manifest import folder_of
from ..errors import ADVICE, Unavailable, UnusableSpool
from ..index.counting import Counts
from ..layout.filesystem import examine, refuse_root, refuse_snapshot
from ..layout.names import is_id, is_queue, split_entry
from ..layout.stamps import Stamps
from ..layout.topics.topics import Topics
from ..layout.transitions import (
    CONFIG,
    CONSUMERS,
    DELAY,
    FOLDERS,
    IDS,
    NEW,
    QUEUES,
    REMOVE,
    SCHEDULES,
    SNAPSHOT,
    STAGING,
    TOPICS,
    State,
)
from ..layout.tree import STRAY, Tree
from .duplicates import Links, Seen, is_among, look_twice
from .jobs import JobRules
from .layout import LayoutRules
from .messages import Inspection, MessageRules
from .ordered_logs import LogRules
from .report import Fault, Finding, Kind, Progress, Report, Severity
from .scheduled import ScheduleRules
from .suspects import Suspect, grouped, look_again, settle
from .unlinked import LinkRules

MAX_LISTED = 10_000
_PROGRESS_STEP = 2000

_LIVE = (State.NEW, State.READY, State.DELAY)

Rule = Callable[[str, os.stat_result], Fault | None]


def check(
    where: Tree | str | Path,
    *,
    repair: bool = False,
    create_queues: bool = False,
    bodies: bool = False,
    offline: bool = False,
    pause: float = 2.0,
    progress: Callable[[Progress], None] = lambda progress: None,
    clock: Callable[[], float] = time.time,
) -> Report:
    """Check a tree, and with ``repair`` repair what can be repaired without losing anything.

    where: an opened tree or the path of a root.
    create_queues: a repair also creates missing queues to which messages belong.
    bodies: also read messages that have a header block or are compressed, and logs.
    offline: promise that no other process uses the tree. Then nothing counts as in use, whatever
        its age, and nothing is checked twice.
    pause: seconds until a suspicious entry is checked again.
    progress: called now and then with the progress of the check.
    clock: gives Unix seconds.

    Needs eight bytes of memory for each message, and little more. Takes about ten seconds for a
    million messages if their folders are in the page cache.

    Raises:
        UnusableSpool: the root cannot be opened, the disk fails, or a snapshot is to be repaired.
    """
    with opened(where) as tree:
        if repair:
            refuse_snapshot(tree)
            refuse_root(tree.root)
        user = os.fstat(tree.fd).st_uid or os.geteuid()
        stamps = Stamps(examine(tree).coarse)
        inspection = Inspection(tree, stamps, clock, offline, bodies, create_queues, user)
        one = Checker(inspection, pause, progress)
        report = one.run(repair)
        report.findings = grouped([suspect.fault for suspect in one.left])
        return report


@contextmanager
def opened(where: Tree | str | Path) -> Iterator[Tree]:
    """A tree to be checked. Raises UnusableSpool, also for an OSError in the ``with``."""
    tree = where if isinstance(where, Tree) else Tree(where, create=False)
    try:
        yield tree
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, (str(error), 0))[0]
        name = error.filename or "the tree"
        raise UnusableSpool(f"cannot check {tree.root}: {name}: {advice}") from error
    finally:
        if tree is not where:
            tree.close()


class _Place(NamedTuple):
    """A folder to be walked; ``state`` is None for a folder without messages."""

    path: str
    rule: Rule
    state: State | None = None
    queue: str = ""

    def message(self, name: str) -> tuple[str, str] | None:
        """Queue and id of an entry; None if it is not a message."""
        if self.state is State.READY:
            return (self.queue, name) if is_id(name) else None
        return split_entry(name) if self.state is not None else None


class Checker:
    """One check. ``left``: the faults it found."""

    def __init__(
        self,
        inspection: Inspection,
        pause: float,
        progress: Callable[[Progress], None],
    ) -> None:
        self.left: list[Suspect] = []
        self._several = Links(MAX_LISTED)
        self._inspection = inspection
        self._tree = inspection.tree
        self._pause = pause
        self._progress = progress
        self._messages = MessageRules(inspection)
        self._layout = LayoutRules(inspection)
        self._links = LinkRules(inspection)
        self._seen = Seen()
        self._is_snapshot = self._tree.stat(SNAPSHOT) is not None
        self._suspects: list[Suspect] = []
        self._listed: Counter[Kind] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._report = Report(str(self._tree.root))
        self._entries = 0

    def run(self, repair: bool) -> Report:
        self._doubt(self._layout.root)
        for name in FOLDERS:
            self._doubt(partial(self._layout.folder, name))
        for check in LogRules(self._inspection).checks():
            self._doubt(check)
        places = self._places()
        for done, place in enumerate(places):
            self._walk(place, done, len(places))
        self._find_twins(places)
        report = self._report
        suspects = self._confirm()
        if repair:
            suspects = self._repair(suspects)
        self.left = suspects
        report.queues = {name: _counts(found) for name, found in self._counts.items()}
        still = {suspect.fault.finding.kind for suspect in suspects}
        more = {kind: n - MAX_LISTED for kind, n in self._listed.items() if n > MAX_LISTED}
        report.unlisted = {kind: n for kind, n in more.items() if kind in still}
        return report

    # -- walking ---------------------------------------------------------------------------------

    def _places(self) -> list[_Place]:
        """The folders to be walked, in the order in which messages pass through them."""
        tree = self._tree
        ready = []
        if tree.is_folder(tree.folder(QUEUES)):
            for queue in tree.queues():
                self._counts[queue] = Counter()
                rule = partial(self._messages.ready, queue)
                ready.append(_Place(tree.folder(QUEUES, queue), rule, State.READY, queue))
        all_places = [
            _Place(tree.folder(CONFIG), self._layout.settings),
            _Place(tree.folder(STAGING), JobRules(self._inspection).entry),
            _Place(tree.folder(SCHEDULES), ScheduleRules(self._inspection).entry),
            _Place(tree.folder(TOPICS), self._layout.topic),
            *(
                _Place(tree.folder(TOPICS, topic), partial(self._layout.subscription, topic))
                for topic in Topics(tree).names()
            ),
            _Place(tree.folder(CONSUMERS), self._layout.consumer),
            *(
                _Place(folder_of(tree, name), partial(self._layout.batch, name))
                for name in filter(is_queue, tree.names(tree.folder(CONSUMERS)))
            ),
            _Place(tree.folder(IDS), self._links.index),
            *(
                _Place(tree.folder(IDS, queue), partial(self._links.link, queue))
                for queue in sorted(self._links.queues)
            ),
            _Place(tree.folder(QUEUES), self._layout.queue),
            _Place(tree.folder(NEW), self._messages.new, State.NEW),
            *ready,
            _Place(tree.folder(DELAY), self._messages.delay, State.DELAY),
            _Place(tree.folder(REMOVE), _anything, State.REMOVE),
        ]
        return [place for place in all_places if self._is_readable(place.path)]

    def _is_readable(self, path: str) -> bool:
        """Whether a folder can be walked; one that this user may not list is a fault."""
        fault = self._closed(path)
        if fault is not None:
            self._suspect(fault, partial(self._closed, path))
        return fault is None and self._tree.is_folder(path)

    def _closed(self, path: str) -> Fault | None:
        try:
            os.close(self._tree.open_folder(path))
        except PermissionError:
            reason = "cannot be read by this user: check its owner and mode"
            return Fault(Finding(Kind.UNREADABLE, Severity.ERROR, path, reason))
        except OSError as error:
            if error.errno not in STRAY:
                raise

            # the rule of the folder around it tells
        return None

    def _walk(self, place: _Place, done: int, places: int) -> None:
        self._progress(Progress(place.path, done, places, self._entries))
        for name, found in self._entries_of(place):
            self._entries += 1
            if self._entries % _PROGRESS_STEP == 0:
                self._progress(Progress(place.path, done, places, self._entries))
            if place.state is not None:
                self._note(place, place.state, name, found)
            rule = partial(self._judge, place)
            fault = rule(name, found)
            if fault is None and place.state in _LIVE:
                self._check_link(place, name, found)
            if fault is not None:
                path = f"{place.path}/{name}"
                self._suspect(fault, partial(self._again, path, name, found.st_ino, rule))

    def _judge(self, place: _Place, name: str, found: os.stat_result) -> Fault | None:
        """What is wrong with an entry. Its owner comes first, as others may not read it."""
        path, fault = f"{place.path}/{name}", None
        if place.state is not State.REMOVE:
            kind = Kind.UNCLAIMABLE if place.state in _LIVE else Kind.OTHER_OWNER
            fault = self._inspection.foreign(path, found, kind)
        return fault or place.rule(name, found)

    def _check_link(self, place: _Place, name: str, found: os.stat_result) -> None:
        """Suspect a message without a link, if its queue has an index."""
        message = place.message(name)
        if message is None or message[0] not in self._links.queues:
            return
        path = f"{place.path}/{name}"
        fault = self._links.message(message[0], path, message[1], found)
        if fault is not None:
            rule = partial(self._links.message, message[0], path)
            again = partial(self._again, path, message[1], found.st_ino, rule)
            self._suspect(fault, again)

    def _entries_of(self, place: _Place) -> Iterator[tuple[str, os.stat_result]]:
        for entry in self._tree.walk(place.path):
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # it moved on

    def _note(self, place: _Place, state: State, name: str, found: os.stat_result) -> None:
        """Count an entry, and remember what is needed to find it elsewhere."""
        if state is State.REMOVE:
            self._report.removed += self._removed(f"{place.path}/{name}", found)
        message = place.message(name)
        if message is None or not stat.S_ISREG(found.st_mode):
            self._report.staged += state is State.NEW and name[0] == "."
            return
        path = f"{place.path}/{name}"
        if self._has_other_names(path, message, found):
            self._several.add(found.st_ino, path, *message)
        if state is not State.REMOVE:
            self._seen.add(*message)
            self._count(state, message, found)

    def _has_other_names(self, path: str, message: tuple[str, str], found: os.stat_result) -> bool:
        if self._is_snapshot or found.st_nlink <= 1 + (message[0] in self._links.queues):
            return False  # snapshots share their files
        return found.st_nlink > 1 + self._links.names_of(path, message[1], found)

    def _removed(self, path: str, found: os.stat_result) -> int:
        """The number of files of an entry of ``remove/``, which can be the folder of a queue."""
        if not stat.S_ISDIR(found.st_mode):
            return 1
        return sum(1 for _ in self._tree.walk(path))

    def _count(self, state: State, message: tuple[str, str], found: os.stat_result) -> None:
        queue, message_id = message
        name = state.value
        if state is State.DELAY:
            now_ms = round(self._inspection.clock() * 1000)
            name = self._inspection.stamps.hidden_state(message_id, found.st_mtime_ns, now_ms)
        self._counts.setdefault(queue, Counter())[name] += 1

    def _find_twins(self, places: list[_Place]) -> None:
        """Find messages in two places; takes a second walk if the first found equal hashes."""
        codes = self._seen.repeated()
        messages = self._several.messages()
        if codes:
            for place in places:
                if place.state in _LIVE:
                    for name in self._tree.walk(place.path):
                        message = place.message(name.name)
                        if message is not None and is_among(codes, *message):
                            messages.add(message)
        for queue, message_id in sorted(messages):
            self._doubt(partial(look_twice, self._tree, queue, message_id))
        for inode in self._several.inodes():
            self._doubt(partial(self._several.look, self._tree, inode))

    # -- doubting --------------------------------------------------------------------------------

    def _doubt(self, look: Callable[[], Fault | None]) -> None:
        fault = look()
        if fault is not None:
            self._suspect(fault, look)

    def _suspect(self, fault: Fault, look: Callable[[], Fault | None]) -> None:
        kind = fault.finding.kind
        self._listed[kind] += 1
        if self._listed[kind] <= MAX_LISTED:
            self._suspects.append(Suspect(fault, look))

    def _again(self, path: str, name: str, inode: int, rule: Rule) -> Fault | None:
        found = self._tree.stat(path)
        if found is None or found.st_ino != inode:
            return None
        return rule(name, found)

    def _confirm(self) -> list[Suspect]:
        """The suspects that are still wrong when they are checked again."""
        suspects, self._suspects = self._suspects, []
        return suspects if self._inspection.offline else settle(suspects, self._pause)

    # -- repairing -------------------------------------------------------------------------------

    def _repair(self, suspects: list[Suspect]) -> list[Suspect]:
        """Repair what can be repaired; returns the rest."""
        left: list[Suspect] = []
        mended: list[Fault] = []
        failed: list[Suspect] = []
        for suspect in suspects:
            fault = suspect.fault
            try:
                if fault.mend is not None and fault.mend():
                    mended.append(fault)
                else:
                    left.append(suspect)
            except (OSError, Unavailable) as error:
                why = error.strerror if isinstance(error, OSError) else error
                reason = f"{fault.finding.reason}; the repair failed: {why}"
                finding = replace(fault.finding, reason=reason)
                failed.append(suspect._replace(fault=fault._replace(finding=finding)))
        self._report.repaired = grouped(mended)
        for name in (NEW, DELAY, QUEUES) if mended else ():
            self._tree.sync_folder(self._tree.folder(name))
        return failed + (look_again(left) if mended else left)


def _anything(name: str, found: os.stat_result) -> None:
    """The rule for ``remove/``: any entry is right, since the reaper removes it."""


def _counts(found: Counter[str]) -> Counts:
    return Counts(found["new"], found["ready"], found["in_flight"], found["delayed"])
