"""The trials of the probe: each returns a text, or stops with a warning or an error."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from ..durability.left_files import remove_scratch
from ..durability.sync import Dirty, Syncer
from ..errors import ADVICE, Unavailable, is_full, is_passing
from ..index.events import HAS_EVENTS, Events
from ..layout.filesystem import Filesystem, examine, has_journal, mounts_below
from ..layout.messages import dead_letter
from ..layout.names import scratch_name
from ..layout.transitions import CONFIG, DELAY, FOLDERS, NEW, QUEUES, REMOVE
from ..layout.tree import Tree
from .finding import Finding, Level, Stop
from .room import inodes, space

_MESSAGE_WAY = (NEW, QUEUES, DELAY, REMOVE)
_EVENT_WAIT_MS = 1000
_CTIME_WAIT_S = 0.1
_COARSE_WAIT_S = 2.1
_CLOCK_SLACK_S = 1.0


class Trials:
    """Tries out one tree; ``clock`` gives Unix seconds."""

    def __init__(self, tree: Tree, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._clock = clock
        self._filesystem = Filesystem("", False, False, False)
        self._scratch = tree.folder(CONFIG, scratch_name())

    def run(self) -> Iterator[Finding]:
        yield self._try("folders", self._folders)
        yield self._try("access", self._access)
        yield self._try("one filesystem", self._one_filesystem)
        yield self._try("space", lambda: space(self._tree.fd))
        yield self._try("inodes", lambda: inodes(self._tree.fd))
        yield self._try("filesystem", self._kind)
        try:
            os.mkdir(self._scratch, 0o700, dir_fd=self._tree.fd)
        except OSError as error:
            yield self._refused("scratch folder", error)
            return
        try:
            yield from self._trials()
        finally:
            self._clean_up()

    def _trials(self) -> Iterator[Finding]:
        yield self._try("rename", self._rename)
        yield self._try("rename without overwrite", self._rename_without_overwrite)
        yield self._try("fsync of files", self._fsync_of_files)
        yield self._try("fsync of folders", self._fsync_of_folders)
        yield self._try("sync", self._sync)
        yield self._try("times", self._times)
        yield self._try("ctime", self._ctime)
        yield self._try("clock", self._clocks)
        yield self._try("attributes", self._attributes)
        yield self._try("events", self._events)

    def _try(self, name: str, trial: Callable[[], str]) -> Finding:
        try:
            return Finding(name, Level.OK, trial())
        except Stop as stop:
            return Finding(name, stop.level, str(stop), stop.passing)
        except OSError as error:
            return self._refused(name, error)
        except Unavailable as error:
            return Finding(name, Level.FATAL, str(error), passing=True)

    def _refused(self, name: str, error: OSError) -> Finding:
        return Finding(name, _level(error), _advice(error, self._scratch), is_passing(error))

    # -- what needs no scratch folder ------------------------------------------------------------

    def _folders(self) -> str:
        tree = self._tree
        for name in FOLDERS:
            path = tree.folder(name)
            found = tree.stat(path)
            if found is None:
                raise Stop(Level.FATAL, f"{path} is missing; fsmq fsck --repair creates it")
            if not stat.S_ISDIR(found.st_mode):
                raise Stop(Level.FATAL, f"{path} is not a folder; move it away")
            os.close(tree.create(f"{path}/{self._name}"))
            tree.unlink(f"{path}/{self._name}")
        return f"all {len(FOLDERS)} are there and can be written to"

    def _access(self) -> str:
        mode = stat.S_IMODE(os.fstat(self._tree.fd).st_mode)
        if mode & 0o077:
            text = f"others have access to the root (mode {mode:04o})"
            raise Stop(Level.WARNING, f"{text}; chmod 0700 it unless that is wanted")
        return f"the root is private (mode {mode:04o})"

    def _one_filesystem(self) -> str:
        tree = self._tree
        device = tree.stat(tree.folder(NEW))
        mounts = mounts_below(tree.root)
        for name in FOLDERS:
            found = tree.stat(tree.folder(name))
            differs = found is not None and device is not None and found.st_dev != device.st_dev
            if differs or tree.folder(name) in mounts:
                text = f"{tree.folder(name)} is a mount of its own, and no rename crosses mounts"
                raise Stop(Level.FATAL, f"{text}; mount the whole root instead")
        return "all folders lie on one filesystem"

    def _kind(self) -> str:
        self._filesystem = examine(self._tree)
        kind = self._filesystem.kind or "of unknown type"
        if self._filesystem.network:
            return f"{kind}, a network filesystem: other hosts may work on the same tree"
        if kind == "tmpfs":
            raise Stop(Level.WARNING, "tmpfs, which forgets everything when the machine stops")
        if has_journal(self._tree.root) is False:
            text = "ext4 without a journal: a power cut can damage folders, and creating files is"
            raise Stop(Level.WARNING, f"{text} slow after many were deleted; tune2fs -j adds one")
        return f"{kind}, local"

    # -- trials ----------------------------------------------------------------------------------

    def _rename(self) -> str:
        """Rename a dot-name through all the folders that a message passes."""
        tree = self._tree
        here = f"{self._scratch}/renamed"
        content = self._file(here)
        try:
            for folder in _MESSAGE_WAY:
                there = f"{tree.folder(folder)}/{self._name}"
                if not tree.rename(here, there):
                    raise Stop(Level.FATAL, f"a rename into {tree.folder(folder)} found nothing")
                found = tree.stat(there)
                # In remove/ a reaper may have taken it already.
                if folder != REMOVE and (found is None or found.st_ino != content):
                    raise Stop(Level.FATAL, "a rename changes the identity (inode) of a file")
                here = there
        finally:
            tree.unlink(here)
        return "a file keeps its identity from folder to folder"

    def _rename_without_overwrite(self) -> str:
        tree = self._tree
        one, other = f"{self._scratch}/one", f"{self._scratch}/other"
        self._file(one)
        self._file(other)
        try:
            tree.rename(one, other)
        except FileExistsError:
            if tree.can_noreplace:
                return "the filesystem refuses it atomically"
            raise Stop(
                Level.WARNING,
                "is emulated by a check before the rename: two puts of one own id, at"
                " the same moment on two"
                " hosts, could overwrite each other",
            ) from None
        raise Stop(Level.FATAL, "a rename overwrites in spite of RENAME_NOREPLACE")

    def _fsync_of_files(self) -> str:
        fd = self._tree.create(f"{self._scratch}/synced")
        try:
            os.write(fd, b"probe")
            took = duration_of(lambda: os.fsync(fd))
        finally:
            os.close(fd)
        return f"works, in {took * 1000:.1f} ms"

    def _fsync_of_folders(self) -> str:
        fd = os.open(self._scratch, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._tree.fd)
        try:
            took = duration_of(lambda: os.fsync(fd))
        except OSError as error:
            text = (
                f"is refused ({error.strerror}): renames are durable only as the server syncs them"
            )
            raise Stop(Level.WARNING, f"{text}; export with sync") from error
        finally:
            os.close(fd)
        return f"works, in {took * 1000:.1f} ms"

    def _sync(self) -> str:
        if not self._filesystem.whole_sync:
            return "auto fsyncs each file and folder: one syncfs promises too little here"
        with closing(Syncer(self._tree, "syncfs")) as syncer:
            took = duration_of(lambda: syncer.sync(Dirty()))
        text = f"auto takes the faster of syncfs ({took * 1000:.1f} ms just now) and fsync"
        if os.path.ismount(self._tree.root):
            return text
        return f"{text}; a mount of its own keeps other writers from slowing the spool"

    def _times(self) -> str:
        if self._filesystem.coarse:
            raise Stop(
                Level.WARNING,
                "stamps: none. Times are kept to the second at best: deadlines round up, deliveries"
                " are unknown and dead-lettering is off. All programs must see the same: one that"
                " sees nanoseconds, perhaps on the file server, hands out what is claimed here",
            )
        return "nanoseconds come back: stamps keep deadlines and deliveries"

    def _ctime(self) -> str:
        tree = self._tree
        one, other = f"{self._scratch}/here", f"{self._scratch}/there"
        self._file(one)
        before = tree.stat(one)
        end = time.monotonic() + (_COARSE_WAIT_S if self._filesystem.coarse else _CTIME_WAIT_S)
        while time.monotonic() < end:
            tree.rename(one, other)
            found = tree.stat(other)
            if before is not None and found is not None and found.st_ctime_ns > before.st_ctime_ns:
                return "moves with a rename"
            one, other = other, one
            time.sleep(0.002)  # the filesystem's clock can tick only 100 times a second
        raise Stop(
            Level.WARNING,
            "does not move with a rename: mq-mover's --delay counts from the writing of a message",
        )

    def _clocks(self) -> str:
        before = self._clock()
        self._file(f"{self._scratch}/dated")
        after = self._clock()
        found = self._tree.stat(f"{self._scratch}/dated")
        assert found is not None
        # A file's time can be truncated to a tick of the clock, or to the second.
        tick = 1.0 if self._filesystem.coarse else 0.02
        off = max(before - tick - found.st_ctime, found.st_ctime - after, 0.0)
        if off > _CLOCK_SLACK_S:
            raise Stop(
                Level.WARNING,
                f"ours and the filesystem's differ by {off:.1f} s: timers are off by as much;"
                " synchronise the clocks (NTP) of all hosts",
            )
        return "ours and the filesystem's agree"

    def _attributes(self) -> str:
        fd = self._tree.create(f"{self._scratch}/dead")
        try:
            if not dead_letter.write_raw(fd, b"x"):
                raise Stop(
                    Level.WARNING,
                    "no extended attributes: dead letters do not know from which queue they came"
                    " (NFS has them from version 4.2 on)",
                )
        finally:
            os.close(fd)
        return "dead letters know from which queue they came"

    def _events(self) -> str:
        polling = "the folders are polled"
        if not HAS_EVENTS:
            raise Stop(Level.WARNING, f"this system has no inotify: {polling}")
        with closing(Events(self._tree)) as events:
            arrived = self._await_event(events)
            for limit in events.unwatched.values():
                raise Stop(Level.WARNING, f"no inotify: {polling}; raise {limit}")
        if not arrived:
            raise Stop(Level.WARNING, f"a rename gave no event within 1 s: {polling}")
        if self._filesystem.network:
            raise Stop(Level.WARNING, f"events of other hosts do not cross the network: {polling}")
        return "a rename is seen at once"

    def _await_event(self, events: Events) -> bool:
        draft = f"{self._scratch}/draft"
        self._file(draft)
        if not events.watch(self._scratch):
            return False
        self._tree.rename(draft, f"{self._scratch}/arrived")
        end = time.monotonic() + _EVENT_WAIT_MS / 1000
        while (left := end - time.monotonic()) > 0:
            if any(event.name == "arrived" for event in events.read(int(left * 1000) + 1)):
                return True
        return False

    # -- the scratch folder ----------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._scratch.rpartition("/")[2]

    def _file(self, path: str) -> int:
        """Create an empty file; its inode."""
        fd = self._tree.create(path)
        try:
            return os.fstat(fd).st_ino
        finally:
            os.close(fd)

    def _clean_up(self) -> None:
        try:
            remove_scratch(self._tree, self._scratch)
        except OSError:
            pass  # fsck finds what is left


def _level(error: OSError) -> Level:
    """How bad an error in a trial is: on a full disk the trial is just impossible."""
    return Level.WARNING if is_full(error) else Level.FATAL


def _advice(error: OSError, path: str) -> str:
    text = ADVICE.get(error.errno or 0, (error.strerror or str(error), 0))[0]
    return f"{error.filename or path}: {text}"


def duration_of(deed: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    deed()
    return time.perf_counter() - started
