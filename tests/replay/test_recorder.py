"""The recorder tells the truth: strace, watching the same process, sees the same calls."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import HOME
from tests.replay.verbs import VERBS

CALLS = "openat,write,pwrite64,writev,fsync,fdatasync,syncfs,sync,rename,renameat,renameat2,link,"
CALLS += "linkat,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,utimensat,ftruncate,truncate,"
CALLS += "fsetxattr,fremovexattr,setxattr,lsetxattr,removexattr,lremovexattr"
# A consumer's, and a move's.
LOCK = re.compile(r"/\.(?:[0-9a-f-]{36}\.)?lock>")
KINDS = {
    "write": "Write",
    "fsync": "Sync",
    "renameat": "Rename",
    "renameat2": "Rename",
    "rename": "Rename",
    "unlinkat": "Unlink",
    "unlink": "Unlink",
    "mkdirat": "Create",
    "mkdir": "Create",
    "linkat": "Create",
    "link": "Create",
    "utimensat": "Stamp",
    "fsetxattr": "Note",
    "fremovexattr": "Note",
}


def traced(lines: list[str]) -> list[str]:
    """The kinds of the calls that succeeded and changed something in the scenario's tree."""
    kinds = []
    creating: set[str] = set()
    for line in _whole(lines):
        match = re.match(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)", line)
        if match is None or int(match[3]) < 0 or "/mq" not in line:
            continue
        call, arguments = match[1], match[2]
        if call in ("ftruncate", "pwrite64") and LOCK.search(arguments):
            continue  # what a lock says is for those who look: a crash may lose it
        if call == "openat":
            if LOCK.search(line):
                continue  # whether it was there already no trace tells
            path = " ".join(re.findall(r"(?<=<)[^>]*|\"[^\"]*\"", line))
            if "O_CREAT" in arguments and path not in creating:
                creating.add(path)
                kinds.append("Create")
        else:
            kinds.append(KINDS.get(call, call))
        if call in ("unlink", "unlinkat"):  # the next file of that name is another one
            name = re.findall(r'"[^"]*"', arguments)[-1]
            creating = {path for path in creating if name not in path.split(" ")}
    return kinds


def _whole(lines: list[str]) -> Iterator[str]:
    """The lines of a trace; a call during which another thread made one as one line, too."""
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.split(" ", 1)[0]
        if line.endswith(" <unfinished ...>"):
            begun[thread] = line.removesuffix(" <unfinished ...>")
        elif resumed := re.match(r"\d+ +<\.\.\. \w+ resumed>(.*)", line):
            yield begun.pop(thread, "") + resumed[1]
        else:
            yield line


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_what_is_recorded(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    verbs = [verb for verb in VERBS if verb != "delete_queue"]
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={CALLS}", "--seccomp-bpf"]
    tell = [sys.executable, "-m", "tests.replay.record", *verbs, "delete_queue"]
    told = subprocess.run(
        [*strace, *tell],
        cwd=HOME,
        capture_output=True,
        text=True,
    )
    if "PTRACE" in told.stderr:
        pytest.skip(f"strace may not trace here: {told.stderr.strip()[:200]}")
    assert told.returncode == 0, told.stderr
    recorded = [kind for kind, of in json.loads(told.stdout) if not _is_lock(kind, of)]
    seen = traced(trace.read_text().splitlines())
    assert len(recorded) > 50
    # The scenario is the last that the process does on a tree named mq, but for removing that tree.
    assert recorded == _between(seen, recorded)


def _is_lock(kind: str, of: dict[str, Any]) -> bool:
    return kind == "Create" and LOCK.search(f"/{of['slot']['name']}>") is not None


def _between(seen: list[str], recorded: list[str]) -> list[str]:
    """The part of the trace that begins where the record does."""
    text, wanted = " ".join(seen), " ".join(recorded)
    at = text.find(wanted)
    return text[at : at + len(wanted)].split(" ") if at >= 0 else seen
