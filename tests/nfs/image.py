"""The virtual machine's disk: Debian with its kernel and NFS server, built from packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SUITE = "bookworm"
PACKAGES = (
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "systemd-sysv",
    "udev",
    "kmod",
    "dbus",
    "nfs-kernel-server",
    "nfs-common",
    "rpcbind",
    "iproute2",
    "nftables",
    "procps",
    "python3",
    "e2fsprogs",
)
PYTHON = "3.11"  # its version in that suite
_SIZE = "3G"
# These delay the boot, or are started by the program itself.
_MASKED = (
    "serial-getty@ttyS0.service",
    "getty@tty1.service",
    "nfs-server.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
)
_UNIT = """\
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'mkdir /job && mount /dev/vdb /job && sh /job/start'
ExecStopPost=/usr/sbin/poweroff -f
"""
_NEEDED = ("mmdebstrap", "mkfs.ext4", "qemu-system-x86_64")


class NoMachine(Exception):
    """No machine can be built here; the text says what to install."""


class Image:
    """Kernel, initial filesystem and disk of the machine, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self.kernel = folder / "kernel"
        self.initrd = folder / "initrd"
        self.disk = folder / "disk.img"
        self._folder = folder

    def make(self) -> None:
        """Build it if it does not exist, as root: a few minutes. Raises NoMachine."""
        missing = [program for program in _NEEDED if shutil.which(program) is None]
        if missing:
            raise NoMachine(
                f"{', '.join(missing)} missing: on Debian `apt-get install mmdebstrap"
                " qemu-system-x86 e2fsprogs`"
            )
        if self.disk.exists():
            return
        tree = self._folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        archive = self._folder / "tree.tar"
        _run("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, archive)
        _run("tar", "-x", "--exclude=./dev/*", "-C", tree, "-f", archive)
        archive.unlink()
        self._set_up(tree)
        [kernel], [initrd] = tree.glob("boot/vmlinuz*"), tree.glob("boot/initrd.img*")
        shutil.copy(kernel, self.kernel)
        shutil.copy(initrd, self.initrd)
        draft = self._folder / ".disk"
        _run("mkfs.ext4", "-q", "-F", "-d", tree, draft, _SIZE)
        shutil.rmtree(tree)
        draft.rename(self.disk)

    def _set_up(self, tree: Path) -> None:
        units = tree / "etc/systemd/system"
        (units / "job.service").write_text(_UNIT)
        wanted = units / "multi-user.target.wants"
        wanted.mkdir(exist_ok=True)
        (wanted / "job.service").symlink_to("../job.service")
        for unit in _MASKED:
            (units / unit).unlink(missing_ok=True)
            (units / unit).symlink_to("/dev/null")
        (tree / "etc/fstab").write_text("")
        (tree / "etc/hostname").write_text("server\n")


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL)
