"""Which stream a consumer works on, and up to which number it has committed: a file's name.

    consumers/<name>/<stream>.<number>.stream

The file is empty. A rename changes it, which needs no room on a full disk.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..layout.names import UUID7
from ..layout.tree import Tree
from .manifest import folder_of

_name = re.compile(rf"(?P<stream>{UUID7})\.(?P<number>0|[1-9][0-9]{{0,18}})\.stream")


class Committed(NamedTuple):
    """number: all batches of the stream, a UUIDv7, up to this one are committed; 0: none is."""

    stream: str
    number: int


def is_note(name: str) -> bool:
    """Whether a file of a consumer is its note."""
    return _name.fullmatch(name) is not None


def read(tree: Tree, consumer: str) -> Committed | None:
    """What is noted; None if no stream was begun. Raises OSError."""
    return max(_all(tree, consumer), default=None)


def begin(tree: Tree, consumer: str, stream: str, after: int) -> None:
    """Note durably that a stream's batches beyond ``after`` may be worked on, and no other's.

    The caller has the consumer's lock, also in `advance`. Raises OSError.
    """
    known = read(tree, consumer)
    if known is None or known.stream != stream:
        _replace(tree, consumer, known, Committed(stream, after))


def advance(tree: Tree, consumer: str, stream: str, number: int) -> None:
    """Note durably, before its messages are removed, that a batch is committed. Raises OSError."""
    known = read(tree, consumer)
    if known is not None and known.stream == stream and known.number < number:
        _replace(tree, consumer, known, Committed(stream, number))


def _all(tree: Tree, consumer: str) -> list[Committed]:
    names = filter(None, map(_name.fullmatch, tree.names(folder_of(tree, consumer))))
    return [Committed(name["stream"], int(name["number"])) for name in names]


def _replace(tree: Tree, consumer: str, known: Committed | None, now: Committed) -> None:
    target = _path(tree, consumer, now)
    if known is None or not tree.rename(_path(tree, consumer, known), target, replace=True):
        # A network filesystem may have renamed it, and answered ENOENT all the same.
        os.close(tree.create(target, os.O_WRONLY | os.O_CREAT))
    for other in _all(tree, consumer):  # a copy that was made during a rename can have both names
        if other != now:
            tree.unlink(_path(tree, consumer, other))
    tree.sync_folder(folder_of(tree, consumer))


def _path(tree: Tree, consumer: str, noted: Committed) -> str:
    return f"{folder_of(tree, consumer)}/{noted.stream}.{noted.number}.stream"
