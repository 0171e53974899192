"""Peers: a heartbeat file for each host with programs on a spool, and its share of the ids.

``peers/<node>`` is touched every few seconds. Ages are differences between two such times, both set
by the filesystem, so the clocks of hosts do not matter.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import NamedTuple

from fsmq._version import __version__

from ..errors import Unavailable, as_unavailable
from ..index.share import Share
from ..layout.filesystem import is_older
from ..layout.transitions import PEERS
from ..layout.tree import Tree

BEAT_S = 5.0
DEAD_AFTER_S = 20.0
_MAX_BYTES = 400
_ZONE = ".zone@"
_FORGOTTEN_S = 3600.0
# Every program looks at the file of each zone every few seconds.
MOST_ZONES = 1000
_ZONE_WAIT_S = 20


class Beat(NamedTuple):
    """The last beat of a node: its age relative to the youngest one, in seconds, and its content.

    clock: its time minus that of the filesystem, in seconds; None if it is missing.
    """

    node: str
    address: str
    age: float
    clock: float | None = None
    version: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.age < DEAD_AFTER_S


class Host(NamedTuple):
    """A host that is alive, and the address of its mq (``host:port``; empty if unknown)."""

    name: str
    address: str


def host_name() -> str:
    """This host's name, with characters that are invalid in a file name replaced by ``-``."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:180].lstrip(".") or "localhost"


def beat(tree: Tree, node: str, address: str = "") -> None:
    """Note that a node is alive, the address of its mq, and its time. Raises OSError."""
    path = tree.folder(PEERS, node)
    fd = tree.create(path, os.O_RDWR | os.O_CREAT)
    try:
        lines = f"{address}\n{round(time.time() * 1000)} {__version__}\n".encode()
        os.pwrite(fd, lines, 0)
        if os.fstat(fd).st_size != len(lines):
            os.ftruncate(fd, len(lines))
        os.utime(fd)  # by the server's clock, on a network filesystem
    finally:
        os.close(fd)


def beats(tree: Tree) -> list[Beat]:
    """The last beats of all nodes, dead ones included, sorted by name. Raises OSError."""
    found = []
    for name in tree.names(tree.folder(PEERS)):
        there = tree.stat(tree.folder(PEERS, name)) if name[0] != "." else None
        if there is not None:
            found.append((name, there.st_mtime, _lines_of(tree, name)))
    # Relative to the youngest: if this host's clock is off, others must not look dead.
    now = max([time.time(), *(at for _, at, _ in found)])
    return sorted(_beat(name, now - at, at, lines) for name, at, lines in found)


def _beat(node: str, age: float, at: float, lines: list[str]) -> Beat:
    moment, _, version = (lines[1] if len(lines) > 1 else "").partition(" ")
    is_known = moment.isascii() and moment.isdecimal() and len(moment) < 16
    clock = round(int(moment) / 1000 - at, 3) if is_known else None
    return Beat(node, lines[0], age, clock, version or None)


def leave(tree: Tree, node: str) -> None:
    """Remove the heartbeat of a node that stops. Raises OSError."""
    tree.unlink(tree.folder(PEERS, node))


def alive(tree: Tree, node: str) -> list[str]:
    """The names of the live nodes, sorted; ``node`` has just beaten. Raises OSError."""
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
    """The live nodes, sorted by name. Raises OSError."""
    return [Host(name, _address(tree, name)) for name in alive(tree, node)]


def share(nodes: list[str], node: str, peers: int | None, process: int, processes: int) -> Share:
    """The share of one of ``processes`` on ``node``, when ``peers`` other nodes claim, too.

    peers: None: all that are alive.
    """
    count = len(nodes) if peers is None else peers + 1
    if count == 1 and processes == 1:
        return Share()
    rank = nodes.index(node) % count
    return Share(rank * processes + process, count * processes)


def _address(tree: Tree, node: str) -> str:
    return _lines_of(tree, node)[0]


def _lines_of(tree: Tree, node: str) -> list[str]:
    """The lines of a node's file; at least an empty one."""
    try:
        fd = tree.open(tree.folder(PEERS, node))
    except OSError:
        return [""]  # it has just left
    try:
        written = os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)
    lines = written.decode("utf-8", "replace").split("\n")
    return [line if line.isprintable() else "" for line in lines]


def beat_zone(tree: Tree, zone: str) -> None:
    """Note that a zone of shards has a consumer; holds for some seconds.

    Its file has a dot-name, so that it does not count as a host. Raises Unavailable, also if
    `MOST_ZONES` others have one.
    """
    path = tree.folder(PEERS, _ZONE + zone)
    with as_unavailable(f"cannot note that the zone {zone!r} is alive"):
        if tree.stat(path) is None and _number_of_zones(tree) >= MOST_ZONES:
            forget_zones(tree, DEAD_AFTER_S)
            if _number_of_zones(tree) >= MOST_ZONES:
                raise Unavailable(f"{MOST_ZONES} zones have a consumer already", _ZONE_WAIT_S)
        fd = tree.create(path, os.O_RDWR | os.O_CREAT)
        try:
            os.utime(fd)
        finally:
            os.close(fd)


def _number_of_zones(tree: Tree) -> int:
    return sum(name.startswith(_ZONE) for name in tree.names(tree.folder(PEERS)))


def forget_zones(tree: Tree, after_s: float | None = None) -> None:
    """Forget zones without a consumer for some time, by default an hour: anybody can name one.

    Raises OSError.
    """
    after_s = _FORGOTTEN_S if after_s is None else after_s
    for name in tree.names(tree.folder(PEERS)):
        path = tree.folder(PEERS, name)
        found = tree.stat(path) if name.startswith(_ZONE) else None
        if found is not None and is_older(tree, found, after_s):
            tree.unlink(path)


def zones(tree: Tree) -> list[str]:
    """The zones that have a consumer, and the nodes that are alive, sorted. Raises Unavailable.

    Their ages are relative to the youngest heartbeat, or to now if that is later, so that they are
    right even if this host's clock is behind.
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
