"""Boots the machine to run a module of the tests in it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.harness.suite import HOME
from tests.nfs.image import PYTHON, Image

_STATUS = "status of the guest: "
# An emulated processor is ten times as slow.
_PATIENCE_S = 300
_MEMORY_MB = 3000
_START = """\
cd /job/home
PYTHONPATH=/job/packages:. TEST_PATIENCE_S={patience} python3 -u -m {command}
echo "{status}$?"
"""
_QEMU = (
    "qemu-system-x86_64",
    "-nographic",
    "-no-reboot",
    "-nic",
    "none",
    # Emulated, because hardware virtualization does not work everywhere.
    "-accel",
    "tcg",
    "-cpu",
    "max",
    "-smp",
    "2",
)
_KERNEL = "root=/dev/vda rw console=ttyS0 quiet loglevel=1 panic=1 systemd.show_status=0"


def run(image: Image, folder: Path, module: str, *arguments: object) -> Iterator[str]:
    """Run a module in the machine; the lines that it prints. The disks are not changed.

    folder: an empty one, for the disk with the programs. Raises RuntimeError if the module fails.
    """
    command = [*_QEMU, "-m", _MEMORY_MB, "-append", _KERNEL]
    command += ["-kernel", image.kernel, "-initrd", image.initrd]
    for disk in (image.disk, _disk_with_programs(folder, [module, *map(str, arguments)])):
        command += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe,snapshot=on"]
    machine = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert machine.stdout is not None
    status = ""
    try:
        for line in machine.stdout:
            before, is_status, after = line.rstrip().partition(_STATUS)
            if is_status:
                status = after
            elif before:
                yield before
    finally:
        machine.kill()
        machine.wait()
        machine.stdout.close()
    if status != "0":
        raise RuntimeError(f"{module} in the machine ended with {status or 'no status'}")


def _disk_with_programs(folder: Path, command: Sequence[str]) -> Path:
    """A disk with this project, its packages, and the command to run."""
    tree = folder / "programs"
    (tree / "home").mkdir(parents=True)
    for part in ("fsmq", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(HOME / part, tree / "home" / part, ignore=ignored)
    _install(tree / "packages")
    text = _START.format(patience=_PATIENCE_S, command=shlex.join(command), status=_STATUS)
    (tree / "start").write_text(text)
    disk = folder / "programs.img"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", tree, disk, "1G"], check=True)
    return disk


def _install(folder: Path) -> None:
    """Install the dependencies of fsmq into a folder, for the machine's Python."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {*project["dependencies"], *extras["server"], *extras["client"]}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = [f"--target={folder}", f"--python-version={PYTHON}", "--only-binary=:all:"]
    subprocess.run([*pip, *options, *sorted(needed)], check=True)
