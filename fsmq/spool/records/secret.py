"""The secret of a spool: random bytes that all its hosts share, made when first needed."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, get_args

from ..errors import Unavailable, as_unavailable
from ..layout import documents
from ..layout.files import write_all
from ..layout.transitions import CONFIG
from ..layout.tree import Tree
from ..layout.uuids import uuid7

_BYTES = 32
# The secrets that exist.
Name: TypeAlias = Literal["ui"]


def is_secret(name: str) -> bool:
    """Whether a file of ``config/`` is a secret, by its name."""
    return name[:1] == "." and name[1:] in get_args(Name)


def shared_secret(tree: Tree, name: Name) -> bytes:
    """The 32 bytes in ``config/.<name>``, created if they are missing.

    Whoever can read them can sign what this spool's programs trust: the file is private.

    Raises:
        Unavailable
    """
    path = tree.folder(CONFIG, f".{name}")
    with as_unavailable("cannot read the secret of the spool"):
        if tree.look(path) is None:
            _make(tree, path)
        try:
            found = documents.read_bytes(tree, path, _BYTES)
        except ValueError as error:
            raise Unavailable(f"{path} {error}: remove it, and another is made") from None
    if len(found) != _BYTES:
        raise Unavailable(f"{path} has not {_BYTES} bytes: remove it, and another is made")
    return found


def _make(tree: Tree, path: str) -> None:
    draft = tree.folder(CONFIG, f".{uuid7()}.tmp")
    fd = tree.create(draft)
    try:
        write_all(fd, os.urandom(_BYTES))
        os.fsync(fd)
        tree.rename(draft, path)
    except FileExistsError:
        tree.unlink(draft)  # another program was quicker: its secret holds
    except BaseException:
        tree.unlink(draft)
        raise
    finally:
        os.close(fd)
    tree.sync_folder(tree.folder(CONFIG))
