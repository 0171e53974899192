"""Two hosts on a real NFS server, in a virtual machine that this makes and boots.

    python -m tests.soak.nfs --rounds 30                 NFS 4.2 and 3, as the documentation mounts

First they act step by step on what the other changes, and put, claim and delete the same ids at
once. Then both run mq, mover and reaper, and clients of every verb; programs are killed, cables
pulled, answers lost while the server is started again. Then both work on an ordered log. At last
it is measured how fast they publish to one, against one host alone: --only rates for nothing else.
Exit code 1 and the findings if a promise was broken. As root, with qemu and mmdebstrap; the
processor is emulated, so all of it is slow.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.harness.suite import HOME
from tests.nfs.image import Image, NoMachine
from tests.nfs.machine import run

# As docs/howto/several-hosts.md has it.
MOUNTS = {
    "4.2": "vers=4.2,hard,noatime,lookupcache=positive",
    "3": "vers=3,hard,noatime,lookupcache=none",
}
STAGES = ("hosts", "logs", "rates")


@click.command(help=__doc__)
@click.option("--rounds", default=30, show_default=True, help="Of each version.")
@click.option("--lives", default=60, show_default=True, help="Of ids that both hosts put at once.")
@click.option("--seconds", default=120, show_default=True, help="Of work on an ordered log.")
@click.option("--rates", default=3, show_default=True, help="Times to measure one host, and both.")
@click.option("--rate-seconds", default=20, show_default=True, help="Of each measurement.")
@click.option("--delay", default=20, show_default=True, help="Milliseconds of a slow network.")
@click.option("--only", type=click.Choice(STAGES), help="Only this stage.")
@click.option("--version", type=click.Choice(list(MOUNTS)), help="Only this one.")
@click.option("--seed", type=int, help="Of the moments and the load; the time if not given.")
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    default=HOME / "build" / "nfs",
    help="Where the machine is kept.  [default: build/nfs]",
)
def main(
    rounds: int,
    lives: int,
    seconds: int,
    rates: int,
    rate_seconds: int,
    delay: int,
    only: str | None,
    version: str | None,
    seed: int | None,
    image: Path,
) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # ends the machine, too
    disk = Image(image)
    try:
        disk.make()
    except NoMachine as error:
        print(f"NO NFS: {error}")
        sys.exit(1)
    is_right = True
    for each in MOUNTS if version is None else (version,):
        print(f"NFS {each}", flush=True)
        with tempfile.TemporaryDirectory(prefix="fsmq-nfs-") as folder:
            mount = f"--options={MOUNTS[each]}"
            of_queues = (f"--rounds={rounds}", mount, f"--seed={seed}", f"--lives={lives}")
            of_logs = (f"--seconds={seconds}", mount)
            of_rates = (
                f"--times={rates}",
                f"--seconds={rate_seconds}",
                f"--delay-ms={delay}",
                mount,
            )
            for stage, module, words in zip(
                STAGES,
                ("tests.nfs.guest", "tests.nfs.ordered_logs", "tests.nfs.log_rates"),
                (of_queues, of_logs, of_rates),
                strict=True,
            ):
                if only not in (None, stage):
                    continue
                place = Path(folder, module)
                place.mkdir()
                try:
                    for line in run(disk, place, module, *words):
                        print(f"  {line}", flush=True)
                except RuntimeError as error:
                    print(error)
                    is_right = False
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
