"""fsck finds and repairs every kind of fault, and reports none on a spool in use."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.spool import NewMessage, QueueSettings, Spool, UnusableSpool
from fsmq.spool.durability.settings_lock import settings_held
from fsmq.spool.fsck import Kind, Progress, Report, Severity, check
from fsmq.spool.fsck.check import MAX_LISTED
from fsmq.spool.fsck.messages import Inspection, MessageRules
from fsmq.spool.layout.names import new_id
from fsmq.spool.layout.stamps import Stamps
from tests.harness.busy import busy
from tests.harness.mounts import Mount
from tests.harness.suite import HOME


def later() -> float:
    """Two minutes from now, when no writer can still use a leftover of a crash."""
    return time.time() + 120


def look(root: Path, *, repair: bool = False, **more: bool) -> Report:
    return check(root, repair=repair, pause=0.01, clock=later, **more)


def write(path: Path, content: bytes = b"hello") -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the queue jobs."""
    with Spool(tmp_path / "mq", sync="none", delivers=False) as spool:
        spool.queue("jobs", create=True)
    return tmp_path / "mq"


def link(source: str, target: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        write(root / source)
        os.link(root / source, root / target)

    return make


def file(path: str, content: bytes = b"hello") -> Callable[[Path], object]:
    return lambda root: write(root / path, content)


def settings(queue: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / "config" / f"{queue}.json").write_text(text)


def far_timer(root: Path, message_id: str = "a") -> None:
    path = write(root / "delay" / f"jobs:{message_id}")
    stamp = Stamps().encode(message_id, int((time.time() + 400 * 86_400) * 1000), 3)
    os.utime(path, ns=(stamp, stamp))


PROBE = ".probe-019aa000-0000-7000-8000-000000000000"
DRAFT = "config/.019aa000-0000-7000-8000-000000000000.tmp"


def scratch_folder(root: Path) -> None:
    (root / "config" / PROBE).mkdir()
    write(root / "config" / PROBE / "one")


class Case(NamedTuple):
    """A fault, its finding, and the paths that exist or do not exist after the repair."""

    make: Callable[[Path], object]
    kind: Kind
    path: str
    severity: Severity = Severity.ERROR
    has: tuple[str, ...] = ()
    has_not: tuple[str, ...] = ()


REPAIRED = {
    "a complete dot-name": Case(
        file("new/.jobs:a:3610a686"), Kind.COMPLETE, "new/.jobs:a:3610a686", has=("new/jobs:a",)
    ),
    "a complete empty message": Case(
        file("new/.jobs:a:00000000", b""),
        Kind.COMPLETE,
        "new/.jobs:a:00000000",
        has=("new/jobs:a",),
    ),
    "a torn dot-name": Case(
        file("new/.jobs:a:c459294f"),
        Kind.TORN,
        "new/.jobs:a:c459294f",
        Severity.WARNING,
        has_not=("new/.jobs:a:c459294f", "new/jobs:a"),
    ),
    "a stale reservation": Case(
        file("new/.jobs:a:own", b""),
        Kind.RESERVATION,
        "new/.jobs:a:own",
        Severity.WARNING,
        has_not=("new/.jobs:a:own",),
    ),
    "a draft of settings": Case(
        file(DRAFT), Kind.LEFTOVER, DRAFT, Severity.WARNING, has_not=(DRAFT,)
    ),
    "a probe's folder": Case(
        scratch_folder,
        Kind.LEFTOVER,
        f"config/{PROBE}",
        Severity.WARNING,
        has_not=(f"config/{PROBE}",),
    ),
    "a probe's file": Case(
        file(f"delay/{PROBE}"),
        Kind.LEFTOVER,
        f"delay/{PROBE}",
        Severity.WARNING,
        has_not=(f"delay/{PROBE}",),
    ),
    "a missing folder": Case(
        lambda root: (root / "topics").rmdir(), Kind.MISSING_FOLDER, "topics", has=("topics",)
    ),
    "a missing folder of messages": Case(
        lambda root: (root / "delay").rmdir(), Kind.MISSING_FOLDER, "delay", has=("delay",)
    ),
    "one file in new and ready": Case(
        link("new/jobs:a", "queues/jobs/a"),
        Kind.TWO_NAMES,
        "new/jobs:a",
        has=("queues/jobs/a",),
        has_not=("new/jobs:a",),
    ),
    "one file in ready and delay": Case(
        link("queues/jobs/a", "delay/jobs:a"),
        Kind.TWO_NAMES,
        "queues/jobs/a",
        has=("delay/jobs:a",),
        has_not=("queues/jobs/a",),
    ),
    "one file in delay and remove": Case(
        link("delay/jobs:a", "remove/jobs:a"),
        Kind.TWO_NAMES,
        "delay/jobs:a",
        has=("remove/jobs:a",),
        has_not=("delay/jobs:a",),
    ),
    "one file in new and under its dot-name": Case(
        link("new/jobs:a", "new/.jobs:a:3610a686"),
        Kind.TWO_NAMES,
        "new/.jobs:a:3610a686",
        has=("new/jobs:a",),
        has_not=("new/.jobs:a:3610a686",),
    ),
    "a timer too far in the future": Case(far_timer, Kind.FAR_TIMER, "delay/jobs:a"),
    "no dead-letter queue": Case(
        settings("jobs", '{"max_deliveries": 3, "dead_letter_queue": "dead"}'),
        Kind.NO_DEAD_LETTERS,
        "config/jobs.json",
        Severity.WARNING,
        has=("queues/dead",),
    ),
}


@pytest.mark.parametrize("case", REPAIRED.values(), ids=REPAIRED.keys())
def test_a_fault_is_found_and_repaired(root: Path, case: Case) -> None:
    case.make(root)
    found = look(root)
    reported = [(f.kind, f.path, f.severity) for f in found.findings if f.kind is not Kind.LINKED]
    assert reported == [(case.kind, case.path, case.severity)]
    assert all(f.repair for f in found.findings if f.kind is case.kind)
    assert found.clean is (case.severity is Severity.WARNING)
    assert look(root).findings == found.findings, "a check without repair changes nothing"

    mended = look(root, repair=True)
    assert [f.kind for f in mended.repaired] == [case.kind]
    assert mended.findings == []
    assert mended.clean
    assert look(root).findings == []
    for path in case.has:
        assert (root / path).exists()
    for path in case.has_not:
        assert not (root / path).exists()


def socket_at(path: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        before = os.getcwd()
        os.chdir(root)  # the path of a socket may have 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
        finally:
            os.chdir(before)

    return make


def at(kind: Callable[[str], None], path: str) -> Callable[[Path], None]:
    return lambda root: kind(f"{root}/{path}")


def symlink_at(path: str) -> Callable[[Path], None]:
    return lambda root: (root / path).symlink_to("/etc/passwd")


def two_files(one: str, other: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        write(root / one)
        write(root / other, b"other")

    return make


def symlink_folder(root: Path) -> None:
    (root / "journal").rename(root.parent / "journal")
    (root / "journal").symlink_to(root.parent / "journal")


REPORTED = {
    "a file that is no entry": Case(file("new/jobs"), Kind.STRAY, "new/jobs"),
    "an entry of an illegal queue name": Case(file("new/a b:c"), Kind.STRAY, "new/a b:c"),
    "a name that is not UTF-8": Case(
        lambda root: Path(os.fsdecode(os.fsencode(root) + b"/new/\xff\n")).touch(),
        Kind.STRAY,
        "new/\udcff\n",
    ),
    "a symbolic link in new": Case(symlink_at("new/jobs:a"), Kind.STRAY, "new/jobs:a"),
    "a named pipe in new": Case(at(os.mkfifo, "new/jobs:a"), Kind.STRAY, "new/jobs:a"),
    "a folder in delay": Case(at(os.mkdir, "delay/jobs:a"), Kind.STRAY, "delay/jobs:a"),
    "a file that is no entry in delay": Case(file("delay/a"), Kind.STRAY, "delay/a"),
    "a socket in a queue": Case(socket_at("queues/jobs/a"), Kind.STRAY, "queues/jobs/a"),
    "a folder in a queue": Case(at(os.mkdir, "queues/jobs/a"), Kind.STRAY, "queues/jobs/a"),
    "a symbolic link in a queue": Case(symlink_at("queues/jobs/a"), Kind.STRAY, "queues/jobs/a"),
    "a colon in a queue": Case(file("queues/jobs/x:a"), Kind.STRAY, "queues/jobs/x:a"),
    "a file among the queues": Case(file("queues/a"), Kind.STRAY, "queues/a"),
    "a symbolic link as a queue": Case(symlink_at("queues/a"), Kind.STRAY, "queues/a"),
    "a queue with an illegal name": Case(at(os.mkdir, "queues/_a"), Kind.STRAY, "queues/_a"),
    "a file that is no settings": Case(
        file("config/notes"), Kind.STRAY, "config/notes", Severity.WARNING
    ),
    "a hidden file in new": Case(file("new/.x"), Kind.HIDDEN, "new/.x", Severity.WARNING),
    "a hidden file in delay": Case(file("delay/.x"), Kind.HIDDEN, "delay/.x", Severity.WARNING),
    "a hidden file in a queue": Case(
        file("queues/jobs/.x"), Kind.HIDDEN, "queues/jobs/.x", Severity.WARNING
    ),
    "a hidden file among the queues": Case(
        file("queues/.x"), Kind.HIDDEN, "queues/.x", Severity.WARNING
    ),
    "a hidden file in config": Case(file("config/.x"), Kind.HIDDEN, "config/.x", Severity.WARNING),
    "two files in new and ready": Case(
        two_files("new/jobs:a", "queues/jobs/a"), Kind.DUPLICATE, "new/jobs:a"
    ),
    "two files in ready and delay": Case(
        two_files("queues/jobs/a", "delay/jobs:a"), Kind.DUPLICATE, "queues/jobs/a"
    ),
    "two files in new and delay": Case(
        two_files("new/jobs:a", "delay/jobs:a"), Kind.DUPLICATE, "new/jobs:a"
    ),
    "a complete dot-name of a message that is ready": Case(
        two_files("new/.jobs:a:3610a686", "queues/jobs/a"), Kind.DUPLICATE, "new/.jobs:a:3610a686"
    ),
    "one file as two messages": Case(
        link("new/jobs:a", "queues/jobs/b"), Kind.LINKED, "new/jobs:a"
    ),
    "a file with a name outside": Case(
        link("new/jobs:a", "../outside"), Kind.LINKED, "new/jobs:a", Severity.WARNING
    ),
    "a name too long to be claimed": Case(
        file(f"queues/jobs/{'n' * 251}"), Kind.UNCLAIMABLE, f"queues/jobs/{'n' * 251}"
    ),
    "settings that are no JSON": Case(settings("jobs", "{"), Kind.BAD_SETTINGS, "config/jobs.json"),
    "settings of a wrong type": Case(
        settings("jobs", '{"max_depth": "many"}'), Kind.BAD_SETTINGS, "config/jobs.json"
    ),
    "settings nested too deeply": Case(
        settings("jobs", "[" * 50_000), Kind.BAD_SETTINGS, "config/jobs.json"
    ),
    "a queue that is its own dead-letter queue": Case(
        settings("jobs", '{"max_deliveries": 3, "dead_letter_queue": "jobs"}'),
        Kind.BAD_SETTINGS,
        "config/jobs.json",
    ),
    "settings without a queue": Case(
        settings("gone", "{}"), Kind.SETTINGS_WITHOUT_QUEUE, "config/gone.json", Severity.WARNING
    ),
    "a root that is open to others": Case(
        lambda root: root.chmod(0o755), Kind.OPEN_TO_OTHERS, ".", Severity.WARNING
    ),
    "a symbolic link as a folder": Case(symlink_folder, Kind.NOT_A_FOLDER, "journal"),
}


@pytest.mark.parametrize("case", REPORTED.values(), ids=REPORTED.keys())
def test_a_fault_that_a_person_must_decide_is_reported_and_not_repaired(
    root: Path, case: Case
) -> None:
    case.make(root)
    before = sorted((p, p.lstat().st_ino) for p in root.rglob("*"))
    for repair in (False, True):
        found = look(root, repair=repair)
        assert [(f.kind, f.path, f.severity) for f in found.findings] == [
            (case.kind, case.path, case.severity)
        ]
        assert found.findings[0].repair is None
        assert found.repaired == []
        assert found.clean is (case.severity is Severity.WARNING)
    assert sorted((p, p.lstat().st_ino) for p in root.rglob("*")) == before
    json.dumps(found.as_dict()).encode()
    str(found).encode()


@pytest.mark.parametrize("folder", ["new", "delay"])
def test_messages_of_an_unknown_queue_are_one_finding_and_never_deleted(
    root: Path, folder: str
) -> None:
    for number in range(5):
        write(root / folder / f"gone:{number}")
    [finding] = look(root, repair=True).findings
    assert (finding.kind, finding.count) == (Kind.UNKNOWN_QUEUE, 5)
    assert len(list((root / folder).iterdir())) == 5
    mended = look(root, repair=True, create_queues=True)
    assert (mended.clean, mended.repaired[0].count) == (True, 5)
    assert (root / "queues" / "gone").is_dir()
    assert look(root).findings == []


def test_files_that_a_writer_may_still_use_are_no_finding(root: Path) -> None:
    for name in (".jobs:a:3610a686", ".jobs:b:00000000", ".jobs:c:own", ".copy", ".nfs0000000012"):
        write(root / "new" / name)
    write(root / DRAFT)
    report = check(root, repair=True, pause=0.01)
    assert report.findings == report.repaired == []
    assert report.staged == 5
    assert len(list((root / "new").iterdir())) == 5


def test_an_old_reservation_that_is_held_is_no_finding(root: Path) -> None:
    path = write(root / "new" / ".jobs:a:own", b"")
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        report = look(root, repair=True)
        assert (report.findings, path.exists()) == ([], True)
    assert [f.kind for f in look(root, repair=True).repaired] == [Kind.RESERVATION]


def test_files_that_a_mover_will_repair_are_no_finding(root: Path) -> None:
    left = [write(root / "new" / name) for name in (".jobs:a:3610a686", ".jobs:b:00000000")]
    # The mover looks every half minute and removes torn files that are a minute old.
    report = check(root, repair=True, pause=0.01, clock=lambda: time.time() + 95)
    assert report.clean
    assert all(path.exists() for path in left)


def test_offline_every_leftover_is_old_enough(root: Path) -> None:
    write(root / "new" / ".jobs:a:3610a686")
    write(root / "new" / ".jobs:b:00000000")
    report = check(root, repair=True, offline=True)
    assert {f.kind for f in report.repaired} == {Kind.COMPLETE, Kind.TORN}
    assert sorted(p.name for p in (root / "new").iterdir()) == ["jobs:a"]


def test_leftovers_of_nfs_are_no_finding(root: Path) -> None:
    for folder in ("new", "delay", "queues/jobs", "queues", "config", "remove"):
        write(root / folder / ".nfs000000000001")
    assert look(root).findings == []


def test_a_repaired_timer_redelivers_the_message_with_its_count(root: Path) -> None:
    far_timer(root)
    check(root, repair=True, offline=True)
    with Spool(root, sync="none") as spool:
        [message] = spool.queue("jobs").claim(wait=30)
    assert (message.body, message.deliveries) == (b"hello", 4)


BAD_BODIES = {
    "a missing header block": (new_id(headed=True), b"hello"),
    "an unterminated header block": (new_id(headed=True), b"Content-Type: text/plain\n"),
    "a body that is not compressed": (new_id() + ".z", b"hello"),
    "half of a compressed body": (new_id() + ".z", b"x\x9c\xcbH\xcd\xc9"),
}


@pytest.mark.parametrize(("message_id", "content"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_bad_bodies_are_found_only_if_bodies_are_checked(
    root: Path, message_id: str, content: bytes
) -> None:
    path = write(root / "queues" / "jobs" / message_id, content)
    assert look(root).findings == []
    [finding] = look(root, bodies=True, repair=True).findings
    assert (finding.kind, finding.severity) == (Kind.BAD_BODY, Severity.WARNING)
    assert path.read_bytes() == content


def test_good_bodies_give_no_finding(root: Path) -> None:
    with Spool(root, sync="none", delivers=False) as spool:
        spool.queue("jobs", create=True).put(b"x", content_type="text/plain", attributes={"a": "b"})
    write(
        root / "queues" / "jobs" / (new_id() + ".z"), b"x\x9c\xcbH\xcd\xc9\xc9\x07\x00\x06,\x02\x15"
    )
    write(root / "queues" / "jobs" / "notes.h")
    assert look(root, bodies=True).findings == []


def test_counts_include_every_state(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put_many([b"x"] * 7)
        jobs.claim(2)
        jobs.put(b"later", delay=60)
        spool.deliver()
        jobs.remove(*[m.id for m in jobs.peek(1)])
        write(root / "new" / "jobs:a")
        counts = jobs.counts()
    report = check(root, pause=0.01)
    assert report.queues == {"jobs": counts}
    assert (report.messages, report.removed, report.findings) == (8, 1, [])


@pytest.mark.parametrize(("folder", "is_bind"), [("delay", False), ("queues/jobs", True)])
def test_a_folder_on_another_mount_is_an_error(
    root: Path, tmp_path: Path, mount: Mount, folder: str, is_bind: bool
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    mount(root / folder, bind=tmp_path / "elsewhere" if is_bind else None)
    [finding] = look(root, repair=True).findings
    assert (finding.kind, finding.path) == (Kind.OTHER_FILESYSTEM, folder)


def test_a_failed_repair_is_reported_and_the_finding_remains(root: Path, mount: Mount) -> None:
    mount(root)
    Spool(root, sync="none").close()
    write(root / "new" / ".jobs:a:3610a686")
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    report = look(root, repair=True)
    assert [f.kind for f in report.findings] == [Kind.COMPLETE]
    assert "Read-only" in report.findings[0].reason
    assert not report.clean


def test_a_message_that_this_user_cannot_claim_is_found() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        root = Path(folder) / "mq"
        with Spool(root, sync="none", delivers=False) as spool:
            spool.queue("jobs", create=True)
        for path in [root, *root.rglob("*")]:
            os.chown(path, 65534, 65534)
        write(root / "queues" / "jobs" / "a")
        code = (
            "import sys, os\n"
            "from fsmq.spool.fsck import check\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "print(*[f.kind.value for f in check(sys.argv[1], pause=0.01).findings])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(root)], cwd=HOME, capture_output=True, text=True
        )
        assert done.stdout.split() == ["unclaimable"], done.stderr


def test_a_spool_in_use_gives_no_finding(root: Path) -> None:
    entries = rounds = 0
    with busy(root, 2):
        while entries < 500 or rounds < 12:
            rounds += 1
            seen: list[Progress] = []
            report = check(root, repair=True, bodies=True, pause=0.05, progress=seen.append)
            assert report.findings == report.repaired == [], str(report)
            entries += seen[-1].entries
    report = check(root, offline=True)
    assert report.findings == [], str(report)


def test_many_messages_take_little_memory(root: Path) -> None:
    for number in range(20_000):
        (root / "queues" / "jobs" / f"{number:036}").touch()
    tracemalloc.start()
    report = check(root)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.messages == 20_000
    assert peak < 20_000 * 30 + 500_000


def test_findings_beyond_the_limit_are_only_counted(root: Path) -> None:
    for number in range(MAX_LISTED + 50):
        (root / "new" / f"stray-{number}").touch()
    report = check(root, offline=True)
    assert len(report.findings) == MAX_LISTED
    assert report.unlisted == {Kind.STRAY: 50}


def test_a_missing_root_is_an_error_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(UnusableSpool, match="cannot open"):
        check(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def fsmq(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fsmq.cli", *map(str, arguments)],
        cwd=HOME,
        capture_output=True,
        text=True,
    )


def test_the_command_reports_and_repairs(root: Path) -> None:
    write(root / "new" / ".jobs:a:3610a686")
    done = fsmq("fsck", "--root", root, "--offline")
    assert done.returncode == 1
    assert "complete-dot-name: new/.jobs:a:3610a686" in done.stdout
    assert "--repair will: promote it" in done.stdout
    assert done.stdout.endswith("1 error, 0 warnings\n")
    done = fsmq("fsck", "--root", root, "--offline", "--repair")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "repaired complete-dot-name: new/.jobs:a:3610a686: promote it",
    )
    done = fsmq("fsck", "--root", root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "1 message in 1 queue (1 new, 0 ready, 0 in flight, 0 delayed, 0 removed): clean\n"
    )


def test_the_command_prints_json(root: Path) -> None:
    write(root / "new" / "stray")
    done = fsmq("fsck", "--root", root, "--offline", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["clean"]) == (1, False)
    assert report["findings"][0]["kind"] == "stray"


def test_the_command_shortens_a_long_list(root: Path) -> None:
    for number in range(30):
        write(root / "new" / f"stray-{number}")
    done = fsmq("fsck", "--root", root, "--offline")
    assert "… and 10 more: stray" in done.stdout
    assert len(done.stdout.splitlines()) == 20 * 2 + 2


def test_the_command_shows_a_bar_on_a_terminal_only(root: Path) -> None:
    ours, terminal = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:
        done = subprocess.run(
            [sys.executable, "-m", "fsmq.cli", "fsck", "--root", str(root)],
            cwd=HOME,
            stdout=subprocess.PIPE,
            stderr=terminal,
        )
        os.close(terminal)
        shown = screen.read(65_536)
    assert (done.returncode, b"checking" in shown, b"100%" in shown) == (0, True, True)
    assert b"checking" not in done.stdout


def test_the_command_has_an_exit_code_for_a_missing_spool(tmp_path: Path) -> None:
    done = fsmq("fsck", "--root", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (78, "")
    assert "cannot open the root" in done.stderr
    (tmp_path / "downloads").mkdir()
    done = fsmq("fsck", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"there is no spool in {tmp_path}" in done.stderr


def test_valid_settings_give_no_finding(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        for field, value in QueueSettings(max_deliveries=3, retention=9.5).as_dict().items():
            if field not in ("max_deliveries", "dead_letter_queue"):
                spool.configure("jobs", {field: value})
        spool.configure("jobs", {"max_deliveries": 2, "dead_letter_queue": "dead"})
        spool.queue("jobs", create=True).put_many([NewMessage(b"x", delay=366 * 86_400.0), b"y"])
        spool.deliver()
    assert look(root).findings == []


def test_the_index_of_a_queue_that_is_being_created_is_not_removed(root: Path) -> None:
    """The creator has made the index and not yet the folder."""
    with Spool(root, sync="none", delivers=False) as spool:
        with settings_held(spool.tree, "indexed"):
            spool.tree.make_folder("ids", "indexed")
            report = look(root, repair=True)
            assert not report.repaired
            assert [one.path for one in report.findings] == ["ids/indexed"]
            assert "holds" in report.findings[0].reason
        assert len(look(root, repair=True).repaired) == 1
        assert not (root / "ids" / "indexed").exists()


def test_a_timer_that_was_set_after_the_check_is_not_changed(root: Path) -> None:
    with Spool(root, sync="none", delivers=False) as spool:
        message_id = new_id()
        message = root / "delay" / f"jobs:{message_id}"
        far_timer(root, message_id)
        found = message.stat()
        rules = MessageRules(Inspection(spool.tree, Stamps(), time.time))
        fault = rules.delay(message.name, found)
        assert fault is not None
        assert fault.mend is not None
        os.utime(message, ns=(5, 5))
        assert not fault.mend()
        assert message.stat().st_mtime_ns == 5
