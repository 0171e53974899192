"""The probe: its findings on good and bad filesystems. It leaves no file behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fsmq.spool import Spool, UnusableSpool
from fsmq.spool.fsck import check
from fsmq.spool.layout.tree import Tree
from fsmq.spool.probe import Finding, Level, fatal, probe
from tests.harness.busy import busy
from tests.harness.mounts import Mount
from tests.harness.suite import HOME

NAMES = [
    "folders",
    "access",
    "one filesystem",
    "space",
    "inodes",
    "filesystem",
    "rename",
    "rename without overwrite",
    "fsync of files",
    "fsync of folders",
    "sync",
    "times",
    "ctime",
    "clock",
    "attributes",
    "events",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Spool(tmp_path / "mq", sync="none", delivers=False).close()
    return tmp_path / "mq"


def files(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def levels(findings: list[Finding], but: tuple[str, ...] = ()) -> dict[str, Level]:
    """The findings that are not ok. ``but``: names that depend on the machine of the test."""
    return {f.name: f.level for f in findings if f.level is not Level.OK and f.name not in but}


def text(findings: list[Finding], name: str) -> str:
    [found] = [f.text for f in findings if f.name == name]
    return found


ROOM = ("space", "inodes", "filesystem")


def test_a_local_disk_is_usable(root: Path) -> None:
    before = files(root)
    findings = probe(root)
    assert [f.name for f in findings] == NAMES
    assert levels(findings, but=ROOM) == {}
    assert all("\n" not in f.text for f in findings)
    assert fatal(findings) is None
    assert files(root) == before


def test_an_opened_tree_stays_open(root: Path) -> None:
    tree = Tree(root)
    probe(tree)
    assert tree.queues() == []
    tree.close()


def test_a_probe_does_not_disturb_a_spool_in_use(root: Path) -> None:
    with busy(root, 2):
        for _ in range(15):
            findings = probe(root)
            assert levels(findings, but=ROOM) == {}
    assert check(root, offline=True).findings == []
    assert list(root.rglob(".probe-*")) == []


def test_a_root_that_is_open_to_others_is_a_warning(root: Path) -> None:
    root.chmod(0o750)
    findings = probe(root)
    assert levels(findings, but=ROOM) == {"access": Level.WARNING}
    assert "0750" in text(findings, "access")


@pytest.mark.parametrize("folder", ["new", "queues", "delay", "remove", "config", "peers"])
def test_a_missing_folder_is_fatal(root: Path, folder: str) -> None:
    (root / folder).rmdir()
    before = files(root)
    findings = probe(root)
    assert levels(findings)["folders"] is Level.FATAL
    assert f"{folder} is missing" in (fatal(findings) or "")
    assert files(root) == before


def test_a_missing_root_is_an_error_unless_it_is_to_be_created(tmp_path: Path) -> None:
    with pytest.raises(UnusableSpool):
        probe(tmp_path / "mq")
    assert fatal(probe(tmp_path / "mq", create=True)) is None
    assert os.listdir(tmp_path) == []


def test_the_probe_removes_what_it_creates(tmp_path: Path) -> None:
    deep, empty, part = (tmp_path / name for name in ("a/b/mq", "empty", "part"))
    empty.mkdir()
    (part / "queues" / "jobs").mkdir(parents=True)
    before = files(tmp_path)
    for place in (deep, empty, part):
        assert fatal(probe(place, create=True)) is None
        assert files(tmp_path) == before
    (tmp_path / "a").write_bytes(b"in the way")
    with pytest.raises(UnusableSpool):
        probe(deep, create=True)
    (empty / "queues").write_bytes(b"in the way")
    with pytest.raises(UnusableSpool):
        probe(empty, create=True)
    assert os.listdir(empty) == ["queues"]


def test_the_probe_removes_nothing_of_a_spool_that_is_created_meanwhile(tmp_path: Path) -> None:
    def clock() -> float:
        Spool(tmp_path / "mq", sync="none").queue("jobs").create()
        return time.time()

    probe(tmp_path / "mq", create=True, clock=clock)
    assert (tmp_path / "mq" / "queues" / "jobs").is_dir()
    assert (tmp_path / "mq" / "peers").is_dir()


@pytest.mark.parametrize(("folder", "is_bind"), [("delay", False), ("queues", True)])
def test_a_folder_on_another_mount_is_fatal(
    root: Path, tmp_path: Path, mount: Mount, folder: str, is_bind: bool
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    mount(root / folder, bind=tmp_path / "elsewhere" if is_bind else None)
    findings = probe(root)
    assert levels(findings)["one filesystem"] is Level.FATAL
    assert levels(findings)["rename"] is Level.FATAL
    assert "mount the whole root" in (fatal(findings) or "")
    assert list(root.rglob(".probe-*")) == []


def test_a_read_only_filesystem_is_fatal(root: Path, mount: Mount) -> None:
    mount(root)
    Spool(root, sync="none").close()
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    findings = probe(root)
    assert levels(findings)["folders"] is Level.FATAL
    assert "read-only" in (fatal(findings) or "")


def test_a_small_or_full_filesystem_is_a_warning(root: Path, mount: Mount) -> None:
    mount(root, "size=4m,nr_inodes=1000")
    Spool(root, sync="none").close()
    findings = probe(root)
    assert levels(findings) == dict.fromkeys(ROOM, Level.WARNING)
    assert "4.0 MiB" in text(findings, "space")
    assert "forgets" in text(findings, "filesystem")

    with pytest.raises(OSError, match="No space"):
        (root / "ballast").write_bytes(b"\0" * 5_000_000)
    findings = probe(root)
    assert levels(findings)["space"] is Level.WARNING
    assert "nothing can be stored" in text(findings, "space")
    assert fatal(findings) is None

    (root / "ballast").unlink()
    for number in range(os.statvfs(root).f_favail):
        (root / f"ballast-{number}").touch()
    findings = probe(root)
    assert levels(findings)["inodes"] is Level.WARNING
    assert fatal(findings) is None


@pytest.mark.parametrize("journal", [True, False])
def test_ext4_without_a_journal_is_a_warning(tmp_path: Path, journal: bool) -> None:
    image, place = tmp_path / "image", tmp_path / "mounted"
    place.mkdir(mode=0o700)
    image.touch()
    os.truncate(image, 32 * 1024 * 1024)
    feature = "has_journal" if journal else "^has_journal"
    try:
        subprocess.run(["mkfs.ext4", "-q", "-O", feature, image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop-mounted ext4 here: {error}")
    try:
        Spool(place / "mq", sync="none").close()
        findings = probe(place / "mq")
        assert ("filesystem" in levels(findings)) is not journal
        assert ("journal" in text(findings, "filesystem")) is not journal
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_wrong_clock_is_a_warning(root: Path) -> None:
    assert "clock" not in levels(probe(root, clock=lambda: time.time() - 0.5))
    for off in (-500.0, 500.0):
        began = time.monotonic()
        findings = probe(root, clock=lambda off=off: time.time() + off)
        took = time.monotonic() - began
        assert levels(findings)["clock"] is Level.WARNING
        found = re.search(r"differ by ([0-9.]+) s", text(findings, "clock"))
        assert found is not None
        assert 500 - took - 0.1 <= float(found[1]) <= 500


def run_probe(root: Path, *options: str, tracer: tuple[str, ...] = ()) -> CompletedProcess[str]:
    command = [*tracer, sys.executable, "-m", "fsmq.cli", "probe", "--root", str(root), *options]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True)


def probe_with_fault(fault: str, root: Path) -> list[Finding]:
    """The findings of a probe with a faulty system call, which a tracer answers."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    trace = f"trace={fault.partition(':')[0]}"
    tracer = (strace, "-f", "-qq", "-o", os.devnull, "-e", trace, f"--inject={fault}")
    done = run_probe(root, "--json", tracer=tracer)
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip(f"cannot trace here: {done.stderr.strip()}")
    assert done.returncode in (0, 78), done.stderr
    report = json.loads(done.stdout)
    assert report["usable"] is (done.returncode == 0)
    assert list(root.rglob(".probe-*")) == []
    return [Finding(f["name"], Level(f["level"]), f["text"]) for f in report["findings"]]


FAULTS = {
    "no RENAME_NOREPLACE": (
        "renameat2:error=EINVAL",
        "rename without overwrite",
        Level.WARNING,
        "emulated",
    ),
    "no fsync of files": ("fsync:error=EIO:when=1", "fsync of files", Level.FATAL, "I/O error"),
    "no fsync of folders": ("fsync:error=EINVAL:when=2", "fsync of folders", Level.WARNING, ""),
    "no syncfs": ("syncfs:error=EIO", "sync", Level.FATAL, "I/O error"),
    "times that cannot be set": ("utimensat:retval=0", "times", Level.WARNING, "stamps: none"),
    "no inotify": (
        "inotify_init1:error=EMFILE",
        "events",
        Level.WARNING,
        "max_user_instances",
    ),
    "no watches": ("inotify_add_watch:error=ENOSPC", "events", Level.WARNING, "max_user_watches"),
    "watches without events": (
        "inotify_add_watch:retval=1",
        "events",
        Level.WARNING,
        "no event within 1 s",
    ),
}


@pytest.mark.parametrize(("fault", "name", "level", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found_and_no_file_is_left(
    root: Path, fault: str, name: str, level: Level, says: str
) -> None:
    findings = probe_with_fault(fault, root)
    assert levels(findings, but=ROOM) == {name: level}
    assert says in text(findings, name)
    assert (fatal(findings) is not None) is (level is Level.FATAL)


def test_a_rename_that_overwrites_is_fatal(root: Path) -> None:
    # The tracer reports success for a rename that did not happen.
    findings = probe_with_fault("renameat2:retval=0", root)
    assert levels(findings)["rename"] is Level.FATAL
    assert levels(findings)["rename without overwrite"] is Level.FATAL
    assert levels(findings)["ctime"] is Level.WARNING


def test_the_command_prints_one_line_for_each_finding(tmp_path: Path) -> None:
    done = run_probe(tmp_path / "mq")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(NAMES)
    assert "ok       rename: a file keeps its identity from folder to folder\n" in done.stdout


def test_the_command_has_an_exit_code_for_fatal_findings(tmp_path: Path) -> None:
    (tmp_path / "mq").write_bytes(b"in the way")
    done = run_probe(tmp_path / "mq")
    assert (done.returncode, done.stdout) == (78, "")
    assert "cannot open the root" in done.stderr
