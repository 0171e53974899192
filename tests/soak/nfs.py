"""Two hosts on a real NFS server, in a virtual machine that is built and booted here.

    python -m tests.soak.nfs --rounds 30                 NFS 4.2 and 3, mounted as documented

First each host acts after changes by the other, and both put, claim and delete the same ids at
once. Then both run mq, mover and reaper, and clients of every verb; programs are killed, hosts are
disconnected, answers are lost while the server restarts. Then both use one ordered log. At last the
rate at which both publish to a log is compared with that of one host (--only rates: only this).
Prints the broken promises. With any the exit code is 1. As root, with qemu and mmdebstrap; the
processor is emulated, so all is slow.
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

# The same as in docs/howto/several-hosts.md.
MOUNTS = {
    "4.2": "vers=4.2,hard,noatime,lookupcache=positive",
    "3": "vers=3,hard,noatime,lookupcache=none",
}
STAGES = ("hosts", "logs", "rates")


@click.command(help=__doc__)
@click.option("--rounds", default=30, show_default=True, help="Of each version.")
@click.option("--lives", default=60, show_default=True, help="Of ids that both hosts put at once.")
@click.option("--seconds", default=120, show_default=True, help="Of work on an ordered log.")
@click.option("--rates", default=3, show_default=True, help="Measurements of one and of both.")
@click.option("--rate-seconds", default=20, show_default=True, help="Of each measurement.")
@click.option("--delay", default=20, show_default=True, help="Of a slow network, in ms.")
@click.option("--only", type=click.Choice(STAGES), help="Only this stage.")
@click.option("--version", type=click.Choice(list(MOUNTS)), help="Only this one.")
@click.option("--seed", type=int, help="Of the random moments and load; default: the time.")
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    default=HOME / "build" / "nfs",
    help="The folder of the machine.  [default: build/nfs]",
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
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # also ends the machine
    disk = Image(image)
    try:
        disk.make()
    except NoMachine as error:
        print(f"NO NFS: {error}")
        sys.exit(1)
    is_right = True
    rate_options = (f"--times={rates}", f"--seconds={rate_seconds}", f"--delay-ms={delay}")
    programs: dict[str, tuple[str, ...]] = {
        "hosts": ("tests.nfs.guest", f"--rounds={rounds}", f"--seed={seed}", f"--lives={lives}"),
        "logs": ("tests.nfs.ordered_logs", f"--seconds={seconds}"),
        "rates": ("tests.nfs.log_rates", *rate_options),
    }
    for each in MOUNTS if version is None else (version,):
        print(f"NFS {each}", flush=True)
        with tempfile.TemporaryDirectory(prefix="fsmq-nfs-") as folder:
            for stage in STAGES if only is None else (only,):
                module, *options = programs[stage]
                place = Path(folder, module)
                place.mkdir()
                try:
                    for line in run(disk, place, module, *options, f"--options={MOUNTS[each]}"):
                        print(f"  {line}", flush=True)
                except RuntimeError as error:
                    print(error)
                    is_right = False
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
