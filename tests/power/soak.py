"""The long run: thousands of power cuts and hundreds of kills, with figures at the end.

    python -m tests.power.soak                    2,000 power cuts and 500 kill rounds
    python -m tests.power.soak --cuts 100 --kills 0 --seed 7

Exit code 1 and the findings if one promise was broken. As root; some 40 minutes on two cores.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path

import click

from tests.power.disk import CannotMount, Disk
from tests.power.nursery import Nursery
from tests.power.rounds import Campaign, Tally

ROUNDS_EACH = 25  # on one image
CONFIGURATIONS = tuple(product(("ext4", "xfs"), ("fsync", "syncfs"), (1, 2)))


def cuts(rounds: int, seed: int, folder: Path) -> Iterator[tuple[str, Tally]]:
    """Cut the power so many times, in turn in each configuration; a tally after each image."""
    images = -(-rounds // ROUNDS_EACH)
    for number, (kind, sync, processes) in enumerate(islice(cycle(CONFIGURATIONS), images)):
        name = f"{kind}, --sync {sync}, {processes} {'process' if processes == 1 else 'processes'}"
        here = folder / f"image-{number}"
        with Disk(here, kind) as disk, Nursery(here / "logs") as nursery:
            campaign = Campaign(
                disk, nursery, here, sync=sync, processes=processes, seed=(seed, number)
            )
            yield name, campaign.run(min(ROUNDS_EACH, rounds - number * ROUNDS_EACH))


def run_cuts(rounds: int, seed: int, folder: Path) -> Tally:
    total = Tally()
    by_name: dict[str, Tally] = {}
    with click.progressbar(length=rounds, label="power cuts", file=sys.stderr) as bar:
        for name, tally in cuts(rounds, seed, folder):
            by_name.setdefault(name, Tally()).add(tally)
            total.add(tally)
            bar.update(tally.rounds)
            for finding in tally.findings:
                print(f"\n{name}: {finding.kind}: {finding.text}", flush=True)
    for name, tally in by_name.items():
        print(f"{name}: {tally}")
    print(f"power cuts in all: {total}")
    return total


@click.command(help=__doc__)
@click.option("--cuts", "rounds", default=2000, show_default=True, help="Power cuts.")
@click.option("--kills", default=500, show_default=True, help="Rounds of kills.")
@click.option("--seed", type=int, help="Of the moments and the load; the time if not given.")
def main(rounds: int, kills: int, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    started = time.monotonic()
    print(f"seed {seed}")
    findings = 0
    with tempfile.TemporaryDirectory(prefix="fsmq-soak-") as folder:
        if rounds:
            try:
                findings += len(run_cuts(rounds, seed, Path(folder)).findings)
            except CannotMount as error:
                print(f"NO POWER CUTS: {error}")
    print(f"{time.monotonic() - started:.0f} s, {findings} findings")
    sys.exit(findings > 0)


if __name__ == "__main__":
    main()
