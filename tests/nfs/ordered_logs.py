"""Two hosts on real NFS that publish to one log and claim from its channels.

    python -m tests.nfs.ordered_logs --seconds 60 --options vers=4.2,hard

First a writer is stopped in its turn until another has taken the turn. Then programs are stopped
and killed, and answers are lost while the server restarts. A reader on each host compares the log
with the messages that it read before: no offset ever has two messages.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from subprocess import Popen

import click

from tests.harness.hosts import Host
from tests.harness.log_load import Told, prepare
from tests.harness.suite import HOME, PATIENCE_S, eventually
from tests.nfs import remembered, stopped_turns
from tests.nfs.export import Export, mounted
from tests.nfs.rivals import Remote, Rivals

# Writers wait for a stopped writer for a shorter time than by default.
_QUICK = "import fsmq.spool.log.segment.tail as t\nt._PATIENCE_WITH_TURNS_S = 1.0, 2.0\n"
LOAD = """
import sys
from pathlib import Path
from tests.harness.log_load import work
kind, root, answers = sys.argv[1:]
work(kind, Path(root), Path(answers), hold_s=20.0)
"""
READER = """
import sys, time
from fsmq.spool import Spool, Unavailable
root, faults = sys.argv[2:4]
seen = {}
with Spool(root, delivers=False) as spool, open(faults, "w", buffering=1) as file:
    log = spool.log("users")
    while True:
        try:
            for message in log.read(max(0, len(seen) - 200)):
                if seen.setdefault(message.offset, message.body) != message.body:
                    print("two", message.offset, seen[message.offset], message.body, file=file)
        except Unavailable:
            time.sleep(0.1)
"""
KINDS = ("publish", "none", "key", "keep", "read")


def start(host: Host, kind: str, root: Path, output: Path) -> Popen[bytes]:
    program = _QUICK + (READER if kind == "read" else LOAD)
    command = [*host.enter, sys.executable, "-c", program, kind, str(root), str(output)]
    path = f"{HOME}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path}
    return Popen(command, cwd=HOME, env=environment, start_new_session=True)


def send(process: Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole process group, because the program may run within a namespace."""
    os.killpg(process.pid, number)


@click.command()
@click.option("--seconds", type=int, required=True)
@click.option("--options", required=True)
def main(seconds: int, options: str) -> None:
    with mounted(options) as place:
        print("mounted", flush=True)
        stopped, spool = place.root / "stopped", place.export.folder / "spool"
        with (
            Rivals(*place.hosts, stopped) as rivals,
            closing(Remote(place.hosts[1], stopped)) as second,
        ):
            findings = remembered.check(*rivals, second) + stopped_turns.check(*rivals)
        for finding in findings:
            print(f"{finding.kind}: {finding.text}")
        prepare(spool, "hosts")
        work = [(host, kind) for host in place.hosts for kind in KINDS]
        files = [place.folder / f"{n}-{kind}" for n, (_, kind) in enumerate(work)]
        strike(work, files, place.root / "spool", seconds, place.export)
        answers = Told([file for file in files if not file.name.endswith("read")])
        answers.read()
        print(f"answered {len(answers.answered)}, done {sum(map(len, answers.done.values()))}")
        for file in files:
            if file.name.endswith("read"):
                assert file.read_text() == "", file.read_text()
        print(f"refused: {sorted(set(answers.refused))}")
        assert len(answers.answered) > 20
        names = sorted(path.name for path in (spool / "logs/users/log").iterdir())
        print(f"{len(names)} names, turns: {[name for name in names if name.startswith('.turn')]}")
        answers.judge(spool)
        assert not findings
    print("results: no message is lost, no offset has two messages")


def strike(
    work: list[tuple[Host, str]], files: list[Path], root: Path, seconds: int, export: Export
) -> None:
    """Stop programs for a while, kill and restart others, and lose answers of the server."""
    rng = random.Random(seconds)
    running = [
        start(host, kind, root, file) for (host, kind), file in zip(work, files, strict=True)
    ]
    stopped: dict[int, float] = {}
    counts = {"stopped": 0, "killed": 0, "answers lost": 0}
    try:
        eventually(lambda: all(file.exists() for file in files), PATIENCE_S)
        end = time.monotonic() + seconds
        next_loss = time.monotonic() + seconds / 4
        while time.monotonic() < end:
            time.sleep(0.5)
            for process, (_, kind) in zip(running, work, strict=True):
                assert process.poll() is None, f"a program ended by itself: {kind}"
            if time.monotonic() > next_loss:
                next_loss += seconds / 3
                with export.losing_answers(rng.choice(work)[0]):
                    time.sleep(2)
                    export.restart()
                counts["answers lost"] += 1
            for number in [n for n, until in stopped.items() if time.monotonic() > until]:
                send(running[number], signal.SIGCONT)
                del stopped[number]
            number = rng.randrange(len(work))
            if number in stopped or work[number][1] in ("read", "keep"):
                continue
            if rng.random() < 0.7:
                send(running[number], signal.SIGSTOP)
                stopped[number] = time.monotonic() + rng.choice([0.5, 3, 15])
                counts["stopped"] += 1
            elif files[number].exists() and files[number].stat().st_size:
                send(running[number], signal.SIGKILL)
                running[number].wait()
                running[number] = start(*work[number], root, files[number])
                counts["killed"] += 1
    finally:
        for process in running:
            send(process, signal.SIGKILL)
            process.wait()
    print(counts, flush=True)
    subprocess.run(["sync"], check=True)


if __name__ == "__main__":
    main()
