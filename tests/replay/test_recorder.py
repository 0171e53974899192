"""The recorder and strace see the same calls."""

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
# The locks of consumers and moves.
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
    """The kinds of the successful calls that changed the tree of the scenario."""
    kinds = []
    creating: set[str] = set()
    for line in _whole(lines):
        match = re.match(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)", line)
        if match is None or int(match[3]) < 0 or "/mq" not in line:
            continue
        call, arguments = match[1], match[2]
        if call in ("ftruncate", "pwrite64") and LOCK.search(arguments):
            continue  # a crash may lose the content of a lock
        if call == "openat":
            if LOCK.search(line):
                continue  # the trace does not show whether it existed
            path = " ".join(re.findall(r"(?<=<)[^>]*|\"[^\"]*\"", line))
            if "O_CREAT" in arguments and path not in creating:
                creating.add(path)
                kinds.append("Create")
        else:
            kinds.append(KINDS.get(call, call))
        if call in ("unlink", "unlinkat"):  # the next file of that name is another
            name = re.findall(r'"[^"]*"', arguments)[-1]
            creating = {path for path in creating if name not in path.split(" ")}
    return kinds


def _whole(lines: list[str]) -> Iterator[str]:
    """The lines of a trace, with interrupted calls joined."""
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
def test_strace_sees_the_recorded_calls(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    verbs = [verb for verb in VERBS if verb != "delete_queue"]
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={CALLS}", "--seccomp-bpf"]
    program = [sys.executable, "-m", "tests.replay.record", *verbs, "delete_queue"]
    done = subprocess.run(
        [*strace, *program],
        cwd=HOME,
        capture_output=True,
        text=True,
    )
    if "PTRACE" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    recorded = [kind for kind, of in json.loads(done.stdout) if not _is_lock(kind, of)]
    seen = traced(trace.read_text().splitlines())
    assert len(recorded) > 50
    # After the scenario the process only removes the tree.
    assert recorded == _between(seen, recorded)


def _is_lock(kind: str, of: dict[str, Any]) -> bool:
    return kind == "Create" and LOCK.search(f"/{of['slot']['name']}>") is not None


def _between(seen: list[str], recorded: list[str]) -> list[str]:
    """The part of the trace that is equal to the record; else the whole trace."""
    text, wanted = " ".join(seen), " ".join(recorded)
    at = text.find(wanted)
    return text[at : at + len(wanted)].split(" ") if at >= 0 else seen
