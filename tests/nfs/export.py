"""The kernel's NFS server in the machine, the mounts of its clients, and faults between them.

The worst fault of NFS is a *lost answer*: the server renames a file, its answer is lost, and it
restarts without its cache of answers. The client repeats the request and gets the error that the
file does not exist.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.harness.hosts import Host, Hosts
from tests.power.kills import HOSTS

_EXPORTED = Path("/srv/export")
_PORT = 2049
_THREADS = Path("/proc/fs/nfsd/threads")
_LEASES = Path("/proc/sys/fs/leases-enable")
_GRACE_S = 10  # after a start clients can only reclaim their locks, not get new ones
_CUT = """\
table ip cut {{
  chain out {{
    type filter hook output priority 0;
    ip daddr {address} tcp sport {port} tcp flags & psh == psh drop
  }}
}}
"""


class Export:
    """A folder of this machine, exported to all hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        _run("modprobe", "nfsd")
        _run("modprobe", "nfs")
        self.folder.mkdir()
        options = "rw,sync,no_root_squash,no_subtree_check,fsid=0"
        Path("/etc/exports").write_text(f"{self.folder} 10.0.0.0/8({options})\n")
        if not _THREADS.exists():
            _run("mount", "-t", "nfsd", "nfsd", _THREADS.parent)
        _run("mkdir", "-p", "/run/sendsigs.omit.d", "/var/lib/nfs/nfsdcld")
        subprocess.run(["rpcbind", "-w"])  # fails if it already runs
        subprocess.run(["nfsdcld"])
        _run("rpc.statd", "--no-notify")
        _run("exportfs", "-ra")
        _run("rpc.nfsd", "-H", "0.0.0.0", "-G", _GRACE_S, "-L", _GRACE_S, "8")
        _run("rpc.mountd")

    def restart(self) -> None:
        """Restart the server, which loses its cache of answers."""
        _THREADS.write_text("0\n")
        _THREADS.write_text("8\n")

    def set_delegations(self, enabled: bool) -> None:
        """With delegations a client answers from its cache until another host opens the file."""
        _LEASES.write_text(f"{enabled:d}\n")

    @contextmanager
    def losing_answers(self, host: Host) -> Iterator[None]:
        """Drop all answers to a host, and its connections at the end."""
        text = _CUT.format(address=host.address, port=_PORT)
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
        try:
            yield
            subprocess.run(["ss", "-K", "sport", "=", f":{_PORT}"], capture_output=True)
        finally:
            _run("nft", "delete", "table", "ip", "cut")

    def mount(self, host: Host, at: Path, options: str) -> None:
        """Mount it on a host. options: of mount, with the version."""
        # To the server, two clients with the same name are one client.
        host.run("mount", "-t", "sysfs", "sysfs", "/sys")
        identifier = "/sys/fs/nfs/net/nfs_client/identifier"
        host.run("sh", "-c", f"! [ -e {identifier} ] || echo {host.name} > {identifier}")
        source = f"{host.gate}:/"
        if "vers=3" in options:
            self._prepare_locks(host)
            source = f"{host.gate}:{self.folder}"
        host.run("mkdir", "-p", at)
        end = time.monotonic() + 60
        while True:
            try:
                host.run("mount", "-t", "nfs", "-o", options, source, at)
                return
            except AssertionError:
                if time.monotonic() >= end:
                    raise

    def _prepare_locks(self, host: Host) -> None:
        """Start the programs that implement locks for version 3."""
        host.run("mount", "-t", "tmpfs", "tmpfs", "/run")
        host.run("sh", "-c", "mkdir -p /run/rpcbind /run/sendsigs.omit.d && rpcbind -w")
        host.run("rpc.statd", "--no-notify")


class Mounted(NamedTuple):
    """An export and two hosts that have mounted it at ``root``. folder: for other files."""

    export: Export
    hosts: list[Host]
    folder: Path
    root: Path


@contextmanager
def mounted(options: str) -> Iterator[Mounted]:
    """Start the server and mount its export on two hosts."""
    export = Export(_EXPORTED)
    export.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = folder / "mq"
        root.mkdir()
        with Hosts(folder, None, *HOSTS) as hosts:
            for host in hosts.others:
                export.mount(host, root, options)
            yield Mounted(export, hosts.others, folder, root)


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)
