"""Staging: messages of a job, which count only once the whole job is committed.

Any number of writers on any number of hosts write parts of one job; `commit` publishes the
successful ones as a whole. docs/format.md, section 18, is the specification.

    staging/
      .<job>:<number>/             being written: does not count
        .<part>.lock                 locked while its writer works
        <part>/
          <queue>:<id>
      <job>:<number>/              committed; its files are on their way to new/
      <job>.json                   the greatest number that was committed
      .<job>.lock                  held to commit, to forward or to remove
      .gone-<uuid7>/               being removed
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from ..context import Context
from ..durability.drafts import Draft
from ..durability.locks import Lock, lock
from ..durability.sync import Dirty
from ..errors import InvalidValue, NoSuchQueue, Unavailable, as_unavailable, unavailable
from ..layout.files import write_all
from ..layout.messages.message import NewMessage
from ..layout.names import UUID7, check_queue, entry
from ..layout.settings import DEFAULTS, QueueSettings
from ..layout.transitions import STAGING
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from ..verbs.draft import check_room, draft, restored

# How many files share a sync; settings are read again for each such group.
_GROUP = 10_000
REJECTED = "aside.jsonl"

_job_name = re.compile(r"(?!\.)[A-Za-z0-9._@+=~-]{1,100}")
_job_folder = re.compile(r"\.?(?P<name>[^:]+):(?P<number>0|[1-9][0-9]{0,18})")
_lock = re.compile(r"\..+\.lock")
_gone = re.compile(rf"\.gone-{UUID7}")
_draft = re.compile(rf"\.{UUID7}\.tmp")

Sync = Callable[[Dirty], None]


class Job(NamedTuple):
    """A unit of commit. The numbers of one name increase: a job whose number is not above the last
    committed one is done already."""

    name: str
    number: int = 0


class Written(NamedTuple):
    """A part that was written, for `commit`.

    queues: messages by queue. size: bytes of the files. own: some have own ids. delayed: some have
    a delay. repeated: messages left out, as the part had their id already. rejected: rejected rows.
    """

    part: str
    queues: dict[str, int]
    size: int = 0
    own: bool = False
    delayed: bool = False
    repeated: int = 0
    rejected: int = 0

    @property
    def messages(self) -> int:
        return sum(self.queues.values())


def check_job(name: str) -> str:
    """Return a name if a job can have it. Raises InvalidValue."""
    if _job_name.fullmatch(name):
        return name
    raise InvalidValue(
        "job",
        f"{name[:200]!r} cannot name a job: 1 to 100 characters of A-Z a-z 0-9 . _ @ + = ~ -,"
        " not starting with '.'",
    )


def open_folder(tree: Tree, job: Job) -> str:
    """Where a job is written."""
    return tree.folder(STAGING, f".{job.name}:{job.number}")


def committed_folder(tree: Tree, job: Job) -> str:
    """The path of the job once it is committed."""
    return tree.folder(STAGING, f"{job.name}:{job.number}")


def gone_folder(tree: Tree) -> str:
    """A new path for a folder to be removed."""
    return tree.folder(STAGING, f".gone-{uuid7()}")


def lock_path(tree: Tree, name: str) -> str:
    """The lock of all jobs of a name."""
    return tree.folder(STAGING, f".{name}.lock")


def job_of(name: str) -> Job | None:
    """The job whose folder has this name in ``staging/``, committed or not."""
    match = _job_folder.fullmatch(name)
    if match is None or _job_name.fullmatch(match["name"]) is None:
        return None
    return Job(match["name"], int(match["number"]))


def is_lock(name: str) -> bool:
    """Whether a name is that of a lock, of a job or of a part."""
    return _lock.fullmatch(name) is not None


def is_gone(name: str) -> bool:
    """Whether a name of ``staging/`` is that of a folder being removed."""
    return _gone.fullmatch(name) is not None


def is_draft(name: str) -> bool:
    """Whether a name is that of a small file that is being replaced."""
    return _draft.fullmatch(name) is not None


def check_takes(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidValue if staged messages cannot go to a queue with these settings."""
    if settings.fifo:
        raise InvalidValue("queue", f"{queue!r} is a fifo queue: only a put makes places")


class Part:
    """One writer's messages; not for several threads.

    sync: makes a change durable (`Syncer.sync`). create_queues: accept messages for missing queues;
    `commit` will create these.

    A complete group is synced in a thread while the next one is written.

    Either `finish` it or `abandon` it. Raises InvalidValue for an invalid name of a job. All
    methods raise Unavailable if the disk fails or is full. Then the state of its files is unknown,
    and the part can only be abandoned.
    """

    def __init__(
        self, context: Context, sync: Sync, job: Job, *, create_queues: bool = False
    ) -> None:
        check_job(job.name)
        self.name = uuid7()
        self._context = context
        self._tree = context.tree
        self._sync = sync
        self._create_queues = create_queues
        self._job_folder = open_folder(context.tree, job)
        self._folder = f"{self._job_folder}/{self.name}"
        self._work = Dirty()
        self._settings: dict[str, QueueSettings] = {}
        self._queues: Counter[str] = Counter()
        self._size = self._repeated = self._rejected = 0
        self._own = self._delayed = False
        self._is_whole = True  # its folder has exactly what was written
        self._rejected_fd: int | None = None
        self._thread = ThreadPoolExecutor(1, "fsmq-stage")
        self._syncing: Future[None] | None = None
        with as_unavailable("cannot begin a part of a job"):
            self._lock = self._begin()

    def _begin(self) -> Lock:
        while True:
            try:
                _make(self._tree, self._job_folder)
                held = lock(self._tree, f"{self._job_folder}/.{self.name}.lock", os.O_CREAT)
                _make(self._tree, self._folder)
            except FileNotFoundError:
                continue  # another part was abandoned, and removed the folder
            assert held is not None  # nobody else knows our name
            return held

    def write(self, queue: str, message: NewMessage, *, restores: bool = False) -> str:
        """Write a message; returns its id. It is durable once the part is finished.

        restores: its id is the whole name that a message had; see `restored`.

        Raises:
            InvalidValue, MessageTooLarge, NoSuchQueue: the message is refused, the part unchanged
            Unavailable
        """
        try:
            settings = self._settings_of(queue)
            check_takes(queue, settings)
            if restores:
                found = restored(self._context, queue, message, settings)
            else:
                found = draft(self._context, message, settings)
                check_room(queue, found)
            with self._changed():
                self._write(queue, found)
                if len(self._work.written) >= _GROUP:
                    self._wait_for_sync()
                    self._syncing = self._thread.submit(self._sync, self._end_group())
        except OSError as error:
            raise unavailable(error, f"cannot stage a message for queue {queue!r}") from error
        return found.message_id

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """A change that is interrupted makes the whole part void."""
        if not self._is_whole:
            raise Unavailable("a change of this part of a job has failed: abandon it")
        self._is_whole = False
        yield
        self._is_whole = True

    def _write(self, queue: str, found: Draft) -> None:
        path = f"{self._folder}/{entry(queue, found.message_id)}"
        try:
            fd = self._tree.create(path)
        except FileExistsError:
            self._repeated += 1
            return
        try:
            # The delay begins at the commit: until then it is stored as a time since 1970.
            found.write(fd, found.timer_ns(self._context.stamps, 0))
        finally:
            os.close(fd)
        self._work.written.append(path)
        self._delayed |= found.delay_ms is not None
        self._own |= found.own
        self._queues[queue] += 1
        self._size += found.size

    def _settings_of(self, queue: str) -> QueueSettings:
        known = self._settings.get(queue)
        if known is None:
            check_queue(queue)
            try:
                known = self._context.settings_of(queue)
            except NoSuchQueue:
                if not self._create_queues:
                    raise
                known = DEFAULTS
            self._settings[queue] = known
        return known

    def reject(self, line: bytes) -> None:
        """Keep a line, with its line feed, for the file of rejected rows."""
        with as_unavailable("cannot store a rejected row"), self._changed():
            if self._rejected_fd is None:
                path = f"{self._folder}/{REJECTED}"
                self._rejected_fd = self._tree.create(path)
                self._work.written.append(path)
            write_all(self._rejected_fd, line)
        self._rejected += 1

    def finish(self) -> Written:
        """Make the part durable. It does not count until the commit."""
        with as_unavailable("cannot finish a part of a job"), self._changed():
            self._close_rejected()
            self._wait_for_sync()
            self._sync(self._end_group())
            self._thread.shutdown()
            self._lock.free()
        return Written(
            self.name,
            dict(self._queues),
            self._size,
            self._own,
            self._delayed,
            self._repeated,
            self._rejected,
        )

    def abandon(self) -> None:
        """Remove what was written. Recovery removes what cannot be removed now."""
        self._thread.shutdown()
        try:
            self._close_rejected()
            for name in self._tree.names(self._folder):
                self._tree.unlink(f"{self._folder}/{name}")
            self._tree.remove_folder(self._folder)
        except OSError:
            self._lock.unlock()
            return
        try:
            self._lock.free()
            self._tree.remove_folder(self._job_folder)
        except OSError:
            pass

    def _end_group(self) -> Dirty:
        dirty, self._work = self._work, Dirty()
        dirty.folders.add(self._folder)
        self._settings.clear()
        return dirty

    def _wait_for_sync(self) -> None:
        """Wait until the last group is durable. Raises Unavailable if its sync failed."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def _close_rejected(self) -> None:
        fd, self._rejected_fd = self._rejected_fd, None
        if fd is not None:
            os.close(fd)


def _make(tree: Tree, folder: str) -> None:
    try:
        tree.make_entry(folder)
    except FileExistsError:
        pass
