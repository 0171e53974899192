"""Thousands of power cuts and hundreds of kills.

    python -m tests.soak.power        2,000 power cuts, 500 kills, 400 cuts of a fifo queue with
                                      kills and clock changes, 20 of each kind of log, schedule and
                                      given id, 400 kills on logs, crash states of any two verbs
    python -m tests.soak.power --cuts 100 --kills 0 --fifo 0 --others 0 --no-replay --seed 7

Prints the broken promises. With any the exit code is 1. As root; about an hour on two cores.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import click

from fsmq.spool.durability.sync import SyncMode
from tests.faults import test_killed_logs
from tests.power import test_by_id, test_log_power, test_schedule_power
from tests.power.clients import CONTENDED, MIXED
from tests.power.disk import CannotMount, Disk
from tests.power.kills import HOSTS, ONE_SLOWER, TwoSuites
from tests.power.programs import Programs
from tests.power.results import Results
from tests.power.rounds import Campaign
from tests.power.test_fifo_power import story
from tests.replay.plans import all_happenings, all_of
from tests.replay.scenario import Scenario, check_scenario, record
from tests.replay.states import TooMany
from tests.replay.verbs import VERBS

ROUNDS_EACH = 25  # with one image
FILESYSTEMS = ("ext4", "xfs")
SYNCS = ("auto", "fsync", "syncfs")
FIFO_SYNCS: Sequence[SyncMode] = ("auto", "fsync")
LOADS = (MIXED, CONTENDED)
# Other stories and their variants.
OTHERS: dict[str, tuple[Callable[[Disk, Path, Any, int, str], None], Sequence[str]]] = {
    "logs": (test_log_power.story, ("host", "hosts")),
    "schedules": (test_schedule_power.story, FIFO_SYNCS),
    "ids": (test_by_id.story, FIFO_SYNCS),
}


def cuts(
    rounds: int, seed: int, folder: Path, syncs: Sequence[str] = SYNCS
) -> Iterator[tuple[str, Results]]:
    """Cut the power in each configuration in turn; the results of each image."""
    images = -(-rounds // ROUNDS_EACH)
    configurations = cycle(product(FILESYSTEMS, syncs, (1, 2)))
    for number, (kind, sync, processes) in enumerate(islice(configurations, images)):
        name = f"{kind}, --sync {sync}, {processes} {'process' if processes == 1 else 'processes'}"
        here = folder / f"image-{number}"
        with Disk(here, kind) as disk, Programs(here / "logs") as programs:
            campaign = Campaign(
                disk, programs, here, sync=sync, processes=processes, seed=(seed, number)
            )
            yield name, campaign.run(min(ROUNDS_EACH, rounds - number * ROUNDS_EACH))


def run_cuts(rounds: int, seed: int, folder: Path, syncs: Sequence[str]) -> Results:
    total = Results()
    by_name: dict[str, Results] = {}
    try:
        with click.progressbar(length=rounds, label="power cuts", file=sys.stderr) as bar:
            for name, results in cuts(rounds, seed, folder, syncs):
                by_name.setdefault(name, Results()).add(results)
                total.add(results)
                bar.update(results.rounds)
                for finding in results.findings:
                    print(f"\n{name}: {finding.kind}: {finding.text}", flush=True)
    finally:  # also after Ctrl-C
        for name, results in by_name.items():
            print(f"{name}: {results}")
        print(f"all power cuts: {total}", flush=True)
    return total


def run_kills(rounds: int, seed: int, folder: Path) -> Results:
    total = Results()
    with click.progressbar(length=rounds, label="kills", file=sys.stderr) as bar:
        for number, first in enumerate(range(0, rounds, ROUNDS_EACH)):
            here = folder / f"kills-{number}"
            here.mkdir()
            with Programs(here / "logs") as programs:
                suites = TwoSuites(
                    dict.fromkeys(HOSTS, programs),
                    here,
                    processes=1 + number // len(LOADS) % 2,
                    seed=(seed, number),
                    slow_s=ONE_SLOWER,
                    weights=LOADS[number % len(LOADS)],
                )
                results = suites.run(min(ROUNDS_EACH, rounds - first))
            total.add(results)
            bar.update(results.rounds)
            for finding in results.findings:
                print(f"\nkills: {finding.kind}: {finding.text}", flush=True)
    print(f"all kills: {total}")
    return total


def run_fifo(rounds: int, seed: int, folder: Path) -> int:
    """Cut the power of a fifo queue while programs are killed and clocks are changed.

    Returns how many images break a promise.
    """
    found = kills = 0
    with click.progressbar(length=rounds, label="fifo queues", file=sys.stderr) as bar:
        for number, first in enumerate(range(0, rounds, ROUNDS_EACH)):
            kind, sync = FILESYSTEMS[number % 2], FIFO_SYNCS[number // 2 % 2]
            here, cut = folder / f"fifo-{number}", min(ROUNDS_EACH, rounds - first)
            with Disk(here, kind) as disk:
                try:
                    kills += story(disk, here, sync, cut, f"{seed}-{number}")
                except AssertionError:
                    found += 1
                    print(f"\nfifo queue, {kind}, --sync {sync}:", traceback.format_exc())
            bar.update(cut)
    print(f"fifo queues: {rounds} cuts, {kills} programs killed, {found} images break a promise")
    return found


def run_others(rounds: int, seed: int, folder: Path) -> int:
    """Cut the power of logs, schedules and ids in all configurations, and kill users of logs.

    rounds: cuts of each configuration, and a tenth of the kills of each kind of log. Returns how
    many configurations break a promise.
    """
    found = 0
    configurations = [
        (name, kind, variant)
        for name, (_, variants) in OTHERS.items()
        for kind, variant in product(FILESYSTEMS, variants)
    ]
    with click.progressbar(configurations, label="logs, schedules, ids", file=sys.stderr) as bar:
        for name, kind, variant in bar:
            here = folder / f"{name}-{kind}-{variant}"
            with Disk(here, kind) as disk:
                story_seed = f"{seed}{kind}{variant}"
                play = partial(OTHERS[name][0], disk, here, variant, rounds, story_seed)
                found += not _keeps(f"{name}, {kind}, {variant}", play)
    for writers in ("host", "hosts"):
        here = folder / f"killed-{writers}"
        here.mkdir()
        play = partial(test_killed_logs.story, here, writers, 10 * rounds, f"{seed}")
        found += not _keeps(f"kills on logs, {writers}", play)
    print(f"logs, schedules, ids: {rounds * len(configurations)} cuts, {found} break a promise")
    return found


def _keeps(name: str, story: Callable[[], object]) -> bool:
    """Whether a story keeps all promises; a broken one is printed."""
    try:
        story()
    except AssertionError:
        print(f"\n{name}:", traceback.format_exc(), flush=True)
        return False
    return True


@dataclass
class Replays:
    """The crash states of one verb with each other verb behind it.

    new: states that were not in an earlier scenario. skipped: scenarios with too many states.
    """

    verb: str
    states: int = 0
    new: int = 0
    scenarios: int = 0
    skipped: int = 0
    broken: list[str] = field(default_factory=list)

    def add(self, name: str, scenario: Scenario) -> None:
        self.scenarios += 1
        try:
            checked = check_scenario(scenario, seen=_SEEN)
        except TooMany:
            self.skipped += 1
            return
        self.states += checked.states
        self.broken += (f"{name}: {text}" for text in checked.broken)


_SEEN: set[object] = set()  # states that this process has inspected


def replays_of(first: str) -> Replays:
    """Every crash state of one verb with a mover, with syncfs, and with any verb behind it.

    The first verb is acknowledged, or another process has done it without its last syncs. Also each
    of its calls fails, or a program starts there, and then another process tries the same.
    """
    found = Replays(first)
    before = len(_SEEN)
    for scenario in all_of(first):
        found.add(first, scenario)
    for second in VERBS:
        for scenario in (record([first, second]), record([second], others=[first])):
            found.add(f"{first}, {second}", scenario)
    for name, scenario in all_happenings(first):
        found.add(name, scenario)
    found.new = len(_SEEN) - before
    return found


def run_replays(verbs: Sequence[str], jobs: int) -> int:
    """Inspect every crash state of any two verbs; how many are broken."""
    total = Replays("all")
    context = multiprocessing.get_context("spawn")
    with (
        context.Pool(jobs) as pool,
        click.progressbar(length=len(verbs), label="replays", file=sys.stderr) as bar,
    ):
        for found in pool.imap_unordered(replays_of, verbs):
            total.states += found.states
            total.new += found.new
            total.scenarios += found.scenarios
            total.skipped += found.skipped
            total.broken += found.broken
            print(
                f"\ncrash states of {found.verb} and any verb behind it: {found.states},"
                f" {found.new} of them new, {len(found.broken)} break a promise",
                *found.broken,
                sep="\n",
                flush=True,
            )
            bar.update(1)
    print(
        f"crash states of {len(verbs)} verbs with each of {len(VERBS)} behind them, the first"
        f" acknowledged or not: {total.states}, {total.new} of them different,"
        f" {len(total.broken)} break a promise; {total.skipped} of {total.scenarios} scenarios"
        " have too many states and were skipped"
    )
    return len(total.broken)


@click.command(help=__doc__)
@click.option("--cuts", "rounds", default=2000, show_default=True, help="Power cuts.")
@click.option("--kills", default=500, show_default=True, help="Rounds of kills.")
@click.option("--fifo", default=400, show_default=True, help="Power cuts of a fifo queue.")
@click.option("--others", default=20, show_default=True, help="Power cuts of logs and others.")
@click.option("--sync", "syncs", type=click.Choice(SYNCS), multiple=True, help="Only with these.")
@click.option("--seed", type=int, help="Of the random moments and load; default: the time.")
@click.option("--replay/--no-replay", default=True, show_default=True, help="Crash states.")
@click.option("--verb", "verbs", type=click.Choice(VERBS), multiple=True, help="Only these first.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default="cores", help="For the states.")
def main(
    rounds: int,
    kills: int,
    fifo: int,
    others: int,
    syncs: Sequence[str],
    seed: int | None,
    replay: bool,
    verbs: Sequence[str],
    jobs: int,
) -> None:
    seed = int(time.time()) if seed is None else seed
    started = time.monotonic()
    print(f"seed {seed}")
    findings = 0
    with tempfile.TemporaryDirectory(prefix="fsmq-soak-") as folder:
        if rounds:
            try:
                findings += len(run_cuts(rounds, seed, Path(folder), syncs or SYNCS).findings)
            except CannotMount as error:
                text = f"{error}; --cuts 0 --fifo 0 --others 0 skips all cuts"
                raise click.ClickException(text) from None
        if others:
            findings += run_others(others, seed, Path(folder))
        if fifo:
            findings += run_fifo(fifo, seed, Path(folder))
        if kills:
            findings += len(run_kills(kills, seed, Path(folder)).findings)
        if replay:
            findings += run_replays(verbs or VERBS, jobs)
    print(f"{time.monotonic() - started:.0f} s, {findings} findings")
    sys.exit(findings > 0)


if __name__ == "__main__":
    main()
