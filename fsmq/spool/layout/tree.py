"""The tree: every rename and unlink of a message goes through this file.

Paths are relative to a descriptor of the root, and no symbolic link is followed at a message's
place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import UnusableSpool
from .files import write_all
from .names import entry, is_queue
from .renameat2 import EXCHANGE, NOREPLACE, renameat2
from .steps import portions
from .transitions import FILE_MODE, FOLDERS, QUEUES, State, Transition
from .uuids import uuid7

_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors of open() if there is no regular file at the path.
STRAY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Tree:
    """An opened root.

    ``folders`` overrides the paths of standard folders (the mover's ``--source`` and
    ``--destination``). ``network``: other hosts can change the tree. ``in_place``: overwriting
    bytes reuses their place on the disk. ``shared``: flags for opening files that several hosts
    write. All methods raise OSError.
    """

    def __init__(
        self, root: str | Path, *, create: bool = True, folders: dict[str, str] | None = None
    ) -> None:
        self.root = Path(root).absolute()
        self._at = {name: name for name in FOLDERS} | (folders or {})
        try:
            if create:
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UnusableSpool(
                f"cannot open the root {self.root}: {error.strerror};"
                " choose another with --root or change its owner"
            ) from error
        self.network, self.in_place, self.shared = False, False, 0
        self.can_noreplace = True  # until a rename shows otherwise
        self._is_ours = create
        if create:
            self.lay_out()

    def close(self) -> None:
        os.close(self.fd)

    def lay_out(self) -> None:
        """Create the folders that are missing.

        Raises:
            UnusableSpool: a file has the name of a folder.
        """
        for name in FOLDERS:
            try:
                os.mkdir(name, 0o700, dir_fd=self.fd)
            except FileExistsError:
                if not self.is_folder(name):
                    raise UnusableSpool(f"{self.root / name} is not a folder: move it") from None
            except OSError as error:
                raise UnusableSpool(
                    f"cannot create {self.root / name}: {error.strerror}"
                ) from error

    def mend(self, folder: str) -> bool:
        """Recreate a folder of the layout that was removed by hand; False if it was not removed.

        Its files are lost, but new ones find their place. Raises OSError.
        """
        if not self._is_ours or folder not in FOLDERS or self.stat(folder) is not None:
            return False
        try:
            os.mkdir(folder, 0o700, dir_fd=self.fd)
        except FileExistsError:
            pass  # another process was quicker
        return True

    # -- paths -----------------------------------------------------------------------------------

    def folder(self, name: str, queue: str = "") -> str:
        """The path of a folder of the layout, or of a queue in it."""
        return f"{self._at[name]}/{queue}" if queue else self._at[name]

    def path(self, state: State, queue: str, message_id: str) -> str:
        """The path of a message, relative to the root."""
        if state is State.READY:
            return f"{self._at[QUEUES]}/{queue}/{message_id}"
        return f"{self._at[state._value_]}/{entry(queue, message_id)}"  # `.value` costs twice this

    def stat(self, path: str) -> os.stat_result | None:
        """lstat; None if the path does not exist."""
        try:
            return os.stat(path, dir_fd=self.fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def look(self, path: str) -> os.stat_result | None:
        """The same, but up to date even if other hosts change the tree."""
        if self.network:
            self.refresh(path.rpartition("/")[0])
        return self.stat(path)

    def refresh(self, folder: str) -> None:
        """Drop cached names of a folder, if another host may have changed it.

        An NFS client caches names for up to a minute: it still finds, locks and stamps files that
        were renamed, and renames into deleted folders. Opening a folder makes it ask the server.
        """
        if self.network:
            try:
                os.close(self.open_folder(folder or "."))
            except (FileNotFoundError, NotADirectoryError):
                return

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder now."""
        return (found := self.look(path)) is not None and stat.S_ISDIR(found.st_mode)

    def has_queue(self, queue: str) -> bool:
        return self.is_folder(f"{self._at[QUEUES]}/{queue}")

    def make_folder(self, within: str, name: str) -> bool:
        """Create a folder within one of the layout; False if it exists, OSError if a file does.

        Durably in either case.
        """
        path = self.folder(within, name)
        is_new = True
        try:
            self.make_entry(path)
        except FileExistsError:
            found = self.stat(path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                code = errno.ENOTDIR
                raise OSError(code, os.strerror(code), path) from None
            is_new = False  # the process that created it may not have synced it yet
        self.sync_folder(self.folder(within))
        return is_new

    def make_entry(self, path: str) -> None:
        """Create a folder within one of the layout, without a sync. Raises FileExistsError."""
        try:
            os.mkdir(path, 0o700, dir_fd=self.fd)
        except FileNotFoundError:
            if not self.mend(path.rpartition("/")[0]):
                raise
            os.mkdir(path, 0o700, dir_fd=self.fd)

    def sync_folder(self, folder: str) -> None:
        """fsync a folder, unless it is gone."""
        try:
            fd = self.open_folder(folder)
        except FileNotFoundError:
            return  # a deleted queue: its folder was renamed to remove/, with all changes
        try:
            self.sync_opened(fd)
        finally:
            os.close(fd)

    def open_folder(self, folder: str) -> int:
        """A descriptor of a folder, which remains valid wherever the folder is renamed to."""
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)

    def sync_opened(self, folder: int) -> None:
        """fsync a folder by its descriptor."""
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network filesystems cannot fsync a folder
                raise

    def sync_file(self, path: str) -> None:
        """fsync a file that is not open, unless it has moved on.

        No sync is needed then: files are synced before they are promoted, and an ended claim need
        not be durable.
        """
        try:
            fd = self.open(path)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # -- listings --------------------------------------------------------------------------------

    def names(self, path: str) -> list[str]:
        """All names in a folder; empty if it is missing."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            return []
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def walk(self, path: str) -> Iterator[os.DirEntry[str]]:
        """The entries of a folder in directory order, without holding all in memory."""
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path, flags, dir_fd=self.fd)
        except FileNotFoundError:
            return
        try:
            with os.scandir(fd) as entries:
                yield from entries
        finally:
            os.close(fd)

    def ready_names(self, queue: str) -> list[str] | None:
        """The ids in a queue's folder, in no order; None if there is no such queue."""
        names: list[str] = []
        return names if self.show_ready(queue, names.extend) else None

    def show_ready(self, queue: str, see: Callable[[list[str]], object]) -> bool:
        """Call ``see`` with portions of them; False if there is no such queue."""
        self.refresh(self.folder(QUEUES))
        if not self.has_queue(queue):
            return False
        for portion in portions(found.name for found in self.walk(self.folder(QUEUES, queue))):
            # Dot-files, such as .nfs leftovers, are no messages; an id has no colon.
            see([n for n in portion if n[0] != "." and ":" not in n])
        return True

    def folders(self, path: str) -> list[str]:
        """The folders in one whose names are valid for queues, sorted."""
        return sorted(
            e.name for e in self.walk(path) if is_queue(e.name) and e.is_dir(follow_symlinks=False)
        )

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return self.folders(self._at[QUEUES])

    # -- files -----------------------------------------------------------------------------------

    def create(self, path: str, flags: int = _NEW) -> int:
        """Open a private file with flags, which by default create a new one for writing."""
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, flags, FILE_MODE, dir_fd=self.fd)
        except FileNotFoundError:
            if not self.mend(path.rpartition("/")[0]):
                raise
            return os.open(path, flags, FILE_MODE, dir_fd=self.fd)

    def open(self, path: str, access: int = os.O_RDONLY) -> int:
        """Open a message, without following a symbolic link or blocking on a FIFO."""
        return os.open(path, access | _OPEN_FLAGS, dir_fd=self.fd)

    def replace(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Write a small file atomically: dot-file, fsync, rename, fsync of the folder.

        durable: False omits both fsyncs. FileNotFoundError if the folder is missing.
        """
        folder = path.rpartition("/")[0]
        draft = f"{folder}/.{uuid7()}.tmp"
        fd = self.create(draft)
        try:
            try:
                write_all(fd, content)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            if not self.rename(draft, path, replace=True):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        except OSError:
            self.unlink(draft)
            raise
        if durable:
            self.sync_folder(folder)

    def touch(self, path: str) -> bool:
        """Set a file's times to now, by the filesystem's own clock; False if it is gone."""
        try:
            os.utime(path, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def stamp(self, path: str, mtime_ns: int) -> bool:
        """Set a message's mtime; False if it is not there (any more).

        By path, never by descriptor: a claimer that lost must not stamp the file that the winner
        has moved away.
        """
        try:
            os.utime(path, ns=(mtime_ns, mtime_ns), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def link(self, path: str, name: str) -> None:
        """Give a file another name; FileExistsError if the name exists."""
        os.link(path, name, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)

    def unlink(self, path: str) -> bool:
        """Unlink a file; False if it was gone."""
        try:
            os.unlink(path, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, path: str) -> bool:
        """Remove an empty folder; False if it is gone or not empty."""
        try:
            os.rmdir(path, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    # -- transitions -----------------------------------------------------------------------------

    def move(
        self,
        how: Transition,
        queue: str,
        message_id: str,
        to_queue: str | None = None,
        to_id: str | None = None,
    ) -> bool:
        """Make one transition; False if the message (or the target's queue) is not there.

        Queue and id stay the same, unless others are given.

        Raises:
            FileExistsError: the target has a message of this id; nothing was changed.
        """
        # A symbolic link in a queue's place would lead the rename out of the spool, to any file.
        to_queue = to_queue or queue
        if how.source is State.READY and not self.has_queue(queue):
            return False
        if how.target in (State.READY, State.NEW) and not self.has_queue(to_queue):
            return False
        source = self.path(how.source, queue, message_id)
        target = self.path(how.target, to_queue, to_id or message_id)
        return self.rename(source, target, replace=how.replaces)

    def rename(self, source: str, target: str, *, replace: bool = False) -> bool:
        """Rename; False if a path does not exist; FileExistsError unless ``replace``."""
        if replace or not self.can_noreplace:
            if not replace and self.stat(target) and (there := self.look(target)):
                here = self.stat(source)
                # A network filesystem can show the source for a while after another host has
                # renamed the file to the very same target.
                if here is None or here.st_ino == there.st_ino:
                    return False
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            try:
                os.rename(source, target, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            except (FileNotFoundError, NotADirectoryError):
                # The folder of the target may be missing: the message must not look as if it were
                # gone.
                if not self.mend(target.rpartition("/")[0]):
                    return False
                return self.rename(source, target, replace=replace)
            return True
        code = self._rename2(source, target, NOREPLACE)
        if code == 0:
            return True
        if code in (errno.ENOENT, errno.ENOTDIR):  # a stray file can have a queue's name
            return self.mend(target.rpartition("/")[0]) and self.rename(source, target)
        if code in (errno.EINVAL, errno.ENOSYS):
            # NFS and some FUSE filesystems lack this flag: look first, then rename. Ids are unique,
            # so only names given by shell users can collide in between.
            self.can_noreplace = False
            return self.rename(source, target)
        raise OSError(code, os.strerror(code), source, None, target)

    def exchange(self, one: str, other: str) -> bool:
        """Swap two names atomically; False where the filesystem cannot."""
        code = self._rename2(one, other, EXCHANGE)
        if code and code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), one, None, other)
        return code == 0

    def _rename2(self, source: str, target: str, flags: int) -> int:
        return renameat2(self.fd, source, target, flags)
