"""The rules for the links of ``ids/``, and for messages that should have one."""

from __future__ import annotations

import os
import re
import stat

from ..durability.links import forget_link, relink, state_of
from ..layout.given_ids import Given, link_name, link_path, read_given
from ..layout.names import UUID7, facts, is_queue
from ..layout.transitions import (
    IDS,
    INDEX_TRASH,
    NEW,
    REMOVE,
    REMOVE_DELAY,
    REMOVE_NEW,
    REMOVE_READY,
    State,
)
from ..layout.tree import STRAY
from ..layout.uuids import uuid7
from .messages import Scene, hidden, stray
from .report import Fault, Finding, Kind, Severity

_draft = re.compile(rf"\.{UUID7}\.(tmp|old)")


class LinkRules:
    """A link leads to a message that stands in its queue; a message with an id has its link."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._tree = scene.tree
        self.queues = {name for name in self._tree.names(self._tree.folder(IDS)) if is_queue(name)}

    def index(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``ids/``."""
        path = self._tree.folder(IDS, name)
        if name[0] == ".":
            return hidden(self._scene, path, name, found)
        if not stat.S_ISDIR(found.st_mode) or not is_queue(name):
            return stray(path, "is not a folder named after a queue: move it away")
        if self._tree.has_queue(name):
            return None
        reason = f"is the index of queue {name!r}, which does not exist"
        trash = self._tree.folder(REMOVE, INDEX_TRASH + uuid7())
        finding = Finding(Kind.STALE_LINK, Severity.WARNING, path, reason, "remove it")
        return Fault(finding, lambda: self._tree.rename(path, trash))

    def link(self, queue: str, name: str, found: os.stat_result) -> Fault | None:
        """An entry of a queue's index."""
        path = self._tree.folder(IDS, f"{queue}/{name}")
        if name[0] == ".":
            if not _draft.fullmatch(name) or not self._scene.is_late(found):
                return None
            if name.endswith(".old") and self._is_unfinished(name[1:37]):
                return None  # who finishes it removes what this leads to
            reason = "is an unfinished link that never took effect"
            finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "remove it")
            return Fault(finding, lambda: self._tree.unlink(path))
        given = self._read(path)
        if not stat.S_ISREG(found.st_mode) or (given and link_name(given.id) != name):
            return stray(path, "is not the link of a message: move it away")
        if self._leads_somewhere(queue, given, found):
            return None
        reason = "is the link of an id whose message has gone"
        finding = Finding(Kind.STALE_LINK, Severity.WARNING, path, reason, "remove it")
        if given is None:
            return Fault(finding, lambda: self._tree.unlink(path))
        return Fault(finding, lambda: forget_link(self._tree, queue, given.id, found.st_ino))

    def message(self, queue: str, path: str, name: str, found: os.stat_result) -> Fault | None:
        """A message of a queue with an index, which has only one name."""
        if found.st_nlink > 1 or not facts(name).headed:
            return None
        given = self._read(path)
        if given is None or given.name != name:
            return None
        at = link_path(self._tree, queue, given.id)
        other, there = self._read(at), self._tree.stat(at)
        if there is not None and other is not None:
            standing = state_of(self._tree, queue, other.name, there.st_ino)
            if standing is not None:
                return self._replaced(queue, path, name, found.st_ino, given.id)
        reason = f"is not found by its id {given.id[:200]!r}: its link is missing"
        finding = Finding(Kind.NO_LINK, Severity.ERROR, path, reason, "link it")
        return Fault(finding, lambda: relink(self._tree, path, queue), group=queue)

    def _replaced(self, queue: str, path: str, name: str, inode: int, given_id: str) -> Fault:
        """The fault of a message whose id a put has taken, which a crash kept from removing it."""
        tree = self._tree
        reason = f"was replaced: another message has its id {given_id[:200]!r}"
        finding = Finding(Kind.REPLACED, Severity.WARNING, path, reason, "remove it")

        def mend() -> bool:
            state = state_of(tree, queue, name, inode)
            return state is None or tree.move(_REMOVE[state], queue, name)

        return Fault(finding, mend)

    def _is_unfinished(self, uuid: str) -> bool:
        """Whether a message is written and not shown yet."""
        names = self._tree.names(self._tree.folder(NEW))
        return any(name[0] == "." and uuid in name for name in names)

    def _leads_somewhere(self, queue: str, given: Given | None, found: os.stat_result) -> bool:
        if given is not None:
            name, inode = given.name, found.st_ino
            if state_of(self._tree, queue, name, inode, (*_LIVE, *_LIVE)) is not None:
                return True
            if state_of(self._tree, queue, name, inode, (State.REMOVE,)) is not None:
                return True
        # It may be on its way into the spool, or wait for the reaper in a folder that was purged.
        return found.st_nlink > 1 and not self._scene.is_late(found)

    def _read(self, path: str) -> Given | None:
        try:
            fd = self._tree.open(path)
        except OSError as error:
            if error.errno in STRAY:
                return None
            raise
        try:
            return read_given(fd)
        finally:
            os.close(fd)


_LIVE = (State.NEW, State.READY, State.DELAY)
_REMOVE = {State.NEW: REMOVE_NEW, State.READY: REMOVE_READY, State.DELAY: REMOVE_DELAY}
