"""`fsmq put --watch`: files in a folder become messages, also after kills."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from fsmq import Client, Message, NewMessage
from fsmq.cli.messages.drop.drop import Drop
from fsmq.cli.messages.drop.folder import DropFolder, Dropped, Moved
from fsmq.spool import Spool
from fsmq.spool.layout.names import facts
from fsmq.spool.layout.uuids import derived_uuid7
from tests.cli.helpers import Command, environment
from tests.harness.rounds import part_of
from tests.harness.suite import Program, Suite, arbitrary_moment, eventually

Start = Callable[..., Program]


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def fsmq(alone: Command) -> Command:
    return alone


@pytest.fixture
def start(fsmq: Command, inbox: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a watch of the inbox and waits until it is ready."""
    running: list[Program] = []

    def begin(*options: str, at: str | None = None, until_ready: bool = True) -> Program:
        command = ["put", "jobs", "--watch", str(inbox), *options]
        log, env = tmp_path / "drop.log", environment(FSMQ_AT=at or fsmq.at)
        running.append(Program("drop", "fsmq.cli", command, log, env))
        running[-1].start(until_ready=until_ready)
        return running[-1]

    yield begin
    for program in running:
        program.end()


def printed(program: Program) -> list[str]:
    return [event["event"] for event in program.logs()]


def wait_for_line(program: Program, part: str) -> str:
    """Wait for a line with these words."""
    return str(eventually(lambda: next((line for line in printed(program) if part in line), None)))


def messages(fsmq: Command) -> list[Message]:
    """All messages of the queue in any state."""
    with Spool(fsmq.at, delivers=False) as spool:
        jobs = spool.queue("jobs")
        states = ("new", "ready", "delayed", "in_flight")
        return [message for state in states for message in jobs.peek(10_000, state=state)]


def bodies(fsmq: Command) -> list[str]:
    return sorted(message.body.decode() for message in messages(fsmq))


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def is_empty(inbox: Path) -> bool:
    return not [name for name in files(inbox) if not name.startswith("done/")]


def test_existing_written_and_moved_files_are_stored(
    fsmq: Command, start: Start, inbox: Path, tmp_path: Path
) -> None:
    (inbox / "there").write_text("1")
    program = start("--content-type=text/plain", "-atenant=a", "--priority=3")
    (inbox / "written é").write_text("2")
    (tmp_path / "elsewhere").write_text("3")
    os.rename(tmp_path / "elsewhere", inbox / "moved in")
    (inbox / "empty").touch()
    eventually(lambda: is_empty(inbox))
    found = {m.attributes["file"]: m for m in messages(fsmq)}
    assert {name: m.body.decode() for name, m in found.items()} == {
        "there": "1",
        "written é": "2",
        "moved in": "3",
        "empty": "",
    }
    for message in found.values():
        assert (message.content_type, message.priority) == ("text/plain", 3)
        assert message.attributes["tenant"] == "a"
    assert files(inbox / "done") == ["empty", "moved in", "there", "written é"]
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    *lines, empty = sorted(printed(program), key=lambda line: line.startswith("fsmq: "))
    assert sorted(lines) == sorted(m.id for m in found.values())
    assert "empty: is empty, and so is its message" in empty


def test_ctrl_c_ends_the_watch_with_exit_code_130(start: Start) -> None:
    program = start()
    program.signal(signal.SIGINT)
    assert program.wait() == 130


def test_a_file_is_taken_when_its_last_writer_closes_it(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    with (inbox / "begun before").open("w") as old:
        old.write("a")
        old.flush()
        start()
        with (inbox / "new").open("w") as new, (inbox / "new").open("a") as second:
            new.write("c")
            new.close()
            second.flush()
            # Wait longer than existing files need to be unchanged.
            (inbox / "other").write_text("e")
            eventually(lambda: bodies(fsmq) == ["e"])
            eventually(lambda: time.time() - (inbox / "new").stat().st_mtime > 2)
            assert bodies(fsmq) == ["e"]
            second.write("d")
        eventually(lambda: bodies(fsmq) == ["cd", "e"])
        old.write("b")
    eventually(lambda: bodies(fsmq) == ["ab", "cd", "e"])
    eventually(lambda: is_empty(inbox))


def test_a_file_opened_again_while_it_is_stored_is_stored_again(
    tmp_path: Path, start: Start, inbox: Path
) -> None:
    """A scanner closes its file after each page; the server is slow for a moment."""
    with Suite(tmp_path / "served") as suite, Client(suite.url) as client:
        client.create_queue("jobs")
        program = start(at=suite.url)
        suite["mq"].signal(signal.SIGSTOP)
        scan, same = inbox / "scan.pdf", inbox / "same"
        scan.write_text("page 1\n")
        eventually(lambda: is_sending(program.pid, suite.port))
        with scan.open("a") as again:
            suite["mq"].signal(signal.SIGCONT)
            wait_for_line(program, "scan.pdf: was opened again while it was stored")
            again.write("page 2\n")
        eventually(lambda: is_empty(inbox))
        assert (inbox / "done" / "scan.pdf").read_text() == "page 1\npage 2\n"
        jobs = client.queue("jobs")
        eventually(lambda: jobs.counts().ready == 2)
        assert [m.body for m in jobs.peek(9)] == [b"page 1\n", b"page 1\npage 2\n"]

        # Opening without a change makes no second message.
        suite["mq"].signal(signal.SIGSTOP)
        same.write_text("same")
        eventually(lambda: is_sending(program.pid, suite.port))
        with same.open("a"):
            suite["mq"].signal(signal.SIGCONT)
            wait_for_line(program, "same: was opened again while it was stored")
        eventually(lambda: is_empty(inbox))
        eventually(lambda: jobs.counts().ready == 3)


def is_sending(pid: int, port: int) -> bool:
    """Whether a process has sent a request that the server has not read."""
    ports = f":{port:04X} "
    table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()
    return any(
        ports in line[10:20] and int(line.split()[4].partition(":")[2], 16) for line in table
    )


def test_appending_to_files_while_they_are_taken_loses_nothing(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    program, chance = start(), Random(7)
    for number in range(part_of(60, 600)):
        path = inbox / f"{number}"
        path.write_text("begun\n")
        try:
            for _ in range(20):
                arbitrary_moment(chance, 0, 0.004)
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "w") as again:
                    again.write("more\n")
        except FileNotFoundError:
            continue  # it was taken
    eventually(lambda: is_empty(inbox))
    stored = {(m.attributes["file"], m.body.decode()) for m in messages(fsmq)}
    done = {(path.name, path.read_text()) for path in (inbox / "done").iterdir()}
    lines = [line for line in printed(program) if "was written to while it was moved" in line]
    assert (done - stored, lines) == (set(), [])


def test_a_file_is_taken_when_it_has_settled(fsmq: Command, start: Start, inbox: Path) -> None:
    """For writers that close a file and open it again."""
    start("--settle=1.5s")
    path = inbox / "pages"
    for page in range(4):
        with path.open("a") as file:
            file.write(f"{page}")
        closed = time.monotonic()
        eventually(lambda closed=closed: time.monotonic() - closed > 0.5)
    assert not (inbox / "done" / "pages").exists()
    eventually(lambda: is_empty(inbox))
    assert bodies(fsmq) == ["0123"]
    assert time.monotonic() - closed >= 1.5


def test_folders_are_watched_with_recursive(fsmq: Command, start: Start, inbox: Path) -> None:
    (inbox / "a" / "b").mkdir(parents=True)
    (inbox / "a" / "b" / "there").write_text("1")
    program = start()
    (inbox / "top").write_text("0")
    eventually(lambda: bodies(fsmq) == ["0"])
    program.signal(signal.SIGTERM)
    assert program.wait() == 0
    assert files(inbox) == ["a/b/there", "done/top"]

    start("--recursive")
    (inbox / "c" / "d").mkdir(parents=True)
    (inbox / "c" / "d" / "written").write_text("2")
    outside = inbox.parent / "e"
    (outside / "f").mkdir(parents=True)
    (outside / "f" / "moved").write_text("3")
    os.rename(outside, inbox / "e")
    eventually(lambda: is_empty(inbox))
    assert bodies(fsmq) == ["0", "1", "2", "3"]
    assert files(inbox / "done") == ["a/b/there", "c/d/written", "e/f/moved", "top"]
    names = {message.attributes["file"] for message in messages(fsmq)}
    assert names == {"top", "a/b/there", "c/d/written", "e/f/moved"}


def test_hidden_partial_and_other_files_are_skipped(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    names = [".hidden", "x.json.part", "x.json.TMP", "x.crdownload", "x.json~", "x.txt"]
    for name in names[:3]:
        (inbox / name).write_text("no")
    start("--glob=*.json")
    for name in names[3:]:
        (inbox / name).write_text("no")
    (inbox / "y.json.part").write_text("yes")
    (inbox / "y.json.part").rename(inbox / "y.json")
    os.mkfifo(inbox / "fifo.json")
    (inbox / "folder.json").mkdir()
    (inbox / "z.json").write_text("yes")
    eventually(lambda: bodies(fsmq) == ["yes", "yes"])
    eventually(lambda: files(inbox / "done") == ["y.json", "z.json"])
    assert set(names) <= set(files(inbox))


def test_symbolic_links_are_not_followed(
    fsmq: Command, start: Start, inbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    (inbox / "there").symlink_to(tmp_path / "secret" / "key")
    (inbox / "folder").symlink_to(tmp_path / "secret")
    start("--recursive")
    (inbox / "new").symlink_to(tmp_path / "secret" / "key")
    (tmp_path / "link").symlink_to(tmp_path / "secret" / "key")
    os.rename(tmp_path / "link", inbox / "moved")
    (inbox / "real").write_text("real")
    eventually(lambda: (inbox / "done" / "real").exists())
    assert bodies(fsmq) == ["real"]
    assert files(tmp_path / "secret") == ["key"]


def test_a_symbolic_link_as_done_folder_is_refused(
    start: Start, inbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (inbox / "done").symlink_to(tmp_path / "elsewhere")
    program = start(until_ready=False)
    assert program.wait() == 2


def test_a_file_that_is_too_large_stays_and_is_reported_once(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    fsmq("queue", "config", "jobs", "max_message_bytes=10")
    program = start()
    (inbox / "large").write_text("x" * 11)
    assert "large: has 11 bytes, and a message may have 10" in wait_for_line(program, "large")
    os.utime(inbox / "large")
    (inbox / "fits").write_text("x" * 10)
    eventually(lambda: bodies(fsmq) == ["x" * 10])
    assert len([line for line in printed(program) if "large" in line]) == 1
    (inbox / "large").write_text("small")
    eventually(lambda: is_empty(inbox))
    assert bodies(fsmq) == ["small", "x" * 10]


def test_a_file_of_the_same_name_is_another_message(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    start()
    for number, body in enumerate(("one", "two", "two"), 1):
        # Its old time makes it complete: it is taken at once.
        draft = inbox.parent / "job"
        draft.write_text(body)
        os.utime(draft, (1, 1))
        draft.rename(inbox / "job")
        eventually(lambda number=number: len(files(inbox / "done")) == number)
    eventually(lambda: is_empty(inbox))
    assert bodies(fsmq) == ["one", "two", "two"]
    first, *others = sorted((inbox / "done").iterdir())
    assert first.read_text() == "one"
    ids = {re.sub(r"\.h$", "", message.id) for message in messages(fsmq)}
    assert {re.sub(r"\.h$", "", path.name.removeprefix("job.")) for path in others} < ids


def test_a_file_replaced_before_its_move_is_stored_too(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the check of the name and the rename, which moves it, too."""
    folder = DropFolder(inbox, None, "*", False)
    try:
        (inbox / "report").write_bytes(b"FIRST")
        rename = os.rename

        def replace_and_rename(source: str, target: str, **more: int) -> None:
            (inbox / ".second").write_bytes(b"SECOND")
            rename(inbox / ".second", inbox / "report")
            rename(source, target, **more)

        with folder.opened("report") as file:
            assert file is not None
            assert file.read() == b"FIRST"
            monkeypatch.setattr(os, "rename", replace_and_rename)
            assert folder.move(file, "an-id") is Moved.CHANGED
        assert (inbox / "report").read_bytes() == b"SECOND"
        assert os.listdir(inbox / "done") == []
    finally:
        folder.close()


def test_a_write_after_the_check_for_writers_is_stored_too(fsmq: Command, inbox: Path) -> None:
    """A writer opens the file before the move and writes after the check for writers."""

    class WrittenTo(DropFolder):
        writes = True

        def move(self, file: Dropped, message_id: str) -> Moved:
            if not self.writes:
                return super().move(file, message_id)
            self.writes = False
            with (inbox / "job").open("a") as again:
                assert super().move(file, message_id) is Moved.OPEN
                again.write("more")
            return Moved.OPEN

    (inbox / "job").write_text("begun ")
    folder = WrittenTo(inbox, None, "*", False)
    try:
        with Spool(fsmq.at) as spool:
            drop = Drop(spool.queue("jobs"), "jobs", folder, NewMessage(b""), 1000, False, 0.0)
            while not is_empty(inbox):
                drop._note("job", True)
                drop._take_due()
    finally:
        folder.close()
    assert bodies(fsmq) == ["begun ", "begun more"]
    assert (inbox / "done" / "job").read_text() == "begun more"


def test_a_kill_between_the_put_and_the_move_makes_no_second_message(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    program = start()
    (inbox / "done").rmdir()  # so that the move fails
    (inbox / "job").write_text("once")
    wait_for_line(program, "cannot be moved away")
    assert bodies(fsmq) == ["once"]
    assert files(inbox) == ["job"]
    program.end()
    program = start()
    wait_for_line(program, "is stored already")
    eventually(lambda: files(inbox) == ["done/job"])
    assert bodies(fsmq) == ["once"]


def test_repeated_kills_neither_lose_nor_repeat_a_file(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    chance = Random(4)
    written: list[str] = []
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set() and len(written) < 300:
            body = f"{len(written)}"
            path = inbox / f"{len(written) % 7}" / f"{len(written)}"
            path.parent.mkdir(exist_ok=True)
            with path.open("w") as file:
                file.write(body[: len(body) // 2])
                file.flush()
                arbitrary_moment(chance, 0, 0.05)
                file.write(body[len(body) // 2 :])
            written.append(body)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            program = start("--recursive", until_ready=False)
            eventually(lambda program=program: printed(program))
            arbitrary_moment(chance, 0, 0.2)
            program.end()
        eventually(lambda: len(written) > 20)
    finally:
        enough.set()
        writer.join()
    start("--recursive")
    eventually(lambda: is_empty(inbox))
    assert bodies(fsmq) == sorted(written)
    assert len(files(inbox / "done")) == len(written)


def test_a_watch_survives_a_restart_of_its_server(
    tmp_path: Path, start: Start, inbox: Path
) -> None:
    with Suite(tmp_path / "served") as suite, Client(suite.url) as client:
        client.create_queue("jobs")
        program = start(at=suite.url)
        (inbox / "one").write_text("1")
        eventually(lambda: is_empty(inbox))
        suite.kill("mq")
        (inbox / "two").write_text("2")
        wait_for_line(program, "trying again")
        suite.restart("mq")
        eventually(lambda: is_empty(inbox))
        jobs = client.queue("jobs")
        eventually(lambda: jobs.counts().ready == 2)
        assert sorted(m.body for m in jobs.claim(2)) == [b"1", b"2"]
        jobs.configure(max_message_bytes=10)
        (inbox / "large").write_text("x" * 20_000_000)
        assert "at most" not in wait_for_line(program, "large: ")
        assert files(inbox) == ["done/one", "done/two", "large"]
        program.signal(signal.SIGTERM)
        assert program.wait() == 0


def test_a_watch_waits_for_a_full_queue(fsmq: Command, start: Start, inbox: Path) -> None:
    fsmq("queue", "config", "jobs", "max_depth=1")
    program = start()
    (inbox / "a").write_text("a")
    eventually(lambda: is_empty(inbox))
    (inbox / "b").write_text("b")
    wait_for_line(program, "max_depth")
    assert bodies(fsmq) == ["a"]
    fsmq("get", "jobs", "--ack")
    eventually(lambda: bodies(fsmq) == ["b"])


def test_an_old_file_does_not_expire_at_once(fsmq: Command, start: Start, inbox: Path) -> None:
    fsmq("queue", "config", "jobs", "retention=60")
    (inbox / "old").write_text("old")
    dropped = (inbox / "old").stat().st_ctime
    eventually(lambda: time.time() - dropped > 3)
    start("--ttl=4")
    eventually(lambda: is_empty(inbox))
    # Its name has its time, also if it has expired by now.
    folders = (Path(fsmq.at) / "new", Path(fsmq.at) / "queues" / "jobs")
    [name] = [path.name for folder in folders for path in folder.iterdir()]
    assert facts(name.rpartition(":")[2]).created_ms / 1000 >= dropped + 3  # type: ignore[operator]


def test_a_deleted_folder_ends_the_watch(start: Start, inbox: Path) -> None:
    program = start()
    shutil.rmtree(inbox)
    assert program.wait(60) == 69


# Loads everything first: another user may be unable to read Python's files.
_AS_ANOTHER_USER = """
import os, sys, encodings.idna, watchdog.observers, watchdog.events
import fsmq.cli.messages.put, fsmq.cli.messages.drop.drop, fsmq.daemons.settings.settings
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
fsmq.cli.messages.put.put(["jobs", "--watch", sys.argv[2]])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes two users")
def test_files_of_other_users_are_taken_when_they_are_closed() -> None:
    """Only events tell whether such files are being written."""
    nobody = "65534"
    with tempfile.TemporaryDirectory() as folder:
        fsmq, inbox = Command(Path(folder) / "mq"), Path(folder) / "inbox"
        fsmq("queue", "create", "jobs")
        inbox.mkdir()
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, int(nobody), int(nobody))
        (inbox / "there").write_text("1")
        command = [sys.executable, "-c", _AS_ANOTHER_USER, nobody, str(inbox)]
        process = subprocess.Popen(command, env=environment(FSMQ_AT=fsmq.at))
        try:
            eventually(lambda: is_empty(inbox))
            with (inbox / "slow").open("w") as slow:
                slow.write("2")
                slow.flush()
                eventually(lambda: time.time() - (inbox / "slow").stat().st_mtime > 2)
                assert (inbox / "slow").exists()
                slow.write("3")
            eventually(lambda: is_empty(inbox))
        finally:
            process.kill()
            process.wait()
        os.chown(fsmq.at, 0, 0)  # root may only open its own
        assert bodies(fsmq) == ["1", "23"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--watch={inbox}", "--body=x"], "goes without"),
        (["--watch={inbox}", "--id=x"], "goes without"),
        (["--watch={inbox}", "{root}/x"], "goes without"),
        (["--recursive"], "are for --watch"),
        (["--settle=1s"], "are for --watch"),
        (["--watch={root}/queues"], "cannot be watched"),
        (["--watch={root}"], "cannot be watched"),
        (["--watch={root}/..", "--recursive"], "cannot be watched"),
        (["--watch={inbox}", "--done=/proc"], "another filesystem"),
        (["--watch={inbox}/none"], "does not exist"),
    ],
)
def test_wrong_usage(fsmq: Command, inbox: Path, options: list[str], error: str) -> None:
    filled = [option.format(inbox=inbox, root=fsmq.at) for option in options]
    assert error in fsmq("put", "jobs", *filled, code=2).stderr.decode()


def test_a_missing_queue_and_a_watched_folder_are_refused(
    fsmq: Command, start: Start, inbox: Path
) -> None:
    fsmq("put", "none", "--watch", inbox, code=3)
    start()
    error = fsmq("put", "jobs", "--watch", inbox, code=69).stderr.decode()
    assert "another program watches" in error


def test_an_id_is_made_of_a_time_and_a_seed() -> None:
    made = derived_uuid7(1_700_000_000_123_456_789, b"seed")
    assert made == derived_uuid7(1_700_000_000_123_456_789, b"seed")
    assert made != derived_uuid7(1_700_000_000_123_456_789, b"other")
    assert facts(made).created_ms == 1_700_000_000_123
    assert derived_uuid7(0, b"") < made < derived_uuid7(1_700_000_000_124_000_000, b"")
    assert facts(derived_uuid7(-1, b"")).created_ms == 0
