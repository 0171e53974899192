"""Two hosts on real NFS that act step by step, then under load and faults.

python -m tests.nfs.guest --rounds 20 --options vers=4.2,hard
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from tests.harness.suite import HOME
from tests.nfs import memory, same_ids
from tests.nfs.export import Mounted, mounted
from tests.nfs.rivals import Rivals
from tests.nfs.two_hosts import TwoHosts
from tests.power.daemons import Daemons
from tests.power.history import Finding
from tests.power.kills import HOSTS
from tests.power.programs import Programs


@click.command()
@click.option("--rounds", type=int, required=True)
@click.option("--options", required=True)
@click.option("--seed", type=int, required=True)
@click.option("--lives", type=int, required=True)
def main(rounds: int, options: str, seed: int, lives: int) -> None:
    began = time.monotonic()
    with ExitStack() as held:
        place = held.enter_context(mounted(options))
        folder = place.folder
        places = dict(zip(HOSTS, place.hosts, strict=True))
        print(places["one"].run("grep", " nfs", "/proc/mounts").strip())
        _probe(places["one"].enter, place.root)
        programs_of = {
            node: held.enter_context(Programs(folder / f"{node}-logs", host))
            for node, host in places.items()
        }
        here = held.enter_context(Programs(folder / "server-logs"))
        inspector = Daemons(here, place.export.folder, sync="fsync", node="server")
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        findings = _step_by_step(place, lives)
        print(f"steps until {time.monotonic() - began:.0f} s", flush=True)
        hosts = TwoHosts(
            places,
            programs_of,
            place.export,
            folder,
            inspector,
            keeps_reasons="vers=3" not in options,
            seed=seed,
        )
        began = time.monotonic()
        try:
            results = hosts.run(rounds)
        finally:
            print(f"strikes: {dict(hosts.strikes)}, {time.monotonic() - began:.0f} s")
            for log in sorted(folder.glob("*-logs/*.log")):
                print(log.name, log.read_text()[-600:])
        results.findings += findings
        for finding in results.findings:
            print(f"{finding.kind}: {finding.text}")
        print(f"results: {results}")
    sys.exit(bool(results.findings))


def _step_by_step(place: Mounted, lives: int) -> list[Finding]:
    """Steps of two hosts in turn, without and with delegations, which many servers never give."""
    findings = []
    for delegations in (False, True):
        place.export.set_delegations(delegations)
        print(f"step by step, delegations: {delegations}", flush=True)
        folder = f"steps-{delegations}"
        with Rivals(*place.hosts, place.root / folder) as rivals:
            findings += memory.check(*rivals)
            findings += same_ids.check(*rivals, lives)
        shutil.rmtree(place.export.folder / folder)
    return findings


def _probe(enter: list[str], root: Path) -> None:
    """Print what fsmq detects about this filesystem."""
    command = [*enter, sys.executable, "-m", "fsmq.cli", "probe", "--root", str(root)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    print(done.stdout, done.stderr, f"fsmq probe: {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
