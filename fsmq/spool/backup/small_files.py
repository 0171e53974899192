"""What is copied before the messages: settings, subscriptions, batches, moves, jobs, schedules.

Each of these files is replaced as a whole. Those that belong together are read until both were
there at the same time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from ..errors import Unavailable
from ..layout import documents
from ..layout.transitions import CONFIG, CONSUMERS, IDS, MOVES, QUEUES, SCHEDULES, STAGING, TOPICS
from ..moves.order import FOUND, STOP
from ..records.secret import is_secret
from ..schedules.schedule_files import DONE, OPEN, Marker, is_schedule
from ..staging.forward import load
from ..staging.part import job_of
from .open_spool import Source

_TRIES = 100
_MAX_MARKER_BYTES = 64 * 1024


class SmallFiles:
    """Copies them. Methods raise OSError, Unavailable.

    queues: those in the copy. indexed: those of them with an index.
    parts: the folders with messages of committed jobs.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tree = source.tree
        self._copy = source.copy
        self.queues: set[str] = set()
        self.indexed: set[str] = set()
        self.parts: list[str] = []
        self._owed: set[str] = set()

    def take(self) -> None:
        """Copy all of them but the queues and jobs."""
        self._source.take_folder(TOPICS, deep=True)
        self._moves()
        self._source.take_folder(CONSUMERS, deep=True)
        for name in self._tree.names(CONFIG):
            if is_secret(name):
                self._source.take(f"{CONFIG}/{name}")
        self._schedules()

    # -- queues ----------------------------------------------------------------------------------

    def take_queue(self, queue: str) -> bool:
        """Copy a queue's settings, and make its folder; False if there is no such queue.

        A queue's folder is made after its settings and its index, and goes before them. So if the
        folder is the same before and after the look at these, they belong to it.
        """
        if queue in self.queues:
            return True
        path, index = f"{QUEUES}/{queue}", f"{IDS}/{queue}"
        for _ in range(_TRIES):
            before = self._folder(path)
            if before is None:
                return False
            indexed = self._folder(index)
            with self._source.opened(f"{CONFIG}/{queue}.json") as opened:
                after = self._folder(path)
                if after is None or after.st_ino != before.st_ino:
                    continue  # it was purged, or deleted and made anew
                self._copy.make(path, before)
                self.queues.add(queue)
                if indexed is not None:
                    self._copy.make(index, indexed)
                    self.indexed.add(queue)
                if opened is not None:
                    self._copy.add(opened.fd, opened.found, f"{CONFIG}/{queue}.json")
            return True
        raise Unavailable(f"queue {queue!r} is made anew again and again")

    def _folder(self, path: str) -> os.stat_result | None:
        found = self._tree.stat(path)
        return found if found is not None and stat.S_ISDIR(found.st_mode) else None

    # -- moves -----------------------------------------------------------------------------------

    def _moves(self) -> None:
        """Copy moves: what belongs to an order after it, and the outcome last, as it is written
        before those are unlinked."""
        for suffix in (OPEN, STOP, FOUND, DONE):
            for name in self._tree.names(MOVES):
                if name[0] != "." and name.endswith(suffix):
                    self._source.take(f"{MOVES}/{name}")

    # -- jobs ------------------------------------------------------------------------------------

    def take_jobs(self, watch: Callable[[str], None]) -> None:
        """Copy what is known of committed jobs; their messages are in `parts`.

        watch: called for each folder of `parts`. An open job counts for nothing, and is left out.
        """
        for name in sorted(self._tree.names(STAGING)):
            folder = f"{STAGING}/{name}"
            job = job_of(name) if name[0] != "." else None
            found = self._folder(folder) if job is not None else None
            if job is None or found is None:
                continue
            manifest = load(self._tree, job)
            self._copy.make(folder, found)
            if manifest is None or not self._source.take(f"{folder}/commit.json"):
                self._copy.unmake(folder)  # all of it has gone forward
                continue
            for part in manifest.parts:
                path = f"{folder}/{part}"
                self._copy.make(path, found)
                watch(path)
                self.parts.append(path)
        # Last: a job that has just gone forward is noted as done.
        for name in self._tree.names(STAGING):
            if name[0] != "." and name.endswith(".json"):
                self._source.take(f"{STAGING}/{name}")

    # -- schedules -------------------------------------------------------------------------------

    def is_owed(self, draft: str) -> bool:
        """Whether a copied marker owes the message of a draft in ``schedules/``."""
        return draft in self._owed

    def _schedules(self) -> None:
        names = {name.rpartition(".")[0] for name in self._tree.names(SCHEDULES)}
        for name in sorted(filter(is_schedule, names)):
            self._schedule(name)

    def _schedule(self, name: str) -> None:
        """Copy a schedule and its marker, which is done up to some time of this very line."""
        paths = [f"{SCHEDULES}/{name}{suffix}" for suffix in (OPEN, DONE)]
        for _ in range(_TRIES):
            before = list(map(self._version, paths))
            with self._source.opened(paths[0]) as line, self._source.opened(paths[1]) as marker:
                if list(map(self._version, paths)) != before:
                    continue
                for opened, path in ((line, paths[0]), (marker, paths[1])):
                    if opened is not None:
                        self._copy.add(opened.fd, opened.found, path)
                if marker is not None:
                    self._owe(name, os.pread(marker.fd, _MAX_MARKER_BYTES, 0))
            return
        raise Unavailable(f"schedule {name!r} changes all the time")

    def _version(self, path: str) -> tuple[int, int] | None:
        found = self._tree.look(path)
        return None if found is None else (found.st_ino, found.st_ctime_ns)

    def _owe(self, name: str, marker: bytes) -> None:
        with suppress(ValueError):
            moments = Marker.parse(documents.parse(marker)).owed
            self._owed.update(f".{name}:{moment}" for moment in moments)
