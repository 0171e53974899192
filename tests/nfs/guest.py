"""What runs in the machine: `python -m tests.nfs.guest --rounds 20 --options vers=4.2,hard`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from tests.hosts import Hosts
from tests.nfs.battle import NfsBattle
from tests.nfs.export import Export
from tests.power.daemons import Daemons
from tests.power.kills import HOSTS
from tests.power.nursery import Nursery
from tests.suite import HOME

_EXPORTED = Path("/srv/export")


@click.command()
@click.option("--rounds", type=int, required=True)
@click.option("--options", required=True)
@click.option("--seed", type=int, required=True)
def main(rounds: int, options: str, seed: int) -> None:
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
        nurseries = {
            node: held.enter_context(Nursery(folder / f"{node}-logs", host))
            for node, host in places.items()
        }
        here = held.enter_context(Nursery(folder / "server-logs"))
        inspector = Daemons(here, _EXPORTED, sync="fsync", node="server")
        print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
        battle = NfsBattle(places, nurseries, export, folder, inspector, seed=seed)
        began = time.monotonic()
        try:
            tally = battle.run(rounds)
        finally:
            print(f"strikes: {dict(battle.strikes)}, {time.monotonic() - began:.0f} s")
            for log in sorted(folder.glob("*-logs/*.log")):
                print(log.name, log.read_text()[-600:])
        for finding in tally.findings:
            print(f"{finding.kind}: {finding.text}")
        print(f"tally: {tally}")
    sys.exit(bool(tally.findings))


def _probe(enter: list[str], root: Path) -> None:
    """Say what the programs will find out about this filesystem."""
    command = [*enter, sys.executable, "-m", "fsmq.cli", "probe", "--root", str(root)]
    told = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    print(told.stdout, told.stderr, f"fsmq probe: {told.returncode}", flush=True)


if __name__ == "__main__":
    main()
