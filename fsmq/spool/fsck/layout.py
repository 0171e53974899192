"""The rules for all but messages: folders of the layout, queues, settings, topics, consumers."""

from __future__ import annotations

import os
import re
import stat

from ..consumers.manifest import LOCK, NAME, folder_of, parse
from ..consumers.stream_note import is_note
from ..errors import FsmqError
from ..layout.filesystem import mounts_below
from ..layout.names import UUID7, is_queue
from ..layout.settings_store import SettingsStore
from ..layout.topics.topics import ABOUT, Topics, log_of_entry
from ..layout.transitions import CONFIG, LOGS, QUEUES, TOPICS
from ..verbs.queues.deletion import leaving
from .fifo_files import shared
from .messages import Inspection, hidden, kind_of_file, stray
from .report import Fault, Finding, Kind, Severity

_OTHERS = 0o077
_REACH = 0o011
_batch = re.compile(NAME)
_draft = re.compile(rf"\.{UUID7}\.tmp")


def left_draft(inspection: Inspection, path: str, found: os.stat_result) -> Fault | None:
    """A draft that was to replace another file, and never did."""
    if not inspection.is_late(found):
        return None
    reason = "is an unfinished draft that never took effect"
    finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
    return Fault(finding, lambda: inspection.tree.unlink(path))


class LayoutRules:
    """The rules for folders and settings."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._tree = inspection.tree
        self._root = os.fstat(self._tree.fd)
        self._mounts = mounts_below(self._tree.root)

    def root(self) -> Fault | None:
        """The root itself."""
        if not self._root.st_mode & _OTHERS:
            return None
        return self._open_to_others(".", self._root)

    def folder(self, name: str) -> Fault | None:
        """One of the folders of the layout."""
        path = self._tree.folder(name)
        found = self._tree.stat(path)
        if found is None:
            finding = Finding(
                Kind.MISSING_FOLDER, Severity.ERROR, path, "is missing", "create the folder"
            )
            return Fault(finding, lambda: self._create(path))
        if not stat.S_ISDIR(found.st_mode):
            reason = f"is {kind_of_file(found.st_mode)}, not a folder; move it away"
            return Fault(Finding(Kind.NOT_A_FOLDER, Severity.ERROR, path, reason))
        return (
            self._elsewhere(path, found)
            or self._inspection.foreign(path, found)
            or self._open_inside(path, found)
        )

    def queue(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``queues/``."""
        path = self._tree.folder(QUEUES, name)
        is_leaving = path == leaving(self._tree, name[1:]) and is_queue(name[1:])
        if is_leaving and stat.S_ISDIR(found.st_mode):
            if not self._inspection.is_late(found):
                return None
            reason = f"was queue {name[1:]!r}, whose deletion did not finish: delete it again"
            return Fault(Finding(Kind.LEFTOVER, Severity.WARNING, path, reason))
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not stat.S_ISDIR(found.st_mode):
            return stray(path, f"is {kind_of_file(found.st_mode)}, not a queue: move it away")
        if not is_queue(name):
            return stray(path, "is not a valid name of a queue: rename it")
        return self._elsewhere(path, found)

    def settings(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``config/``."""
        path = self._tree.folder(CONFIG, name)
        if _draft.fullmatch(name):
            return left_draft(self._inspection, path, found)
        if name[0] == ".":
            return shared(self._inspection, path, name, found)
        queue = name.removesuffix(".json")
        if queue == name or not is_queue(queue):
            reason = "is not named <queue>.json, so nobody reads it; rename it or move it away"
            return Fault(Finding(Kind.STRAY, Severity.WARNING, path, reason))
        store = SettingsStore(self._tree)  # a new one has no older version cached
        problem = store.problem(queue)
        if problem is not None:
            reason = f"cannot be parsed, so older settings, or none, are in force: {problem}"
            return Fault(Finding(Kind.BAD_SETTINGS, Severity.ERROR, path, reason))
        if not self._tree.has_queue(queue):
            reason = f"are the settings of queue {queue!r}, which does not exist"
            return Fault(Finding(Kind.SETTINGS_WITHOUT_QUEUE, Severity.WARNING, path, reason))
        return self._dead_letters(path, queue, store.get(queue).dead_letter_queue)

    def topic(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``topics/``."""
        path = self._tree.folder(TOPICS, name)
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not stat.S_ISDIR(found.st_mode):
            return stray(path, f"is {kind_of_file(found.st_mode)}, not a topic: move it away")
        if not is_queue(name):
            return stray(path, "is not a valid name of a topic: rename it")
        return None

    def subscription(self, topic: str, name: str, found: os.stat_result) -> Fault | None:
        """An entry of a topic."""
        topics = Topics(self._tree)
        path = f"{topics.folder(topic)}/{name}"
        if _draft.fullmatch(name):
            return left_draft(self._inspection, path, found)
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if name == ABOUT and stat.S_ISREG(found.st_mode):
            return None
        log = log_of_entry(name)
        if (log is None and not is_queue(name)) or not stat.S_ISREG(found.st_mode):
            return stray(
                path, "is not a file named after a queue, so nobody reads it: move it away"
            )
        if log is not None and not self._tree.is_folder(self._tree.folder(LOGS, log)):
            reason = f"subscribes log {log!r}, which does not exist: it gets nothing"
            return Fault(Finding(Kind.SUBSCRIPTION_WITHOUT_QUEUE, Severity.WARNING, path, reason))
        if log is None and not self._tree.has_queue(name):
            instead = topics.dead_letters_of(path)
            become = "it gets nothing" if instead is None else f"its messages go to {instead!r}"
            reason = f"subscribes queue {name!r}, which does not exist: {become}"
            return Fault(Finding(Kind.SUBSCRIPTION_WITHOUT_QUEUE, Severity.WARNING, path, reason))
        problem = topics.problem(path)
        if problem is None:
            return None
        reason = f"cannot be parsed, so an older filter, or none, is in force: {problem}"
        return Fault(Finding(Kind.BAD_FILTER, Severity.ERROR, path, reason))

    def consumer(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``consumers/``."""
        path = folder_of(self._tree, name)
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not stat.S_ISDIR(found.st_mode) or not is_queue(name):
            return stray(path, "is not a folder with a valid name of a consumer: move it away")
        return None

    def batch(self, consumer: str, name: str, found: os.stat_result) -> Fault | None:
        """An entry of a consumer."""
        path = f"{folder_of(self._tree, consumer)}/{name}"
        if _draft.fullmatch(name):
            return left_draft(self._inspection, path, found)
        if name == LOCK or is_note(name):
            return None
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not _batch.fullmatch(name) or not stat.S_ISREG(found.st_mode):
            return stray(path, "is not a batch, so nobody reads it; move it away")
        stem, dot, suffix = name.rpartition(".")
        try:
            parse(self._tree, consumer, stem, dot + suffix)
        except FileNotFoundError:
            return None  # committed just now
        except ValueError as error:
            reason = (
                "cannot be parsed, so its messages return when their timers end;"
                f" remove it: {error}"
            )
            return Fault(Finding(Kind.BAD_BATCH, Severity.WARNING, path, reason))
        return None

    def _dead_letters(self, path: str, queue: str, dead_letters: str | None) -> Fault | None:
        if dead_letters == queue:
            reason = "names the queue itself as its dead_letter_queue"
            return Fault(Finding(Kind.BAD_SETTINGS, Severity.ERROR, path, reason))
        if dead_letters is None or self._tree.has_queue(dead_letters):
            return None
        reason = f"names the dead_letter_queue {dead_letters!r}, which does not exist"
        finding = Finding(
            Kind.NO_DEAD_LETTERS, Severity.WARNING, path, reason, "create the dead-letter queue"
        )
        return Fault(finding, lambda: self._inspection.make_queue(dead_letters))

    def _elsewhere(self, path: str, found: os.stat_result) -> Fault | None:
        if found.st_dev == self._root.st_dev and path not in self._mounts:
            return None
        reason = "is a mount of its own: no rename reaches it; mount the whole root instead"
        return Fault(Finding(Kind.OTHER_FILESYSTEM, Severity.ERROR, path, reason))

    def _open_inside(self, path: str, found: os.stat_result) -> Fault | None:
        if not self._root.st_mode & _REACH or not found.st_mode & _OTHERS:
            return None
        return self._open_to_others(path, found)

    def _open_to_others(self, path: str, found: os.stat_result) -> Fault:
        mode = stat.S_IMODE(found.st_mode)
        reason = f"is open to others (mode {mode:04o}): chmod 0700 unless that is wanted"
        return Fault(Finding(Kind.OPEN_TO_OTHERS, Severity.WARNING, path, reason))

    def _create(self, path: str) -> bool:
        try:
            self._tree.lay_out()
        except FsmqError:
            pass  # a file has the name of another folder: a separate finding
        return self._tree.is_folder(path)
