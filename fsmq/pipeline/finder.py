"""Finding messages that were listed: looked at, or read, wherever they have gone meanwhile.

In plain system calls, relative to a folder that is open: there are millions of them.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator

from fsmq.pipeline.columns import Found
from fsmq.pipeline.listing import removed_queues
from fsmq.spool import InvalidValue, State, UnusableSpool
from fsmq.spool.names import entry
from fsmq.spool.transitions import MESSAGE_FOLDERS, QUEUES
from fsmq.spool.tree import STRAY, Tree

# Neither a symbolic link nor a pipe at a message's place is followed, or waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Where a message may have gone, in the order in which it travels.
_AHEAD = {
    State.NEW: (State.NEW, State.READY, State.DELAY, State.READY, State.REMOVE),
    State.READY: (State.READY, State.DELAY, State.READY, State.DELAY, State.REMOVE),
    State.DELAY: (State.DELAY, State.READY, State.DELAY, State.READY, State.REMOVE),
    State.REMOVE: (State.REMOVE,),
}

_Look = Callable[[int, str, Found], Found | None]


def open_tree(root: str) -> Tree:
    """A spool on this host. Raises UnusableSpool."""
    try:
        tree = Tree(root, create=False)
    except UnusableSpool as error:
        advice = f"is it mounted on {socket.gethostname()}, and may this user read it?"
        raise UnusableSpool(f"option root: {error.__cause__}; {advice}") from error
    for name in MESSAGE_FOLDERS:
        if not tree.is_folder(tree.folder(name)):
            tree.close()
            raise UnusableSpool(f"option root: {root} is no spool: it has no folder {name!r}")
    return tree


class Finder:
    """Finds messages; to be closed.

    limit: bytes that the file of a message may have to be read as a whole.
    """

    def __init__(self, tree: Tree, limit: int) -> None:
        self._tree = tree
        self._limit = limit
        self._folders: dict[State, int] = {}
        self._queue = ""  # whose folder is open
        self._removed: dict[str, list[str]] = {}

    def close(self) -> None:
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def look(self, message: Found) -> Found | None:
        """The message with its file's size and time; None if it is gone. Raises OSError."""
        return self._find(message, _look)

    def read(self, message: Found, at_most: int | None = None) -> Found | None:
        """The message with its bytes, or no more than ``at_most`` of them; None if it is gone.

        Raises:
            InvalidValue: it is larger than the limit.
            OSError
        """

        def reads(folder: int, name: str, as_: Found) -> Found | None:
            return _read(folder, name, as_, self._limit, at_most)

        return self._find(message, reads)

    def _find(self, message: Found, look: _Look) -> Found | None:
        queue, message_id, first = message[:3]
        for place in _AHEAD[first]:
            folder = self._folder(place, queue)
            if folder is None:
                continue
            name = message_id if place is State.READY else entry(queue, message_id)
            found = look(folder, name, Found(queue, message_id, place))
            if found is not None:
                return found
        return self._among_removed(message, look)

    def _folder(self, place: State, queue: str) -> int | None:
        """An open folder; None for a queue that does not exist (any more)."""
        if place is State.READY and self._queue != queue:
            if place in self._folders:
                os.close(self._folders.pop(place))
            self._queue = queue
        if place not in self._folders:
            path = self._tree.folder(QUEUES, queue)
            if place is not State.READY:
                path = self._tree.folder(place.value)
            try:
                self._folders[place] = os.open(path, _FOLDER, dir_fd=self._tree.fd)
            except OSError as error:
                if error.errno in STRAY:
                    return None
                raise
        return self._folders[place]

    def _among_removed(self, message: Found, look: _Look) -> Found | None:
        """A message that went when its whole queue was deleted or purged."""
        queue, message_id = message[:2]
        if queue not in self._removed:
            self._removed[queue] = [p for name, p in removed_queues(self._tree) if name == queue]
        as_ = Found(queue, message_id, State.REMOVE)
        for path in self._removed[queue]:
            found = look(self._tree.fd, f"{path}/{message_id}", as_)
            if found is not None:
                return found
        return None


def _look(folder: int, name: str, as_: Found) -> Found | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    if not stat.S_ISREG(found.st_mode):
        return None
    return as_._replace(size=found.st_size, mtime_ns=found.st_mtime_ns)


def _read(folder: int, name: str, as_: Found, limit: int, at_most: int | None) -> Found | None:
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        size = found.st_size
        if at_most is None and size > limit:
            raise InvalidValue(
                "option maxBodyBytes",
                f"message {as_.id!r} of queue {as_.queue!r} has {size:,} bytes, and no more than"
                f' {limit:,} are read: raise it, or leave such out with .where("size <= {limit}")',
            )
        wanted = size if at_most is None else min(size, at_most)
        raw = os.read(fd, wanted)
        if len(raw) < wanted:
            raw = b"".join([raw, *_rest(fd, wanted - len(raw))])
        return Found(as_.queue, as_.id, as_.place, size, found.st_mtime_ns, raw)
    finally:
        os.close(fd)


def _rest(fd: int, missing: int) -> Iterator[bytes]:
    """What one call did not give: some filesystems give a part."""
    while missing > 0 and (part := os.read(fd, missing)):
        yield part
        missing -= len(part)
