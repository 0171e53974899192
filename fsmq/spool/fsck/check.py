"""The check itself: walk, doubt, look again, repair, report."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..counts import Counts
from ..errors import ADVICE, UnusableSpool
from ..filesystem import examine
from ..manifest import folder_of
from ..names import is_id, is_queue, split_entry
from ..stamps import Stamps
from ..topics import Topics
from ..transitions import (
    CONFIG,
    CONSUMERS,
    DELAY,
    FOLDERS,
    NEW,
    QUEUES,
    REMOVE,
    STAGING,
    TOPICS,
    State,
)
from ..tree import Tree
from .duplicates import Links, Seen, is_among, look_twice
from .jobs import JobRules
from .layout import LayoutRules
from .messages import MessageRules, Scene
from .report import Fault, Finding, Kind, Progress, Report

MAX_LISTED = 10_000
_MAX_ROUNDS = 30
_PROGRESS_STEP = 2000

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
    """Check a tree, and with ``repair`` mend what can be mended without losing anything.

    where: an opened tree or the path of a root.
    create_queues: a repair also creates the queues that messages belong to and that are missing.
    bodies: read the messages that have a header block or are compressed, too.
    offline: promise that no one else works on the tree. Then nothing is in use, whatever its age,
        and nothing is looked at twice.
    pause: seconds between two looks at what is suspicious.
    progress: told now and then how far the check has come.
    clock: gives Unix seconds.

    Holds eight bytes for each message, and nothing else that grows with the tree. Takes some ten
    seconds for a million messages whose folders are in the page cache.

    Raises:
        UnusableSpool: the root cannot be opened, or the disk refuses.
    """
    own = not isinstance(where, Tree)
    tree = where if isinstance(where, Tree) else Tree(where, create=False)
    try:
        scene = Scene(tree, Stamps(examine(tree).coarse), clock, offline, bodies, create_queues)
        return _Check(scene, pause, progress).run(repair)
    except OSError as error:
        advice = ADVICE.get(error.errno or 0, (str(error), 0))[0]
        name = error.filename or "the tree"
        raise UnusableSpool(f"cannot check {tree.root}: {name}: {advice}") from error
    finally:
        if own:
            tree.close()


class _Place(NamedTuple):
    """A folder to be walked; ``state`` is None where no messages stand."""

    path: str
    rule: Rule
    state: State | None = None
    queue: str = ""

    def message(self, name: str) -> tuple[str, str] | None:
        """Queue and id of an entry; None for what is no message."""
        if self.state is State.READY:
            return (self.queue, name) if is_id(name) else None
        return split_entry(name) if self.state is not None else None


class _Suspect(NamedTuple):
    """What looked wrong once, and how to look at it again."""

    fault: Fault
    look: Callable[[], Fault | None]


class _Check:
    def __init__(self, scene: Scene, pause: float, progress: Callable[[Progress], None]) -> None:
        self._scene = scene
        self._tree = scene.tree
        self._pause = pause
        self._progress = progress
        self._messages = MessageRules(scene)
        self._layout = LayoutRules(scene)
        self._seen = Seen()
        self._links = Links(MAX_LISTED)
        self._suspects: list[_Suspect] = []
        self._listed: Counter[Kind] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._report = Report(str(self._tree.root))
        self._entries = 0

    def run(self, repair: bool) -> Report:
        self._doubt(self._layout.root)
        for name in FOLDERS:
            self._doubt(partial(self._layout.folder, name))
        places = self._places()
        for done, place in enumerate(places):
            self._walk(place, done, len(places))
        self._find_twins(places)
        report = self._report
        suspects = self._confirm()
        if repair:
            suspects = self._repair(suspects)
        report.findings = _grouped([suspect.fault for suspect in suspects])
        report.queues = {name: _counts(found) for name, found in self._counts.items()}
        still = {finding.kind for finding in report.findings}
        more = {kind: n - MAX_LISTED for kind, n in self._listed.items() if n > MAX_LISTED}
        report.unlisted = {kind: n for kind, n in more.items() if kind in still}
        return report

    # -- walking ---------------------------------------------------------------------------------

    def _places(self) -> list[_Place]:
        """The folders to be walked, in the direction in which messages travel."""
        tree = self._tree
        ready = []
        if tree.is_folder(tree.folder(QUEUES)):
            for queue in tree.queues():
                self._counts[queue] = Counter()
                rule = partial(self._messages.ready, queue)
                ready.append(_Place(tree.folder(QUEUES, queue), rule, State.READY, queue))
        all_places = [
            _Place(tree.folder(CONFIG), self._layout.settings),
            _Place(tree.folder(STAGING), JobRules(self._scene).entry),
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
            _Place(tree.folder(QUEUES), self._layout.queue),
            _Place(tree.folder(NEW), self._messages.new, State.NEW),
            *ready,
            _Place(tree.folder(DELAY), self._messages.delay, State.DELAY),
            _Place(tree.folder(REMOVE), _anything, State.REMOVE),
        ]
        return [place for place in all_places if tree.is_folder(place.path)]

    def _walk(self, place: _Place, done: int, places: int) -> None:
        self._progress(Progress(place.path, done, places, self._entries))
        for name, found in self._entries_of(place.path):
            self._entries += 1
            if self._entries % _PROGRESS_STEP == 0:
                self._progress(Progress(place.path, done, places, self._entries))
            if place.state is not None:
                self._note(place, place.state, name, found)
            fault = place.rule(name, found)
            if fault is not None:
                path = f"{place.path}/{name}"
                self._suspect(fault, partial(self._again, path, name, found.st_ino, place.rule))

    def _entries_of(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        for entry in self._tree.walk(path):
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
        if found.st_nlink > 1:
            self._links.add(found.st_ino, f"{place.path}/{name}", *message)
        if state is not State.REMOVE:
            self._seen.add(*message)
            self._count(state, message, found)

    def _removed(self, path: str, found: os.stat_result) -> int:
        """How many files an entry of ``remove/`` is: a queue's folder may stand there too."""
        if not stat.S_ISDIR(found.st_mode):
            return 1
        return sum(1 for _ in self._tree.walk(path))

    def _count(self, state: State, message: tuple[str, str], found: os.stat_result) -> None:
        queue, message_id = message
        name = state.value
        if state is State.DELAY:
            stamp = self._scene.stamps.decode(message_id, found.st_mtime_ns)
            ahead = stamp is not None and stamp.deadline_ms > self._scene.clock() * 1000
            name = "delayed" if ahead and stamp and stamp.deliveries == 0 else "in_flight"
        self._counts.setdefault(queue, Counter())[name] += 1

    def _find_twins(self, places: list[_Place]) -> None:
        """Find messages that stand in two places: a second walk, if the first gives reason to."""
        codes = self._seen.repeated()
        messages = self._links.messages()
        if codes:
            for place in places:
                if place.state in (State.NEW, State.READY, State.DELAY):
                    for name in self._tree.walk(place.path):
                        message = place.message(name.name)
                        if message is not None and is_among(codes, *message):
                            messages.add(message)
        for queue, message_id in sorted(messages):
            self._doubt(partial(look_twice, self._tree, queue, message_id))
        for inode in self._links.inodes():
            self._doubt(partial(self._links.look, self._tree, inode))

    # -- doubting --------------------------------------------------------------------------------

    def _doubt(self, look: Callable[[], Fault | None]) -> None:
        fault = look()
        if fault is not None:
            self._suspect(fault, look)

    def _suspect(self, fault: Fault, look: Callable[[], Fault | None]) -> None:
        kind = fault.finding.kind
        self._listed[kind] += 1
        if self._listed[kind] <= MAX_LISTED:
            self._suspects.append(_Suspect(fault, look))

    def _again(self, path: str, name: str, inode: int, rule: Rule) -> Fault | None:
        found = self._tree.stat(path)
        if found is None or found.st_ino != inode:
            return None
        return rule(name, found)

    def _confirm(self) -> list[_Suspect]:
        """Look at the suspects again, as long as looking again clears some of them.

        So the messages of a queue that is being deleted just now, for one, are waited for.
        """
        suspects, self._suspects = self._suspects, []
        if self._scene.offline:
            return suspects
        for _ in range(_MAX_ROUNDS):
            if not suspects:
                break
            time.sleep(self._pause)
            left = _look_again(suspects)
            settled = len(left) == len(suspects)
            suspects = left
            if settled:
                break
        return suspects

    # -- repairing -------------------------------------------------------------------------------

    def _repair(self, suspects: list[_Suspect]) -> list[_Suspect]:
        """Mend what can be mended; what is left."""
        left: list[_Suspect] = []
        mended: list[Fault] = []
        failed: list[_Suspect] = []
        for suspect in suspects:
            fault = suspect.fault
            try:
                if fault.mend is not None and fault.mend():
                    mended.append(fault)
                else:
                    left.append(suspect)
            except OSError as error:
                reason = f"{fault.finding.reason}; the repair failed: {error.strerror}"
                finding = replace(fault.finding, reason=reason)
                failed.append(suspect._replace(fault=fault._replace(finding=finding)))
        self._report.repaired = _grouped(mended)
        for name in (NEW, DELAY, QUEUES) if mended else ():
            self._tree.sync_folder(self._tree.folder(name))
        # One repair may have mended what others complained of.
        return failed + (_look_again(left) if mended else left)


def _look_again(suspects: list[_Suspect]) -> list[_Suspect]:
    """Those that still look wrong."""
    looks = [(suspect.look(), suspect.look) for suspect in suspects]
    return [_Suspect(fault, look) for fault, look in looks if fault is not None]


def _anything(name: str, found: os.stat_result) -> None:
    """The rule for ``remove/``: whatever is there goes."""


def _counts(found: Counter[str]) -> Counts:
    return Counts(found["new"], found["ready"], found["in_flight"], found["delayed"])


def _grouped(faults: list[Fault]) -> list[Finding]:
    """The findings, those of one kind and one group as one."""
    result: list[Finding] = []
    places: dict[tuple[Kind, str], int] = {}
    for fault in faults:
        key = (fault.finding.kind, fault.group)
        if fault.group and key in places:
            old = result[places[key]]
            result[places[key]] = replace(old, count=old.count + 1)
        else:
            places[key] = len(result)
            result.append(fault.finding)
    return result
