"""A container for tests: the files of this machine under an overlay, booted by systemd.

All its namespaces are its own. Its network has only the loopback. Its files are written to memory
and are lost at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness import suite
from tests.harness.suite import HOME, PATIENCE_S

_SYSTEMD = Path("/lib/systemd/systemd")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Useless without devices and a network.
_MASKED = (
    "getty.target",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
)
# The first process of the namespaces; it becomes systemd.
_INIT = """
set -e
mount --make-rprivate /
cd "$1"
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sys sys
for folder in run tmp; do mount -t tmpfs tmpfs $folder; done
mount -t cgroup2 cgroup2 sys/fs/cgroup
hostname fsmq-test
ip link set lo up
mkdir -p mnt/old
pivot_root . mnt/old
umount -l mnt/old
exec env -i container=fsmq-test PATH="$PATH" /lib/systemd/systemd --log-target=journal </dev/null
"""
# Each check starts programs in the machine.
_CHECK_EVERY_S = 0.25


def eventually(holds: Callable[[], Any], patience: float = PATIENCE_S) -> Any:
    """Like `suite.eventually`, with longer pauses."""

    def checked() -> Any:
        answer = holds()
        if not answer:
            time.sleep(_CHECK_EVERY_S)
        return answer

    return suite.eventually(checked, patience)


class Machine:
    """A booted machine, see :func:`booted`."""

    def __init__(self, root: Path, pid: int) -> None:
        self.root = root
        self.pid = pid

    def command(self, command: Sequence[str], env: dict[str, str] | None = None) -> list[str]:
        """The command line that runs a command in the machine, as root."""
        variables = {"PATH": _PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"} | (env or {})
        inside = ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]
        return ["nsenter", f"--target={self.pid}", "--all", "--root", "--wd", *inside]

    def run(self, *command: str, env: dict[str, str] | None = None) -> str:
        """Run a command in the machine that has to succeed; its output."""
        done = self.attempt(*command, env=env)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self._journal()}"
        return done.stdout

    def attempt(
        self, *command: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine that may fail."""
        return subprocess.run(
            self.command(command, env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def is_active(self, unit: str) -> bool:
        return self.attempt("systemctl", "is-active", "--quiet", unit).returncode == 0

    def path(self, path: str) -> Path:
        """The path outside of a file on the machine's disk; not for its other mounts."""
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        """Write a file on the machine's disk."""
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def _journal(self) -> str:
        return self.attempt("journalctl", "--no-pager", "--lines=40", "--output=short").stdout


def skip_where_impossible() -> None:
    """Skip a test if no machine can be booted here."""
    if os.geteuid() != 0:
        pytest.skip("only root can boot a machine")
    if not _SYSTEMD.exists():
        pytest.skip("systemd is not installed (Debian: systemd)")
    for tool in ("unshare", "nsenter", "ip", "pivot_root", "curl", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (Debian: util-linux iproute2 curl make)")
    if _cgroup2() is None:
        pytest.skip("no cgroup2 is mounted, which systemd needs")


def system_python() -> str:
    """An interpreter that the units can run, binary-compatible with the one of this environment."""
    base = os.path.realpath(sys.base_prefix)
    if not base.startswith(("/root/", "/home/")):
        return os.path.realpath(sys.executable)
    version = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    if not os.access(version, os.X_OK):
        pytest.skip(f"Python is in {base}, which the units cannot read; no {version}")
    return version


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boot a machine with its disk in ``folder``, and remove it at the end, also after an error."""
    cgroup = _cgroup2()
    assert cgroup is not None
    cgroup /= f"fsmq-test-{os.getpid()}"
    with contextlib.ExitStack() as undo:
        root = _overlay(folder, undo)
        for enabled in (root / "etc/systemd/system").glob("*.wants"):
            shutil.rmtree(enabled)  # the services of this machine
        for unit in _MASKED:
            place = root / "etc/systemd/system" / unit
            place.unlink(missing_ok=True)
            place.symlink_to("/dev/null")
        (root / "etc/machine-id").write_text("")
        (root / "etc/fstab").write_text("")
        try:
            cgroup.mkdir()
        except OSError as error:  # read-only in some containers
            pytest.skip(f"cannot create a cgroup: {error}")
        undo.callback(_remove_cgroup, cgroup)
        outer = _start(root, cgroup, folder / "console")
        undo.callback(_end, outer)
        yield _when_up(Machine(root, _first_process(outer)), folder / "console")


def _overlay(folder: Path, undo: contextlib.ExitStack) -> Path:
    _mount(undo, "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(folder))
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    root = folder / "root"
    layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
    _mount(undo, "-t", "overlay", "-o", layers, "overlay", str(root))
    return root


def _mount(undo: contextlib.ExitStack, *arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    undo.callback(subprocess.run, ["umount", "-l", arguments[-1]], check=True)


def _start(root: Path, cgroup: Path, console: Path) -> subprocess.Popen[bytes]:
    """Start unshare in the cgroup that becomes the root cgroup of the machine."""
    namespaces = ["--pid", "--mount", "--uts", "--ipc", "--cgroup", "--net"]
    enter = f'echo $$ > "{cgroup}/cgroup.procs"; exec "$@"'
    unshare = ["unshare", "--fork", "--kill-child", *namespaces]
    with console.open("wb") as output:
        return subprocess.Popen(
            ["sh", "-c", enter, "sh", *unshare, "sh", "-c", _INIT, "sh", str(root)],
            env={"PATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _first_process(outer: subprocess.Popen[bytes]) -> int:
    def child() -> str:
        assert outer.poll() is None, "the machine ended while it booted"
        listed = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        return next((pid for pid in listed if _is_systemd(pid)), "")

    return int(eventually(child))


def _is_systemd(pid: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/exe") == str(_SYSTEMD.resolve())
    except OSError:
        return False


def _when_up(machine: Machine, console: Path) -> Machine:
    def state() -> bool:
        done = machine.attempt("systemctl", "is-system-running")
        # "degraded": some unit of this machine cannot run in the container.
        return done.stdout.strip() in ("running", "degraded")

    try:
        eventually(state)
    except AssertionError:
        pytest.fail(f"systemd does not come up: {console.read_text()[-2000:]}")
    return machine


def _end(outer: subprocess.Popen[bytes]) -> None:
    # --kill-child: the first process dies, too, and the kernel kills all others of its namespace.
    os.kill(outer.pid, signal.SIGKILL)
    outer.wait()


def _cgroup2() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


def _remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup and all below it, once the kernel has removed their processes."""

    def is_removed() -> bool:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not cgroup.exists()

    eventually(is_removed)


def copy_clone(place: Path) -> None:
    """Copy the files of a clone of this project."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=HOME,
        capture_output=True,
        check=True,
    ).stdout
    for name in listed.decode().split("\0"):
        if name and (HOME / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HOME / name, place / name, follow_symlinks=False)
