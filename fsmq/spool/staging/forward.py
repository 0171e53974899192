"""Forward: rename the files of a committed job into ``new/``, under the job's lock.

A crash may undo renames that were not synced. Then the file is in the job again, and is brought
forward again. A claim or a removal that was answered with success is not undone: it was a later
rename of the same file, and durable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from ..context import Context
from ..durability.locks import Reservations, patiently
from ..durability.settings_lock import settings_held
from ..durability.sync import Work
from ..durability.unfinished import exists
from ..errors import Unavailable
from ..layout import documents
from ..layout.names import UUID7, siblings, split_entry
from ..layout.transitions import ACCEPTED, NEW, REMOVE_NEW, STAGING
from ..layout.tree import Tree
from ..records.journal import NoJournal
from .part import Job, Sync, committed_folder, gone_folder

MANIFEST = "commit.json"
# How many files share a lock of their own ids.
_CHUNK = 10_000
_RESERVED_PATIENCE_S = 5.0
_MAX_BYTES = 64 * 1024 * 1024
_part = re.compile(UUID7)
# A deadline before this is a delay that counts from the commit: it is longer than any delay.
_RELATIVE_MS = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a commit says: its time, and its parts with the facts of `Written` about each.

    keeps: whether the job's number is kept, so that it is not committed again.
    """

    at_ms: int
    keeps: bool = True
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

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

    repeated: how many of them were left out, since the spool had their own id.
    """

    number: int
    messages: int = 0
    repeated: int = 0


def save(tree: Tree, folder: str, manifest: Manifest) -> None:
    """Put a manifest into a job's folder, durably. Raises OSError."""
    content = json.dumps(asdict(manifest)) + "\n"
    tree.replace(f"{folder}/{MANIFEST}", content.encode())


def load(tree: Tree, job: Job) -> Manifest | None:
    """The manifest of a committed job; None if it has none that can be read. Raises OSError."""
    try:
        stored = documents.read(tree, f"{committed_folder(tree, job)}/{MANIFEST}", _MAX_BYTES)
        at_ms, keeps = documents.whole(stored, "at_ms"), documents.flag(stored, "keeps")
        return Manifest(at_ms, keeps, _parts(stored.get("parts")))
    except (FileNotFoundError, ValueError):
        return None


def _parts(stored: object) -> dict[str, dict[str, Any]]:
    if not isinstance(stored, dict):
        raise ValueError("parts is not an object")
    for name, members in stored.items():
        # The name is a path's last part: another would lead out of the job.
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
        return Last(*(documents.whole(stored, key) for key in ("number", "messages", "repeated")))
    except (FileNotFoundError, ValueError):
        return None


class Forward:
    """Brings one committed job forward; its lock is held by the caller.

    chunk: files that are brought in one step.

    Raises OSError, and Unavailable where the sync does so.
    """

    def __init__(
        self, context: Context, sync: Sync, job: Job, manifest: Manifest, chunk: int = _CHUNK
    ) -> None:
        # Left out, because the spool, or their part, had their own id already.
        self.repeated = manifest.repeated
        self._context = context
        self._tree = context.tree
        self._sync = sync
        self._job = job
        self._manifest = manifest
        self._folder = committed_folder(context.tree, job)
        self._chunks = self._all_chunks(chunk)
        # Synced before the job's folder is removed: both ends of the renames.
        parts = {f"{self._folder}/{part}" for part in manifest.parts}
        self._work = Work(folders={*parts, context.tree.folder(NEW)})

    def step(self) -> int:
        """Bring some files forward; how many were looked at, 0 when all are done."""
        for part, names in self._chunks:
            _Chunk(self, part, names).run()
            return len(names)
        self._end()
        return 0

    def run(self) -> None:
        """Bring all of them forward."""
        while self.step():
            pass

    def _all_chunks(self, chunk_size: int) -> Iterator[tuple[str, list[str]]]:
        for part in self._manifest.parts:
            names = self._tree.names(f"{self._folder}/{part}")
            # In delivery order, so that consumers get the oldest first.
            ordered = iter(sorted(names, key=lambda name: name.rpartition(":")[2]))
            while chunk := list(islice(ordered, chunk_size)):
                yield part, chunk

    def _end(self) -> None:
        """All files are forward: note that the job is done, and remove its folder."""
        tree, job = self._tree, self._job
        self._sync(self._work)
        if self._manifest.keeps:
            noted = Last(job.number, self._manifest.messages, self.repeated)
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
        self._queues: dict[str, bool] = {}  # whether each exists
        self._reservations = Reservations(self._tree)
        self._reserved: set[tuple[str, str]] = set()
        self._brought: list[tuple[str, str]] = []  # queue, id

    def run(self) -> None:
        try:
            if self._described["delayed"]:
                self._start_delays()
            for name in self._names:
                self._bring(name)
        finally:
            for queue, bare in self._reserved:
                self._reservations.free(queue, [bare])
        self._undo_for_deleted_queues()

    def _start_delays(self) -> None:
        """Start the delays at the time of the commit, and make that durable."""
        stamps, at_ms = self._context.stamps, self._forward._manifest.at_ms
        work = Work()
        for name in self._names:
            path = f"{self._folder}/{name}"
            parts, found = split_entry(name), self._tree.stat(path)
            if parts is None or found is None:
                continue
            stamp = stamps.decode(parts[1], found.st_mtime_ns)
            # A deadline near 1970 is a delay that an earlier process did not start before it died.
            if stamp is not None and stamp.deadline_ms < _RELATIVE_MS:
                mtime = stamps.encode(parts[1], at_ms + stamp.deadline_ms, 0)
                self._tree.stamp(path, mtime)
                work.closed.append(path)
        if work.closed:
            self._forward._sync(work)

    def _bring(self, name: str) -> None:
        """Bring a file to ``new/``, or let it go if it has no place there."""
        parts = split_entry(name)
        if parts is None:
            return  # none of ours; it goes with the folder
        queue, message_id = parts
        path, target = f"{self._folder}/{name}", self._tree.folder(NEW, name)
        if not self._has_queue(queue):
            self._tree.unlink(path)  # deleted after the commit, and its messages with it
            return
        if self._described["own"] and self._is_there(queue, message_id):
            self._forward.repeated += self._tree.unlink(path)
            return
        try:
            if not self._tree.rename(path, target):
                return
        except FileExistsError:
            # A move, which needs no reservation, has brought an equal message here.
            self._forward.repeated += self._tree.unlink(path)
            return
        self._brought.append(parts)
        is_noted = type(self._context.journal) is not NoJournal
        found = self._tree.stat(target) if is_noted else None
        size = found.st_size if found is not None else None
        self._context.record(ACCEPTED, queue, message_id, size=size)

    def _is_there(self, queue: str, message_id: str) -> bool:
        """Keep puts of an own id out, then see whether it exists; as a put does."""
        names = siblings(message_id)
        own = (queue, names[0])
        if own in self._reserved:
            return True  # twice in this chunk
        if not patiently(lambda: self._reservations.take(*own), _RESERVED_PATIENCE_S):
            raise Unavailable(f"another put of the id {names[0]!r} is under way")
        self._reserved.add(own)
        return any(exists(self._tree, queue, name) for name in names)

    def _has_queue(self, queue: str) -> bool:
        known = self._queues.get(queue)
        if known is None:
            known = self._queues[queue] = self._tree.has_queue(queue)
        return known

    def _undo_for_deleted_queues(self) -> None:
        """Remove what was shown for a queue whose deletion may have purged ``new/`` before that."""
        for gone in [q for q, was in self._queues.items() if was and not self._tree.has_queue(q)]:
            with settings_held(self._tree, gone, writes=False):
                # Nobody creates it meanwhile. If it is there again, what is in new/ may be its own.
                if self._tree.has_queue(gone):
                    continue
                for queue, message_id in self._brought:
                    if queue == gone:
                        self._tree.move(REMOVE_NEW, queue, message_id)


def remove_gone(tree: Tree, folder: str, budget: int | None = None) -> int | None:
    """Unlink a folder that is on its way out, with the folders in it.

    budget: stop after this many files. Returns how many went; None if there are more. OSError.
    """
    # Whoever renamed it may not have synced that: a crash must not bring a part of a job back.
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
