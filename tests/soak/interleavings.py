"""All interleavings: each verb is stopped before each of its calls while other programs act.

    python -m tests.soak.interleavings                  all of them (half an hour on two cores)
    python -m tests.soak.interleavings --shape pairs --verb claim --no-logs

Prints the broken promises, each with the calls of one schedule. With any the exit code is 1.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import click

from tests.interleave import test_logs
from tests.interleave.explore import Explored, explore_all
from tests.interleave.plans import ALL
from tests.interleave.verbs import VERBS
from tests.replay.place import scratch


@click.command(help=__doc__)
@click.option("--shape", "shapes", type=click.Choice(list(ALL)), multiple=True, help="Only these.")
@click.option("--verb", "verbs", type=click.Choice(list(VERBS)), multiple=True, help="Only these.")
@click.option("--logs/--no-logs", default=True, show_default=True, help="Also verbs of logs.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default="one for each core")
def main(shapes: tuple[str, ...], verbs: tuple[str, ...], logs: bool, jobs: int) -> None:
    plans = [
        (shape, plan)
        for shape in shapes or ALL
        for plan in ALL[shape]()
        if not verbs or plan.verb in verbs
    ]
    started = time.monotonic()
    tried: Counter[str] = Counter()
    schedules: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    with click.progressbar(length=len(plans), label="interleavings", file=sys.stderr) as bar:
        for shape, done in explore_all(plans, jobs):
            bar.update(1)
            tried[shape] += 1
            schedules[shape] += done.schedules
            findings[shape] += len(done.findings)
            if done.findings:
                _print(done)
    for shape in tried:
        print(
            f"{shape}: {tried[shape]} plans, {schedules[shape]} schedules,"
            f" {findings[shape]} of them break a promise"
        )
    if logs:
        findings["logs"] = _explore_logs(jobs)
    print(f"{time.monotonic() - started:.0f} s, {findings.total()} findings")
    sys.exit(findings.total() > 0)


def _explore_logs(jobs: int) -> int:
    """Explore each verb of logs with each other; how many break a promise."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        found = list(filter(None, pool.imap_unordered(_explore_log, test_logs.CASES)))
    print(*found, f"logs: {len(test_logs.CASES)} verbs, {len(found)} of them fail", sep="\n")
    return len(found)


def _explore_log(case: tuple[str, test_logs.Step]) -> str:
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-interleave-") as folder:
        try:
            test_logs.explore(Path(folder), *case)
        except AssertionError:
            return f"{case[0]}: {traceback.format_exc()}"
    return ""


def _print(done: Explored) -> None:
    first = done.findings[0]
    header = f"\n{done.plan}: {len(done.findings)} of {done.schedules} schedules, such as"
    print(f"{header} {first.stops}", *first.trace, f"=> {first.what}", sep="\n", flush=True)


if __name__ == "__main__":
    main()
