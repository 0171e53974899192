"""The daemons of one host."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from tests.power.programs import Programs


class Daemons:
    """The daemons of one host on a root.

    node, peers: options of mq.
    without: a sync to leave out, see `tests.power.syncs`. slow_s: the longest delay of a sync.
    """

    def __init__(
        self,
        programs: Programs,
        root: Path,
        *,
        sync: str,
        processes: int = 1,
        without: str = "",
        slow_s: float = 0.0,
        node: str = "here",
        peers: int = 0,
    ) -> None:
        self.root = root
        self.sync = sync
        self.node = node
        self.pids: dict[str, int] = {}
        self._peers = peers
        self._programs = programs
        self._processes = processes
        self.without = (str(root), without) if without else ()
        self._slow_s = slow_s
        self._port = 0
        self._holder: socket.socket | None = None
        if processes > 1:
            # Bound and not listening: it reserves the port for all processes, as mq's parent does.
            self._holder = socket.socket()
            self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._holder.bind(("127.0.0.1", 0))
            self._port = self._holder.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        for name in self.names:
            self.start_one(name)

    @property
    def names(self) -> list[str]:
        return [*(f"mq-{index}" for index in range(self._processes)), "mover", "reaper"]

    def start_one(self, name: str) -> None:
        """Start a daemon that is not running."""
        if name.startswith("mq-"):
            self._start_mq(name, int(name[3:]))
        else:
            self._start(name, name)

    def _start_mq(self, name: str, index: int) -> None:
        options = [f"--port={self._port}", f"--sync={self.sync}"]
        options += [f"--node={self.node}", f"--peers={self._peers}"]
        if self._processes > 1:
            options += [f"--processes={self._processes}", f"--process-index={index}"]
        self._start(name, "mq", *options)
        if not self._port:
            log = self._programs.log(f"{self.node}-{name}")
            # Not read as JSON: a killed mq may have left an incomplete line.
            self._port = int(re.findall(r'"listening":"[^"]*:(\d+)"', log)[-1])

    def _start(self, name: str, program: str, *options: str) -> None:
        argv = [f"--root={self.root}", *options]
        self.pids[name] = self._programs.daemon(
            f"{self.node}-{name}", program, argv, self.without, self._slow_s
        )

    def close(self) -> None:
        if self._holder is not None:
            self._holder.close()
