"""The numbers and examples of docs/format.md are checked against the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zlib
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Spool, UnusableSpool
from fsmq.spool.durability.dotnames import COMPLETE_AFTER_S, LATE_AFTER_S, TORN_AFTER_S
from fsmq.spool.durability.locks import is_reservation
from fsmq.spool.fsck import check
from fsmq.spool.layout import transitions
from fsmq.spool.layout.messages.message import MAX_HEADER_BYTES, pack_header, unpack
from fsmq.spool.layout.names import (
    MAX_FILE_NAME_BYTES,
    MAX_OWN_ID_BYTES,
    MAX_PRIORITY,
    MAX_QUEUE_BYTES,
    Facts,
    facts,
    is_queue,
    reservation,
    seal_of,
    split_entry,
    staged_entry,
)
from fsmq.spool.layout.settings import MAX_DELAY_S, MAX_VISIBILITY_S
from fsmq.spool.layout.stamps import MAX_COUNT, Stamp, Stamps
from fsmq.spool.log.consuming import lines, open_channel
from fsmq.spool.staging.abandoned import ABANDONED_AFTER_S
from fsmq.spool.staging.commit import commit
from fsmq.spool.staging.part import Job, Part

DOCUMENT = (Path(__file__).resolve().parents[1] / "docs" / "format.md").read_text()


def table(*heads: str) -> list[list[str]]:
    """The rows of the table with these heads, without backquotes and backslashes."""
    start = "| " + " | ".join(heads) + " |\n"
    assert DOCUMENT.count(start) == 1, heads
    lines = DOCUMENT.split(start)[1].split("\n\n")[0].strip("\n").split("\n")[1:]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert rows
    return [[cell.strip(" `").replace("\\", "") for cell in row] for row in rows]


def block(mark: str) -> str:
    """The indented or fenced block after a mark."""
    text = DOCUMENT.split(f"<!-- {mark} -->\n\n")[1]
    if text.startswith("```"):
        return text.split("```")[1].partition("\n")[2]
    lines = re.match(r"(?:(?:    .*)?\n)+", text)
    assert lines
    return re.sub(r"(?m)^    ", "", lines[0]).rstrip("\n")


def number(cell: str) -> int | None:
    return None if cell == "-" else int(cell)


def test_queue_names() -> None:
    [line] = re.findall(r"(?m)^- Queues: (.*)$", DOCUMENT)
    legal, but_not, illegal = line.partition("but not")
    assert but_not
    for text, wanted in ((legal, True), (illegal, False)):
        names = re.findall("`([^`]+)`", text)
        assert len(names) == 2
        assert [is_queue(name) for name in names] == [wanted, wanted]


def test_entries_split_at_the_last_colon() -> None:
    [line] = re.findall(r"(?m)^- Entries: (.*)$", DOCUMENT)
    name, message_id, queue, *others = re.findall("`([^`]+)`", line)
    assert split_entry(name) == (queue, message_id)
    assert len(others) == 2
    assert [split_entry(other) for other in others] == [None, None]


def test_ids() -> None:
    rows = table("id", "priority", "created (ms)", "expires (s)", "header", "compressed")
    for message_id, priority, created, expires, headed, packed in rows:
        expected = Facts(
            int(priority), number(created), number(expires), headed == "yes", packed == "yes"
        )
        assert facts(message_id) == expected, message_id


def test_name_order_is_delivery_order() -> None:
    names = block("order").split("\n")
    assert len(names) == 7
    assert sorted(names, key=os.fsencode) == names


def test_stamps() -> None:
    heads = ("id", "deadline_ms", "count", "CRC input", "crc32", "check", "mtime (ns)")
    for message_id, deadline_ms, count, text, crc, code, mtime_ns in table(*heads):
        assert text == f"{deadline_ms} {count} {message_id}"
        assert zlib.crc32(text.encode()) == int(crc)
        assert int(crc) % 9999 + 1 == int(code)
        assert int(mtime_ns) == int(deadline_ms) * 1_000_000 + int(count) * 10_000 + int(code)
        assert Stamps().encode(message_id, int(deadline_ms), int(count)) == int(mtime_ns)
        assert Stamps().decode(message_id, int(mtime_ns)) == Stamp(int(deadline_ms), int(count))
    [(text, code)] = re.findall(r"`(1750000030\.\S+)`: what waits.* with the check (\d+)", DOCUMENT)
    [waits] = [
        mtime for _, _, _, _, _, check, mtime in table(*heads) if int(check) + 1 == int(code)
    ]
    mtime_ns = text.replace(".", "")
    assert int(mtime_ns) == int(waits) + 1
    stamp = Stamps().decode("01977420-dc00-7abc-8def-0123456789ab", int(mtime_ns))
    assert stamp == Stamp(1_750_000_030_250, 1, backs_off=True)
    [check_value] = re.findall(r'crc32\("123456789"\)` is (\d+)', DOCUMENT)
    assert zlib.crc32(b"123456789") == int(check_value)


def test_a_stamp_as_the_shell_shows_it(tmp_path: Path) -> None:
    first = table("id", "deadline_ms", "count", "CRC input", "crc32", "check", "mtime (ns)")[0]
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", ns=(0, int(first[-1])))
    shown = subprocess.run(
        ["stat", "-c", "%.9Y", str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    assert f"`stat -c %.9Y`): `{shown.stdout.strip()}`" in DOCUMENT


def test_the_header_block() -> None:
    file = block("header").encode()
    assert f"`hello`, {len(file)} bytes: <!-- header -->" in DOCUMENT
    assert file == pack_header("text/plain", {"trace": "4bf92f35"}) + b"hello"
    parts = unpack(file, Facts(headed=True))
    assert parts == (b"hello", "text/plain", {"trace": "4bf92f35"})


def test_limits_are_those_of_the_code() -> None:
    text = " ".join(DOCUMENT.split())
    for sentence in (
        f"1*{MAX_QUEUE_BYTES}( ALPHA",
        f"has at most {MAX_OWN_ID_BYTES} characters",
        f"A file name has at most {MAX_FILE_NAME_BYTES} bytes, so queue and id together have at"
        f" most {MAX_FILE_NAME_BYTES - 1}.",
        f"`p01.` to `p{MAX_PRIORITY}.`",
        f"`count` is 0 to {MAX_COUNT};",
        f"The block has at most {MAX_HEADER_BYTES} bytes",
        f"A claim holds for at most {MAX_VISIBILITY_S:.0f} s",
        f"a delay for at most {MAX_DELAY_S:.0f} s",
        f"when its ctime is {TORN_AFTER_S:.0f} s old, when it is complete and"
        f" {COMPLETE_AFTER_S:.0f} s old",
        f"fsck reports what still exists when its ctime is {LATE_AFTER_S:.0f} s old",
    ):
        assert text.count(sentence) == 1, sentence
    assert "nothing in it has changed for an hour" in text
    assert ABANDONED_AFTER_S == 3600


def test_dot_names() -> None:
    assert staged_entry("jobs", "a", seal_of(b"hello")) == ".jobs:a:3610a686"
    assert reservation("jobs", "a") == ".jobs:a:own"
    assert is_reservation(".jobs:a:own")


def test_a_staged_job_has_the_files_of_the_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 18: the files while a job is written, and once it is committed."""
    shapes = re.findall(r"(?m)^ {6,10}(\S+)  ", DOCUMENT.split("## 18.")[1].split("\n## ")[0])
    uuid = "01977420-dc00-7abc-8def-0123456789ab"
    drawn = {
        re.sub(r"<part>|<uuid7>", uuid, shape).replace("<job>", "load").replace("<number>", "7")
        for shape in shapes
    }
    monkeypatch.setattr("fsmq.spool.staging.part.uuid7", lambda: uuid)
    monkeypatch.setattr("fsmq.spool.staging.forward.Forward.run", lambda forward: None)
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs")
        part = Part(spool.context, spool.syncer.sync, Job("load", 7))
        message_id = part.write("jobs", NewMessage(b"hello"))
        folder = tmp_path / "mq" / "staging"
        seen = {_shape(path) for path in folder.rglob("*")}
        commit(spool, Job("load", 7), [part.finish()])
        seen |= {_shape(path) for path in folder.rglob("*")}
        assert (folder / "load:7" / uuid / f"jobs:{message_id}").read_bytes() == b"hello"
        committed = json.loads((folder / "load:7" / "commit.json").read_text())
    assert committed.keys() == {"at_ms", "keeps", "parts", "run"}
    assert committed["parts"] == {
        uuid: {"messages": 1, "own": False, "delayed": False, "repeated": 0}
    }
    seen.discard(f"jobs:{message_id}")
    assert seen | {"load.json", ".load.lock", f".gone-{uuid}/", "<queue>:<id>"} == drawn


def _shape(path: Path) -> str:
    return path.name + "/" if path.is_dir() else path.name


def test_a_new_spool_has_the_folders_of_the_layout(tmp_path: Path) -> None:
    Spool(tmp_path / "mq", sync="none").close()
    layout = DOCUMENT.split("    <root>/\n")[1].split("\n\n")[0]
    drawn = re.findall(r"(?m)^      (\w+)/", layout)
    assert drawn == list(transitions.FOLDERS)
    assert sorted(drawn) == sorted(p.name for p in (tmp_path / "mq").iterdir())


@pytest.mark.parametrize("name", transitions.FOLDERS)
def test_a_root_of_a_later_version_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mq").mkdir()
    (tmp_path / "mq" / name).touch()
    with pytest.raises(UnusableSpool, match=f"{name} is not a folder"):
        Spool(tmp_path / "mq", sync="none")


# As in docs/shell.md.
SHELL = {
    "create a queue": 'mkdir "$S/queues/jobs"',
    "put a file of the same filesystem": 'mv report "$S/new/jobs:report-17"',
    "put a file from elsewhere": (
        'cp report "$S/new/.copy-17" && mv "$S/new/.copy-17" "$S/new/jobs:report-17"'
    ),
    "list ready messages": 'ls "$S/queues/jobs"',
    "release a claimed message": 'mv "$S/delay/jobs:report-17" "$S/queues/jobs/report-17"',
    "remove a message": 'mv "$S/queues/jobs/report-17" "$S/remove/jobs:report-17"',
}


def shell(root: Path, task: str) -> None:
    command = SHELL[task]
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=root.parent,
        env={**os.environ, "S": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("put", ["put a file of the same filesystem", "put a file from elsewhere"])
def test_a_shell_is_a_client(tmp_path: Path, put: str) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        shell(root, "create a queue")
        (tmp_path / "report").write_bytes(b"numbers")
        shell(root, put)
        jobs = spool.queue("jobs")
        [message] = jobs.claim(wait=30)
        assert (message.id, message.body) == ("report-17", b"numbers")
        shell(root, "release a claimed message")
        shell(root, "list ready messages")
        [message] = jobs.claim(wait=30)
        assert message.deliveries == 2
        shell(root, "release a claimed message")
        shell(root, "remove a message")
        assert jobs.claim() == []
    assert check(root, offline=True).findings == []


def test_the_progress_of_a_channel(tmp_path: Path) -> None:
    with Spool(tmp_path / "mq", sync="none") as spool:
        log = spool.log("users", create=True)
        log.publish_many([b"x"] * 10)
        channel = log.channel("mailer")
        channel.create("first", order="none")
        path = tmp_path / "mq/logs/users/channels/mailer/progress.1"
        path.write_text(block("a channel's progress") + "\n")
        state = channel.state()
        assert (state.position, state.lag, state.delayed, state.in_flight) == (3, 4, 2, 0)
        assert (state.lost, state.first_lost, state.skipped, state.generation) == (2, 0, 1, 1)
        assert [message.offset for message in channel.claim(9)] == [3, 9]
    assert f"{open_channel._LEAST_BYTES // 1024} KiB and than four times what it says" in DOCUMENT
    assert open_channel._TIMES == 4
    assert f"A line has at most {lines._MOST_RANGES} ranges" in DOCUMENT
