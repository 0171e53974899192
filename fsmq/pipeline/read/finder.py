"""Finds messages that were listed before, wherever they are now, and stats or reads them.

It uses plain system calls, relative to an open folder, because there are millions of messages.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial

from fsmq.pipeline.columns import RUN_BYTES, RUN_MESSAGES, File, Run
from fsmq.pipeline.read.listing import Group, removed_queues
from fsmq.spool import InvalidValue, State, UnusableSpool
from fsmq.spool.on_disk import MESSAGE_FOLDERS, QUEUES, STRAY, Tree, entry

# In the place of a message a symbolic link is not followed, and a pipe is not waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Where a message may have gone, in the direction of travel.
_AHEAD = {
    State.NEW: (State.READY, State.DELAY, State.READY, State.REMOVE),
    State.READY: (State.DELAY, State.READY, State.DELAY, State.REMOVE),
    State.DELAY: (State.READY, State.DELAY, State.READY, State.REMOVE),
    State.REMOVE: (),
}

_Look = Callable[[int, str], File | None]


def open_root(root: str) -> Tree:
    """A root on this host, whatever is in it. Raises UnusableSpool."""
    try:
        return Tree(root, create=False)
    except UnusableSpool as error:
        advice = f"is it mounted on {socket.gethostname()}, and may this user read it?"
        raise UnusableSpool(f"option root: {error.__cause__}; {advice}") from error


def open_tree(root: str) -> Tree:
    """A spool on this host. Raises UnusableSpool."""
    tree = open_root(root)
    for name in MESSAGE_FOLDERS:
        if not tree.is_folder(tree.folder(name)):
            tree.close()
            raise UnusableSpool(f"option root: {root} is not a spool: it has no folder {name!r}")
    return tree


class Finder:
    """Finds messages; has to be closed.

    limit: bytes of the largest file that is read as a whole.
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

    def look(self, group: Group) -> Iterator[Run]:
        """The messages of a group with their files' sizes and times. Raises OSError."""
        return self._each(group, _look)

    def read(self, group: Group, at_most: int | None = None) -> Iterator[Run]:
        """The messages with their contents, or at most ``at_most`` bytes of each.

        Raises:
            InvalidValue: a message is larger than the limit.
            OSError
        """
        return self._each(group, partial(_read, self._limit, at_most))

    def _each(self, group: Group, look: _Look) -> Iterator[Run]:
        queue, place, ids = group
        before = "" if place is State.READY else entry(queue, "")
        folder = self._folder(place, queue)
        run, size = Run(queue, place, [], []), 0
        for message_id in ids:
            file = None if folder is None else look(folder, before + message_id)
            if file is None:
                if run.ids:
                    yield run
                    run, size = Run(queue, place, [], []), 0
                moved = self._ahead(queue, message_id, place, look)
                folder = self._folder(place, queue)
                if moved is not None:
                    yield moved
                continue
            run.ids.append(message_id)
            run.files.append(file)
            size += file[0]
            if size >= RUN_BYTES or len(run.ids) >= RUN_MESSAGES:
                yield run
                run, size = Run(queue, place, [], []), 0
        if run.ids:
            yield run

    def _ahead(self, queue: str, message_id: str, first: State, look: _Look) -> Run | None:
        """A message that has left its place."""
        for place in _AHEAD[first]:
            folder = self._folder(place, queue)
            name = message_id if place is State.READY else entry(queue, message_id)
            file = None if folder is None else look(folder, name)
            if file is not None:
                return Run(queue, place, [message_id], [file])
        for path in self._removed_folders(queue):
            file = look(self._tree.fd, f"{path}/{message_id}")
            if file is not None:
                return Run(queue, State.REMOVE, [message_id], [file])
        return None

    def _folder(self, place: State, queue: str) -> int | None:
        """The descriptor of a folder; None for a queue that does not exist (any more)."""
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

    def _removed_folders(self, queue: str) -> list[str]:
        """The removed folders of a queue that was deleted or purged as a whole."""
        if queue not in self._removed:
            self._removed[queue] = [p for name, p in removed_queues(self._tree) if name == queue]
        return self._removed[queue]


def _look(folder: int, name: str) -> File | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in STRAY:
            return None
        raise
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, None


def _read(limit: int, at_most: int | None, folder: int, name: str) -> File | None:
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
            raise _too_large(name, size, limit)
        wanted = size if at_most is None else min(size, at_most)
        raw = os.read(fd, wanted)
        if len(raw) < wanted:
            raw = b"".join([raw, *_rest(fd, wanted - len(raw))])
        return size, found.st_mtime_ns, raw
    finally:
        os.close(fd)


def _too_large(name: str, size: int, limit: int) -> InvalidValue:
    return InvalidValue(
        "option maxBodyBytes",
        f"message {name!r} has {size:,} bytes, and no more than {limit:,} are read: raise it, or"
        f' leave such out with .where("size <= {limit}")',
    )


def _rest(fd: int, missing: int) -> Iterator[bytes]:
    """The bytes that one call did not return: some filesystems return a part."""
    while missing > 0 and (part := os.read(fd, missing)):
        yield part
        missing -= len(part)
