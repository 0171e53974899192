"""Forwarding: rename the files of a committed job into ``new/``, under the job's lock.

A crash can undo renames that were not synced. Then the file is in the job again, and is forwarded
again. A claim or a removal that was acknowledged is not undone: it was a later, durable rename.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from ..context import Context
from ..durability.locks import Reservations, patiently
from ..durability.settings_lock import settings_held
from ..durability.sync import Dirty
from ..durability.unfinished import found_as
from ..errors import Unavailable
from ..layout import documents
from ..layout.names import UUID7, entry, siblings, split_entry
from ..layout.settings import MAX_DELAY_S
from ..layout.transitions import ACCEPTED, NEW, STAGING
from ..layout.tree import Tree
from ..records.journal import NoJournal
from ..verbs.moves.links_of_move import Turns
from .part import Job, Sync, committed_folder, gone_folder

MANIFEST = "commit.json"
_CHUNK = 10_000
# How many files share the lock of their queue, and of their own ids.
_TOGETHER = 500
# How long a committer waits for the holders of locks that it needs.
_PATIENCE_S = 5.0
_RETRY_S = 0.02
_MAX_BYTES = 64 * 1024 * 1024
_part = re.compile(UUID7)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a commit: its time, and its parts with the facts of `Written` about each.

    keeps: whether to remember the job's number, so that it is not committed again. run: what the
    program has noted of this commit, an object.
    """

    at_ms: int
    keeps: bool = True
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    run: dict[str, Any] | None = None

    @property
    def messages(self) -> int:
        return sum(part["messages"] + part.get("repeated", 0) for part in self.parts.values())

    @property
    def repeated(self) -> int:
        """Messages that their own part has twice."""
        return sum(part.get("repeated", 0) for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Last:
    """The last number of a job that was committed, and how many messages it had.

    repeated: how many of them were left out, as the spool had their own id. run: as in `Manifest`.
    """

    number: int
    messages: int = 0
    repeated: int = 0
    run: dict[str, Any] | None = None


def save(tree: Tree, folder: str, manifest: Manifest) -> None:
    """Put a manifest into a job's folder, durably. Raises OSError."""
    content = json.dumps(asdict(manifest)) + "\n"
    tree.replace(f"{folder}/{MANIFEST}", content.encode())


def load(tree: Tree, job: Job) -> Manifest | None:
    """The manifest of a committed job; None if there is no valid one. Raises OSError."""
    try:
        stored = documents.read(tree, f"{committed_folder(tree, job)}/{MANIFEST}", _MAX_BYTES)
        at_ms, keeps = documents.whole(stored, "at_ms"), documents.flag(stored, "keeps")
        return Manifest(at_ms, keeps, _parts(stored.get("parts")), documents.inner(stored, "run"))
    except (FileNotFoundError, ValueError):
        return None


def _parts(stored: object) -> dict[str, dict[str, Any]]:
    if not isinstance(stored, dict):
        raise ValueError("parts is not an object")
    for name, members in stored.items():
        # The name is used in a path: another form could lead out of the job.
        if _part.fullmatch(name) is None or not isinstance(members, dict):
            raise ValueError(f"{name[:200]!r} is not a part")
        documents.whole(members, "messages")
        documents.flag(members, "own")
        documents.flag(members, "delayed")
        if "repeated" in members:
            documents.whole(members, "repeated")
    return stored


def last(tree: Tree, name: str) -> Last | None:
    """The last commit of a job; None if there is none, or if it is not kept. Raises OSError."""
    try:
        stored = documents.read(tree, tree.folder(STAGING, f"{name}.json"), _MAX_BYTES)
        number, *more = (documents.whole(stored, key) for key in ("number", "messages", "repeated"))
        return Last(number, more[0], more[1], documents.inner(stored, "run"))
    except (FileNotFoundError, ValueError):
        return None


class Forward:
    """Forwards one committed job; the caller has its lock.

    chunk: files forwarded in one step.

    A file that fails, or that another process holds up (a queue that is created or deleted, an id
    that is being put), does not hold up the others. Raises OSError, and Unavailable from the sync.
    """

    def __init__(
        self, context: Context, sync: Sync, job: Job, manifest: Manifest, chunk: int = _CHUNK
    ) -> None:
        # Messages left out because the spool, or their part, already had their own id.
        self.repeated = manifest.repeated
        self._context = context
        self._tree = context.tree
        self._sync = sync
        self._job = job
        self._manifest = manifest
        self._folder = committed_folder(context.tree, job)
        self._chunk = chunk
        self._chunks = self._all_chunks()
        # Why a file was left in this pass.
        self._problem: OSError | Unavailable | None = None
        self._turns = Turns()
        # Synced before the job's folder is removed: both ends of the renames.
        parts = {f"{self._folder}/{part}" for part in manifest.parts}
        self._work = Dirty(folders={*parts, context.tree.folder(NEW)})

    def step(self) -> int:
        """Forward some files; how many were looked at, 0 when all are done.

        Never waits: raises Unavailable at the end if a file is held up.
        """
        if looked_at := self._bring_some():
            return looked_at
        if self._problem is not None:
            raise self._problem
        self._end()
        return 0

    def run(self) -> None:
        """Forward all files. Waits some seconds for locks of others."""
        if not patiently(self._bring_all, _PATIENCE_S, _RETRY_S) and self._problem is not None:
            raise self._problem
        self._end()

    def _bring_all(self) -> bool:
        self._chunks, self._problem = self._all_chunks(), None
        while self._bring_some():
            pass
        return self._problem is None

    def _bring_some(self) -> int:
        for part, names in self._chunks:
            _Chunk(self, part, names).run()
            return len(names)
        self._look_back()
        return 0

    def _look_back(self) -> None:
        """Make sure that all files are gone, whatever renames have reported."""
        for part in self._manifest.parts:
            left = filter(split_entry, self._tree.names(f"{self._folder}/{part}"))
            if self._problem is None and (name := next(left, None)) is not None:
                self._problem = Unavailable(f"{name!r} of job {self._job.name!r} has not come")

    def _all_chunks(self) -> Iterator[tuple[str, list[str]]]:
        for part in self._manifest.parts:
            names = self._tree.names(f"{self._folder}/{part}")
            # In delivery order, so that consumers get the oldest first.
            ordered = iter(sorted(names, key=lambda name: name.rpartition(":")[2]))
            while chunk := list(islice(ordered, self._chunk)):
                yield part, chunk

    def hold_up(self, error: OSError | Unavailable) -> None:
        """Note why a file stays for now."""
        self._problem = error

    def rest(self) -> None:
        """Leave locks to others now and then."""
        if pause := self._turns.pause():
            time.sleep(pause)

    def _end(self) -> None:
        """All files are forwarded: note that the job is done, and remove its folder."""
        tree, job = self._tree, self._job
        self._sync(self._work)
        if self._manifest.keeps:
            found = self._manifest
            noted = Last(job.number, found.messages, self.repeated, found.run)
            path = tree.folder(STAGING, f"{job.name}.json")
            tree.replace(path, (json.dumps(asdict(noted)) + "\n").encode())
        gone = gone_folder(tree)
        tree.rename(self._folder, gone)
        remove_gone(tree, gone)


class _Chunk:
    """Some files of one part."""

    def __init__(self, forward: Forward, part: str, names: list[str]) -> None:
        self._forward = forward
        self._context = forward._context
        self._tree = forward._tree
        self._described = forward._manifest.parts[part]
        self._folder = f"{forward._folder}/{part}"
        self._names = names
        self._reservations = Reservations(self._tree)
        self._reserved: set[tuple[str, str]] = set()

    def run(self) -> None:
        names = self._names
        if self._described["delayed"]:
            try:
                names = self._start_delays()
            except (OSError, Unavailable) as error:
                self._forward.hold_up(error)
                return
        ids: dict[str, list[str]] = {}
        for queue, message_id in filter(None, map(split_entry, names)):
            ids.setdefault(queue, []).append(message_id)
        # Other files are removed with the folder.
        for queue, of_queue in ids.items():
            for start in range(0, len(of_queue), _TOGETHER):
                try:
                    self._bring_to(queue, of_queue[start : start + _TOGETHER])
                except (OSError, Unavailable) as error:
                    self._forward.hold_up(error)
                self._forward.rest()

    def _bring_to(self, queue: str, message_ids: list[str]) -> None:
        """Forward the files of one queue, which nobody can delete or create meanwhile."""
        with settings_held(self._tree, queue, 0.0, writes=False):
            try:
                is_there = self._tree.has_queue(queue)
                # A recreated fifo queue is another queue: the job's own is gone.
                takes = is_there and not self._context.settings.get(queue).fifo
                bring = self._bring if takes else self._remove
                for message_id in message_ids:
                    try:
                        bring(queue, message_id)
                    except (OSError, Unavailable) as error:
                        self._forward.hold_up(error)
            finally:
                reserved, self._reserved = self._reserved, set()
                for _, bare in reserved:
                    self._reservations.free(queue, [bare])

    def _start_delays(self) -> list[str]:
        """Start the delays at the time of the commit, durably; the names whose delays have begun.

        All are stamped again: the kernel does not rewrite what an earlier failed sync has lost.
        """
        dirty, started = Dirty(), []
        for name in self._names:
            path = f"{self._folder}/{name}"
            try:
                if self._start_delay(name, path):
                    dirty.closed.append(path)
            except OSError as error:
                self._forward.hold_up(error)
            else:
                started.append(name)
        if dirty.closed:
            self._forward._sync(dirty)
        return started

    def _start_delay(self, name: str, path: str) -> bool:
        """Stamp one file; False if it has no delay."""
        stamps = self._context.stamps
        parts, found = split_entry(name), self._tree.stat(path)
        if parts is None or found is None:
            return False
        stamp = stamps.decode(parts[1], found.st_mtime_ns)
        if stamp is None:
            return False
        mtime = found.st_mtime_ns
        # A deadline near 1970 is a delay that was not started yet.
        if stamp.deadline_ms <= MAX_DELAY_S * 1000:
            at_ms = self._forward._manifest.at_ms
            mtime = stamps.encode(parts[1], at_ms + stamp.deadline_ms, 0)
        self._tree.stamp(path, mtime)
        return True

    def _bring(self, queue: str, message_id: str) -> None:
        """Move a file to ``new/``, or unlink it if it is a duplicate."""
        name = entry(queue, message_id)
        path, target = f"{self._folder}/{name}", self._tree.folder(NEW, name)
        if self._described["own"]:
            is_there = self._is_there(queue, message_id)
            if is_there is None:
                return
            if is_there:
                self._forward.repeated += self._tree.unlink(path)
                return
        try:
            if not self._tree.rename(path, target):
                return
        except FileExistsError:
            # A move, which needs no reservation, has brought a message of this id here.
            self._forward.repeated += self._tree.unlink(path)
            return
        is_noted = type(self._context.journal) is not NoJournal
        found = self._tree.stat(target) if is_noted else None
        size = found.st_size if found is not None else None
        self._context.record(ACCEPTED, queue, message_id, size=size)

    def _remove(self, queue: str, message_id: str) -> None:
        """Unlink a file whose queue is gone."""
        self._tree.unlink(f"{self._folder}/{entry(queue, message_id)}")

    def _is_there(self, queue: str, message_id: str) -> bool | None:
        """Keep puts of an own id out, then check whether it exists; None while one is under way."""
        names = siblings(message_id)
        own = (queue, names[0])
        if own in self._reserved:
            return True  # it comes twice
        if not self._reservations.take(*own):
            self._forward.hold_up(Unavailable(f"another put of the id {names[0]!r} is under way"))
            return None
        self._reserved.add(own)
        return found_as(self._tree, queue, names) is not None


def remove_gone(tree: Tree, folder: str, budget: int | None = None) -> int | None:
    """Unlink a folder that was renamed away, with its subfolders.

    budget: stop after this many files. Returns how many; None if there are more. OSError.
    """
    # The rename may not be synced: a crash must not bring a part of the job back.
    tree.sync_folder(tree.folder(STAGING))
    removed = 0
    for found in list(tree.walk(folder)):
        path = f"{folder}/{found.name}"
        if found.is_dir(follow_symlinks=False):
            for name in tree.names(path):
                if budget is not None and removed >= budget:
                    return None
                removed += tree.unlink(f"{path}/{name}")
            tree.remove_folder(path)
        else:
            removed += tree.unlink(path)
    tree.remove_folder(folder)
    return removed
