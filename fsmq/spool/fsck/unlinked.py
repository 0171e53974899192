"""The rules for the links in ``ids/``, and for messages that should have one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from ..durability.ids import (
    LOCK,
    NEXT,
    given_of,
    hold,
    hold_patiently,
    leads_to,
    link_path,
    open_link,
    settle,
)
from ..durability.put_numbers import PUTS
from ..durability.settings_lock import no_ids, settings_held
from ..layout.messages import dead_letter
from ..layout.messages.given_ids import link_name
from ..layout.names import facts, is_queue
from ..layout.transitions import IDS, INDEX_TRASH, REMOVE
from ..layout.tree import STRAY
from ..layout.uuids import uuid7
from ..verbs.queues.deletion import leaving
from .messages import Inspection, hidden, stray
from .report import Fault, Finding, Kind, Severity


class LinkRules:
    """A link leads to a message in its queue; a message with an id has its link."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._tree = inspection.tree
        self.queues = {name for name in self._tree.names(self._tree.folder(IDS)) if is_queue(name)}

    def index(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``ids/``."""
        path = self._tree.folder(IDS, name)
        if name == PUTS:
            return None
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        if not stat.S_ISDIR(found.st_mode) or not is_queue(name):
            return stray(path, "is not a folder named after a queue: move it away")
        if self._tree.has_queue(name):
            return None
        reason = f"is the index of queue {name!r}, which does not exist"
        finding = Finding(Kind.STALE_LINK, Severity.WARNING, path, reason, "remove it")
        return Fault(finding, lambda: self._forget(name, path))

    def link(self, queue: str, name: str, found: os.stat_result) -> Fault | None:
        """An entry of a queue's index."""
        path = self._tree.folder(IDS, f"{queue}/{name}")
        if name == LOCK:
            return None
        if name.startswith(NEXT):
            return self._coming(queue, name.removeprefix(NEXT), path, found)
        if name[0] == ".":
            return hidden(self._inspection, path, name, found)
        opened = open_link(self._tree, queue, path)
        if opened is not None:
            with opened:
                is_ours = opened.given is None or link_name(opened.given.id) == name
        if opened is None or not is_ours:
            return stray(path, "is not the link of a message: move it away")
        if found.st_nlink > 1:
            return None  # a message has this file, here, elsewhere, or in an unfinished put
        reason = "is the link of an id whose message has gone"
        finding = Finding(Kind.STALE_LINK, Severity.WARNING, path, reason, "remove it")
        return Fault(finding, lambda: self._settle(queue, name))

    def message(self, queue: str, path: str, name: str, found: os.stat_result) -> Fault | None:
        """A message of a queue with an index; the fault if its id has no link."""
        given = self._given(path, name) if found.st_nlink == 1 else None
        if given is None or self._is_buried(queue, path):
            return None
        reason = f"is not found by its id {given[:200]!r}: its link is missing, or that of another"
        finding = Finding(Kind.NO_LINK, Severity.ERROR, path, reason, "link it if the id is free")
        return Fault(finding, lambda: self._link(path, queue, name), group=queue)

    def names_of(self, path: str, name: str, found: os.stat_result) -> int:
        """How many links of all indexes lead to the file of a message, which may have moved."""
        given = self._given(path, name)
        if given is None:
            return 0
        links = (
            link_path(self._tree, queue, link_name(given), coming=after)
            for queue in self.queues
            for after in (False, True)
        )
        return sum(leads_to(self._tree, link, found.st_ino) for link in links)

    def _coming(self, queue: str, link: str, path: str, found: os.stat_result) -> Fault | None:
        """The link of a message that is about to take over an id."""
        if not self._inspection.is_late(found):
            return None
        held = hold(self._tree, {queue: [link]})
        if held is None:
            return None  # its put is slow, but alive
        held.free()
        reason = "was left by an upsert that died: is mq-mover running?"
        finding = Finding(Kind.LEFTOVER, Severity.WARNING, path, reason, "finish or remove it")
        return Fault(finding, lambda: self._settle(queue, link))

    def _forget(self, queue: str, path: str) -> bool:
        """Remove an index, unless its queue is being created or deleted."""
        tree, trash = self._tree, self._tree.folder(REMOVE, INDEX_TRASH + uuid7())
        with settings_held(tree, queue), no_ids(tree, queue):
            if tree.has_queue(queue) or tree.look(leaving(tree, queue)) is not None:
                return False
            return tree.rename(path, trash)

    def _settle(self, queue: str, link: str) -> bool:
        with hold_patiently(self._tree, {queue: [link]}):
            settle(self._tree, queue, [link])
        return True

    def _link(self, path: str, queue: str, name: str) -> bool:
        """Link a message that has lost its link, unless another message has its id."""
        found = given_of(self._tree, path, name)
        if found is None:
            return False
        given, file = found
        link = link_name(given.id)
        with hold_patiently(self._tree, {queue: [link]}):
            had = settle(self._tree, queue, [link]).get(link)
            if had is None:
                self._tree.link(path, link_path(self._tree, queue, link))
            self._tree.sync_folder(self._tree.folder(IDS, queue))
        return had is None or had.inode == file.st_ino

    def _given(self, path: str, name: str) -> str | None:
        """The id that a message has in its header."""
        try:
            found = given_of(self._tree, path, name) if facts(name).headed else None
        except OSError as error:
            if error.errno in STRAY:
                return None
            raise
        return None if found is None else found[0].id

    def _is_buried(self, queue: str, path: str) -> bool:
        """Whether a message came here as a dead letter, which has no link until it goes back."""
        with suppress(FileNotFoundError):
            fd = self._tree.open(path)
            try:
                dead = dead_letter.read(fd)
            finally:
                os.close(fd)
            return dead is not None and dead.queue != queue
        return True  # it is gone
