"""Peers: a heartbeat file for each host with programs on a spool, and its share of the ids.

``peers/<node>`` is touched every few seconds. Ages are differences between two such times, both
given by the filesystem, so the clocks of hosts do not matter.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import NamedTuple

from ..errors import as_unavailable
from ..index.share import Share
from ..layout.transitions import PEERS
from ..layout.tree import Tree

BEAT_S = 5.0
DEAD_AFTER_S = 20.0
_MAX_ADDRESS_BYTES = 300
_ZONE = ".zone@"


class Host(NamedTuple):
    """A host that is alive, and the address of its mq (``host:port``; empty if unknown)."""

    name: str
    address: str


def host_name() -> str:
    """Return this host's name with what a file name cannot carry replaced by ``-``."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:180].lstrip(".") or "localhost"


def beat(tree: Tree, node: str, address: str = "") -> None:
    """Note that a node is alive, and the address of its mq. Raises OSError."""
    path = tree.folder(PEERS, node)
    fd = tree.create_with(path, os.O_RDWR | os.O_CREAT)
    try:
        line = address.encode() + b"\n"
        if os.pread(fd, _MAX_ADDRESS_BYTES, 0) != line:
            os.pwrite(fd, line, 0)
            os.ftruncate(fd, len(line))
        os.utime(fd)  # the time of the server, on a network filesystem
    finally:
        os.close(fd)


def leave(tree: Tree, node: str) -> None:
    """Remove the heartbeat of a node that stops. Raises OSError."""
    tree.unlink(tree.folder(PEERS, node))


def alive(tree: Tree, node: str) -> list[str]:
    """The names of the nodes alive, sorted; ``node`` has just beaten. Raises OSError."""
    own = tree.stat(tree.folder(PEERS, node))
    if own is None:
        return [node]
    names = {node}
    for name in tree.names(tree.folder(PEERS)):
        found = tree.stat(tree.folder(PEERS, name))
        if name[0] != "." and found and own.st_mtime - found.st_mtime < DEAD_AFTER_S:
            names.add(name)
    return sorted(names)


def hosts(tree: Tree, node: str) -> list[Host]:
    """The nodes alive, sorted by name. Raises OSError."""
    return [Host(name, _address(tree, name)) for name in alive(tree, node)]


def share(nodes: list[str], node: str, peers: int | None, process: int, processes: int) -> Share:
    """The share of one of ``processes`` on ``node``, when ``peers`` other nodes claim, too.

    peers: None means all that are alive.
    """
    count = len(nodes) if peers is None else peers + 1
    if count == 1 and processes == 1:
        return Share()
    rank = nodes.index(node) % count
    return Share(rank * processes + process, count * processes)


def _address(tree: Tree, node: str) -> str:
    try:
        fd = tree.open(tree.folder(PEERS, node))
    except OSError:
        return ""  # it has just left
    try:
        written = os.read(fd, _MAX_ADDRESS_BYTES)
    finally:
        os.close(fd)
    first = written.decode("utf-8", "replace").partition("\n")[0]
    return first if first.isprintable() else ""


def beat_zone(tree: Tree, zone: str) -> None:
    """Note that a zone of shards has a consumer, for some seconds. Raises Unavailable.

    Its file has a dot-name, so that it counts as no host that claims.
    """
    with as_unavailable(f"cannot note that the zone {zone!r} is alive"):
        fd = tree.create_with(tree.folder(PEERS, _ZONE + zone), os.O_RDWR | os.O_CREAT)
        try:
            os.utime(fd)
        finally:
            os.close(fd)


def zones(tree: Tree) -> list[str]:
    """The zones that have a consumer, and the nodes that are alive, sorted. Raises Unavailable.

    Their ages are reckoned from the youngest heartbeat, or from now if that is later: a clock of
    this host that is behind must not let them look dead, or alive.
    """
    beaten: dict[str, float] = {}
    with as_unavailable("cannot see which zones are alive"):
        for name in tree.names(tree.folder(PEERS)):
            found = tree.stat(tree.folder(PEERS, name))
            if found is not None and (name[0] != "." or name.startswith(_ZONE)):
                zone = name.removeprefix(_ZONE)
                beaten[zone] = max(beaten.get(zone, 0.0), found.st_mtime)
    now = max([time.time(), *beaten.values()])
    return sorted(zone for zone, at in beaten.items() if now - at < DEAD_AFTER_S)
