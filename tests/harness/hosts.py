"""Several hosts on one machine: namespaces with their own network, host name and mounts.

A server routes between the others. Each host has its own mounts, so all of them can mount the same
folder at the same path. The namespaces have no names and end with the programs that hold them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.harness.suite import HOME

_NET = "10.77"
_UNSHARE = ("unshare", "--net", "--uts", "--mount", "--propagation=private")
_HOLD = "hostname {name} && ip link set lo up && echo held && exec cat"
_libc = ctypes.CDLL(None, use_errno=True)


class CannotBeHost(Exception):
    """This user cannot create namespaces; the text is the error."""


class Host:
    """A host, where programs run, and which can be cut off the network.

    name: its host name; None: the machine itself. address: its IP address.
    """

    def __init__(self, name: str | None, address: str) -> None:
        self.name = name or "localhost"
        self.address = address
        self.gate = ""  # the server's address on the link between them
        self._server: Host | None = None
        self._holder: subprocess.Popen[str] | None = None
        if name is not None:
            self._holder = _hold(name)

    @property
    def enter(self) -> list[str]:
        """The beginning of a command line that runs on this host."""
        if self._holder is None:
            return []
        return [
            "nsenter",
            f"--target={self._holder.pid}",
            "--net",
            "--uts",
            "--mount",
            f"--wd={HOME}",
        ]

    def run(self, *command: object) -> str:
        """Run a command that has to succeed; its output."""
        done = subprocess.run(
            [*self.enter, *map(str, command)], capture_output=True, text=True, errors="replace"
        )
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(
        self, *command: object, log: IO[Any], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in a new session."""
        return subprocess.Popen(
            [*self.enter, *map(str, command)],
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Create the sockets of this thread in the network of this host; they stay there."""
        if self._holder is None:
            yield
            return
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        there = os.open(f"/proc/{self._holder.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(here)
        finally:
            os.close(there)
            os.close(here)

    def connect(self, server: Host, number: int) -> None:
        """Connect the host with the server."""
        assert self._holder is not None
        self._server, self.gate = server, f"{_NET}.{number}.1"
        plug = self._plug
        server.run("ip", "link", "add", plug, "type", "veth", "peer", "name", f"{plug}-end")
        server.run("ip", "link", "set", f"{plug}-end", "netns", self._holder.pid, "name", "eth0")
        server.run("ip", "address", "add", f"{self.gate}/24", "dev", plug)
        server.run("ip", "link", "set", plug, "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", self.gate)

    @property
    def _plug(self) -> str:
        return f"to-{self.name}"

    def cut(self) -> None:
        """Cut the host off."""
        assert self._server is not None
        self._server.run("ip", "link", "set", self._plug, "down")

    def restore(self) -> None:
        """Connect the host again."""
        assert self._server is not None
        self._server.run("ip", "link", "set", self._plug, "up")

    def end(self) -> None:
        """Release its namespaces; programs that still run in them keep them."""
        if self._holder is not None:
            self._holder.send_signal(signal.SIGKILL)
            self._holder.communicate()


def _hold(name: str) -> subprocess.Popen[str]:
    """A program that holds new namespaces."""
    holder = subprocess.Popen(
        [*_UNSHARE, "sh", "-c", _HOLD.format(name=name)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != "held\n":
        _, error = holder.communicate()
        raise CannotBeHost(error.strip())
    return holder


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Hosts:
    """A server and other hosts, until the end of the ``with``. Raises CannotBeHost.

    folder: for a hosts file. server: its name; None: this machine.
    """

    def __init__(self, folder: Path, server: str | None, *others: str) -> None:
        self._all: list[Host] = []
        try:
            self.server = Host(server, f"{_NET}.1.1")
            self._all.append(self.server)
            self.server.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            for number, name in enumerate(others, 1):
                self._all.append(Host(name, f"{_NET}.{number}.2"))
                self._all[-1].connect(self.server, number)
            names = folder / "hosts"
            lines = ["127.0.0.1 localhost", *(f"{h.address} {h.name}" for h in self._all)]
            names.write_text("\n".join(lines) + "\n")
            for host in self._all if server is not None else self._all[1:]:
                host.run("mount", "--bind", names, "/etc/hosts")
        except BaseException:
            self.close()
            raise
        self.others = self._all[1:]

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts."""
        for host in reversed(self._all):
            host.end()
        self._all.clear()
