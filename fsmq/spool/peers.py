"""Peers: a heartbeat file for each host that serves a spool, and the share that follows from it.

``peers/<node>`` is touched every few seconds. Ages are differences between two such times, both
given by the filesystem, so the clocks of hosts do not matter.
"""

from __future__ import annotations

import os

from .share import Share
from .tree import PEERS, Tree

BEAT_S = 5.0
DEAD_AFTER_S = 20.0


def beat(tree: Tree, node: str) -> None:
    """Say that a node is alive. Raises OSError."""
    path = tree.folder(PEERS, node)
    fd = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=tree.fd
    )
    try:
        os.utime(fd)  # the time of the server, on a network filesystem
    finally:
        os.close(fd)


def leave(tree: Tree, node: str) -> None:
    """Say that a node stops. Raises OSError."""
    tree.unlink(tree.folder(PEERS, node))


def alive(tree: Tree, node: str) -> list[str]:
    """The names of the nodes that live, sorted; ``node`` has just beaten. Raises OSError."""
    own = tree.stat(tree.folder(PEERS, node))
    if own is None:
        return [node]
    names = {node}
    for name in tree.names(tree.folder(PEERS)):
        found = tree.stat(tree.folder(PEERS, name))
        if name[0] != "." and found and own.st_mtime - found.st_mtime < DEAD_AFTER_S:
            names.add(name)
    return sorted(names)


def share(nodes: list[str], node: str, peers: int, process: int, processes: int) -> Share:
    """What one of ``processes`` on ``node`` prefers when ``peers`` other nodes fetch as well."""
    if peers == 0 and processes == 1:
        return Share()
    rank = nodes.index(node) % (peers + 1)
    return Share(rank * processes + process, (peers + 1) * processes)
