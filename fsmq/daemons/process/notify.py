"""The readiness protocol of systemd: both ends of it, and sockets that it passes on.

A program reports its state to the process that started it (`Notifier`); a supervisor listens
(`Listener`). A datagram has lines ``NAME=value``; the socket is named by ``NOTIFY_SOCKET``. Without
that variable nothing is sent, and nothing here raises if there is no listener.
"""

import os
import re
import socket
import struct
import time
from collections.abc import MutableMapping

_FIRST_FD = 3
_SEND_SECONDS = 1.0  # how long a listener that does not read can block us
_DATAGRAM_BYTES = 4096
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Notifier:
    """Reports the state of this process to the service manager, or to our own supervisor."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Take the socket and the watchdog from an environment (default: this process's)."""
        environ = os.environ if environ is None else environ
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._interval = _watchdog_interval(environ)

    @property
    def watchdog_interval(self) -> float | None:
        """Seconds between two pings: half of the watchdog's timeout; None if there is none."""
        return self._interval

    def ready(self, status: str = "") -> bool:
        """Say that the start, or a reload, is complete."""
        return self._send("READY=1", status)

    def reloading(self) -> bool:
        """Say that the configuration is being read again; `ready` ends it."""
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._send(f"RELOADING=1\nMONOTONIC_USEC={moment}", "")

    def stopping(self, status: str = "") -> bool:
        """Say that the process has begun to stop."""
        return self._send("STOPPING=1", status)

    def status(self, status: str) -> bool:
        """Report a status in words."""
        return self._send("", status)

    def ping(self) -> bool:
        """Say that the process is alive; due each `watchdog_interval` seconds."""
        return self._send("WATCHDOG=1", "")

    def _send(self, message: str, status: str) -> bool:
        """Send one datagram; return whether it went out."""
        if self._address is None:
            return False
        # A line end in the status would start another field.
        line = "STATUS=" + re.sub(r"[\x00-\x1f\x7f]+", " ", status) if status else ""
        datagram = "\n".join(part for part in (message, line) if part)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_SECONDS)
                sender.sendto(datagram.encode("utf-8", "replace"), self._address)
        except (OSError, ValueError):  # the socket is gone, or its name is too long
            return False
        return True


class Listener:
    """The other end: a socket for one child, and the state that the child has reported."""

    def __init__(self) -> None:
        """Make the socket; raises ``OSError`` if the system has none left."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # the system chooses an abstract name, so that no file is left over
        self.address: str = "@" + self._socket.getsockname()[1:].decode("ascii")
        self.is_ready = False
        self.status = ""
        self.heard_at = time.monotonic()
        """When the child last reported that it is well, or the socket was made."""

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def receive(self) -> None:
        """Read all that has arrived; this sets ``is_ready``, ``status`` and ``heard_at``."""
        while True:
            try:
                data, extra, _, _ = self._socket.recvmsg(
                    _DATAGRAM_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except OSError:  # nothing more
                return
            if _is_trusted(extra):
                self._take(data.decode("utf-8", "replace"))

    def _take(self, datagram: str) -> None:
        for line in datagram.split("\n"):
            match line.partition("="):
                case "READY", _, "1":
                    self.is_ready = True
                    self.heard_at = time.monotonic()
                case "STATUS", _, status:
                    self.status = status
                case "WATCHDOG", _, "1":
                    self.heard_at = time.monotonic()


def listen_fds(environ: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """Return the listening sockets that the service manager passed to this process.

    The variables that announce them are removed, so that no child uses the sockets. The list is
    empty if there are none, or if they are meant for another process.
    """
    environ = os.environ if environ is None else environ
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = []
    for number in range(_FIRST_FD, _FIRST_FD + int(count)):
        try:
            taken = socket.socket(fileno=number)
        except OSError:  # not open, or not a socket
            continue
        taken.set_inheritable(False)
        sockets.append(taken)
    return sockets


def _address(name: str) -> str | None:
    if name.startswith("@"):
        return "\0" + name[1:]  # a name without a file
    return name if name.startswith("/") else None


def _watchdog_interval(environ: MutableMapping[str, str]) -> float | None:
    micros, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not micros.isdecimal() or int(micros) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(micros) / 2_000_000


def _is_trusted(extra: list[tuple[int, int, bytes]]) -> bool:
    """Return whether a datagram is from our own user or root: anyone can send to the socket."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            _, user, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return user in (0, os.geteuid())
    return False
