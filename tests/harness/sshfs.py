"""Mounts a folder of the server over sshfs on hosts of `tests.harness.hosts`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.harness.hosts import CannotBeHost, Host
from tests.harness.suite import eventually

_PORT = 22022
_SSHD = "/usr/sbin/sshd"
_NO_QUESTIONS = "StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR"
# On a host that is cut off for some seconds, calls fail, and sshfs reconnects later.
_CUT_OFF = "reconnect,ServerAliveInterval=1,ServerAliveCountMax=3"
# Without caches: changes of other hosts are visible at once.
FRESH = "dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0"


class Sshfs:
    """An SSH server on a host, until the end of the ``with``.

    place: a folder for its keys. Raises CannotBeHost if the programs are missing.
    """

    def __init__(self, server: Host, place: Path) -> None:
        if not os.path.exists(_SSHD):
            raise CannotBeHost("on Debian: apt-get install openssh-server sshfs")
        self._place = place
        self._mounts: list[tuple[Host, Path]] = []
        for key in ("host", "user"):
            make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key)
            subprocess.run(list(map(str, make)), check=True)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        allowed = place / "user.pub"
        options = [f"HostKey={place}/host", f"AuthorizedKeysFile={allowed}", "PidFile=none"]
        options += ["StrictModes=no", "PasswordAuthentication=no", "UsePAM=no"]
        options += ["PermitRootLogin=yes", "Subsystem=sftp internal-sftp"]
        words = (f"-o{option}" for option in options)
        self._log = (place / "sshd.log").open("wb")
        self._sshd = server.start(
            _SSHD, "-D", "-e", "-f/dev/null", f"-p{_PORT}", *words, log=self._log
        )
        eventually(lambda: b"listening" in (place / "sshd.log").read_bytes())

    def __enter__(self) -> Sshfs:
        return self

    def __exit__(self, *exception: object) -> None:
        for host, at in self._mounts:
            host.run("umount", "-l", at)  # else its program would outlive the host
        self._sshd.kill()
        self._sshd.wait()
        self._log.close()

    def mount(self, host: Host, folder: Path, at: Path, more: str = FRESH) -> None:
        """Mount a folder of the server at a path of a host."""
        host.run(
            "sshfs",
            f"-p{_PORT}",
            f"root@{host.gate}:{folder}",
            at,
            "-o",
            f"IdentityFile={self._place}/user,{_NO_QUESTIONS},{_CUT_OFF},{more}",
        )
        self._mounts.append((host, at))
