"""The program in the machine: `python -m tests.nfs.guest --rounds 20 --options vers=4.2,hard`.

First two hosts act step by step, then under load and faults.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from tests.harness.hosts import Host, Hosts
from tests.harness.suite import HOME
from tests.nfs import memory, same_ids
from tests.nfs.export import Export
from tests.nfs.rivals import Rivals
from tests.nfs.two_hosts import TwoHosts
from tests.power.daemons import Daemons
from tests.power.history import Finding
from tests.power.kills import HOSTS
from tests.power.programs import Programs

_EXPORTED = Path("/srv/export")


@click.command()
@click.option("--rounds", type=int, required=True)
@click.option("--options", required=True)
@click.option("--seed", type=int, required=True)
@click.option("--lives", type=int, required=True)
def main(rounds: int, options: str, seed: int, lives: int) -> None:
    began = time.monotonic()
    export = Export(_EXPORTED)
    export.start()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        mounted = folder / "mq"
        mounted.mkdir()
        hosts = held.enter_context(Hosts(folder, None, *HOSTS))
        places = dict(zip(HOSTS, hosts.others, strict=True))
        for host in hosts.others:
            export.mount(host, mounted, options)
        print(places["one"].run("grep", " nfs", "/proc/mounts").strip())
        _probe(places["one"].enter, mounted)
        programs_of = {
            node: held.enter_context(Programs(folder / f"{node}-logs", host))
            for node, host in places.items()
        }
        here = held.enter_context(Programs(folder / "server-logs"))
        inspector = Daemons(here, _EXPORTED, sync="fsync", node="server")
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        findings = _step_by_step(export, hosts.others, mounted, lives)
        print(f"steps until {time.monotonic() - began:.0f} s", flush=True)
        hosts = TwoHosts(
            places,
            programs_of,
            export,
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


def _step_by_step(
    export: Export, hosts: Sequence[Host], mounted: Path, lives: int
) -> list[Finding]:
    """Steps of two hosts in turn; last with delegations, which many servers never give."""
    findings = []
    for gives in (False, True):
        export.delegate(gives)
        print(f"step by step, delegations: {gives}", flush=True)
        folder = f"steps-{gives}"
        with Rivals(*hosts, mounted / folder) as rivals:
            findings += memory.check(*rivals)
            findings += same_ids.check(*rivals, lives)
        shutil.rmtree(export.folder / folder)
    return findings


def _probe(enter: list[str], root: Path) -> None:
    """Print what the programs will detect about this filesystem."""
    command = [*enter, sys.executable, "-m", "fsmq.cli", "probe", "--root", str(root)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    print(done.stdout, done.stderr, f"fsmq probe: {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
