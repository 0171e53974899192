"""Two hosts on real NFS that publish to one log, claim from its channels and merge, stopped and
killed: `python -m tests.nfs.ordered_logs --seconds 60 --options vers=4.2,hard`.

A reader on each host compares what it sees with what was there before: no offset means two things.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen

import click

from tests.harness.hosts import Host, Hosts
from tests.harness.log_load import PROGRAM, Told, prepare
from tests.harness.suite import HOME
from tests.nfs.export import Export
from tests.power.kills import HOSTS

_EXPORTED = Path("/srv/export")
# The times of a writer's trust and of a merge, a hundred times as short, so that names become free.
_QUICK = "import fsmq.spool.log.linking as l, fsmq.spool.log.merging as m\nl.TRUST_S = 1.0\n"
_QUICK += "m.Merger.__init__.__kwdefaults__.update(after_s=6.0, kept=20)\n"
READER = """
import sys
from fsmq.spool import Spool
root, told = sys.argv[2:4]
seen = {}
with Spool(root, delivers=False) as spool, open(told, "w", buffering=1) as file:
    log = spool.log("users")
    while True:
        for message in log.read(max(0, len(seen) - 200)):
            if seen.setdefault(message.offset, message.body) != message.body:
                print("two things", message.offset, seen[message.offset], message.body, file=file)
"""
KINDS = ("publish", "none", "key", "keep", "read")


def start(host: Host, what: str, root: Path, told: Path) -> Popen[bytes]:
    program = _QUICK + (READER if what == "read" else PROGRAM.replace("0.5", "20"))
    command = [*host.enter, sys.executable, "-c", program, what, str(root), str(told)]
    path = f"{HOME}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path}
    return Popen(command, cwd=HOME, env=environment, start_new_session=True)


def send(process: Popen[bytes], number: signal.Signals) -> None:
    """To all that the process has started, too: it may be within a namespace."""
    os.killpg(process.pid, number)


@click.command()
@click.option("--seconds", type=int, required=True)
@click.option("--options", required=True)
def main(seconds: int, options: str) -> None:
    export = Export(_EXPORTED)
    export.start()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        mounted = folder / "mq"
        mounted.mkdir()
        hosts = held.enter_context(Hosts(folder, None, *HOSTS))
        for host in hosts.others:
            export.mount(host, mounted, options)
        print("mounted", flush=True)
        prepare(_EXPORTED / "spool", "hosts")
        work = [(host, kind) for host in hosts.others for kind in KINDS]
        files = [folder / f"{n}-{kind}" for n, (_, kind) in enumerate(work)]
        strike(work, files, mounted / "spool", seconds)
        told = Told([file for file in files if not file.name.endswith("read")])
        told.read()
        print(f"answered {len(told.answered)}, done {sum(map(len, told.done.values()))}")
        for file in files:
            if file.name.endswith("read"):
                assert file.read_text() == "", file.read_text()
        assert len(told.answered) > 20
        names = sorted(path.name for path in (_EXPORTED / "spool/logs/users/log").iterdir())
        print(f"{len(names)} names, merged: {[name for name in names if '-' in name]}")
        told.judge(_EXPORTED / "spool")
    print("results: nothing lost, no offset means two things")


def strike(work: list[tuple[Host, str]], files: list[Path], root: Path, seconds: int) -> None:
    """Let them work, stop some for a while, kill and start others."""
    rng = random.Random(seconds)
    running = [
        start(host, kind, root, file) for (host, kind), file in zip(work, files, strict=True)
    ]
    stopped: dict[int, float] = {}
    counts = {"stopped": 0, "killed": 0}
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
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
