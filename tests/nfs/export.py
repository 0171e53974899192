"""The kernel's NFS server in the machine, the mounts of its clients, and what goes wrong between.

A *lost answer* is the worst that NFS does: the server has renamed a file, its answer does not
arrive, it is started again and has forgotten what it did; the client asks once more and is told
that there is no such file.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.hosts import Host

_PORT = 2049
_THREADS = Path("/proc/fs/nfsd/threads")
_LEASES = Path("/proc/sys/fs/leases-enable")
_GRACE_S = 10  # in which clients reclaim their locks after a start, and nobody gets new ones
_CUT = """\
table ip cut {{
  chain out {{
    type filter hook output priority 0;
    ip daddr {address} tcp sport {port} tcp flags & psh == psh drop
  }}
}}
"""


class Export:
    """One folder of this machine, exported to all hosts around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> None:
        """Start the server."""
        _run("modprobe", "nfsd")
        _run("modprobe", "nfs")
        self.folder.mkdir()
        options = "rw,sync,no_root_squash,no_subtree_check,fsid=0"
        Path("/etc/exports").write_text(f"{self.folder} 10.0.0.0/8({options})\n")
        if not _THREADS.exists():
            _run("mount", "-t", "nfsd", "nfsd", _THREADS.parent)
        _run("mkdir", "-p", "/run/sendsigs.omit.d", "/var/lib/nfs/nfsdcld")
        subprocess.run(["rpcbind", "-w"])  # it may run already
        subprocess.run(["nfsdcld"])
        _run("rpc.statd", "--no-notify")
        _run("exportfs", "-ra")
        _run("rpc.nfsd", "-H", "0.0.0.0", "-G", _GRACE_S, "-L", _GRACE_S, "8")
        _run("rpc.mountd")

    def restart(self) -> None:
        """Stop the server and start it again: it forgets what it has answered."""
        _THREADS.write_text("0\n")
        _THREADS.write_text("8\n")

    def delegate(self, gives: bool) -> None:
        """Whether it lets a host that opens a file answer for it, until another asks for it."""
        _LEASES.write_text(f"{gives:d}\n")

    @contextmanager
    def losing_answers(self, host: Host) -> Iterator[None]:
        """No answer reaches a host; at the end its connections are gone, too."""
        text = _CUT.format(address=host.address, port=_PORT)
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)
        try:
            yield
            subprocess.run(["ss", "-K", "sport", "=", f":{_PORT}"], capture_output=True)
        finally:
            _run("nft", "delete", "table", "ip", "cut")

    def mount(self, host: Host, at: Path, options: str) -> None:
        """Mount it on a host, as an operator would. options: of mount, with the version."""
        # Two clients of one name would be one to the server.
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
        """Version 3 has its locks from programs that run on each host."""
        host.run("mount", "-t", "tmpfs", "tmpfs", "/run")
        host.run("sh", "-c", "mkdir -p /run/rpcbind /run/sendsigs.omit.d && rpcbind -w")
        host.run("rpc.statd", "--no-notify")


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)
