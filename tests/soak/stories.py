"""All plays of all stories: at every call it fails, or programs start, are stopped or meet.

    python -m tests.soak.stories
    python -m tests.soak.stories --story "given ids" --kind starts

Prints the broken promises, each with the trace of one play. With any the exit code is 1.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter

import click

from tests.power.disk import ext4_if_possible
from tests.stories.every import STORIES
from tests.stories.plays import KINDS, Finding, Play, explore

Explored = tuple[str, str, Play, int, list[Finding]]


@click.command(help=__doc__)
@click.option("--story", "stories", type=click.Choice(list(STORIES)), multiple=True)
@click.option("--kind", "kinds", type=click.Choice(list(KINDS)), multiple=True)
@click.option("--step", default=1, show_default=True, help="Only at every n-th call.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default="one for each core")
def main(stories: tuple[str, ...], kinds: tuple[str, ...], step: int, jobs: int) -> None:
    tasks = [
        (name, kind, play, step)
        for name in stories or STORIES
        for kind in kinds or KINDS
        for play in KINDS[kind](STORIES[name])
    ]
    started = time.monotonic()
    played: Counter[tuple[str, str]] = Counter()
    broken: Counter[tuple[str, str]] = Counter()
    with (
        multiprocessing.get_context("spawn").Pool(jobs) as pool,
        click.progressbar(length=len(tasks), label="stories", file=sys.stderr) as bar,
    ):
        for name, kind, play, number, findings in pool.imap_unordered(_explore, tasks):
            bar.update(1)
            played[name, kind] += number
            broken[name, kind] += len(findings)
            if findings:
                calls = [str(finding.at) for finding in findings]
                header = f"\n{findings[0]}\n{name}: {play}: at {len(calls)} of {number}:"
                print(header, *calls, flush=True)
    for name, kind in played:
        print(f"{name}, {kind}: {played[name, kind]} plays, {broken[name, kind]} break a promise")
    print(f"{time.monotonic() - started:.0f} s, {broken.total()} findings")
    sys.exit(broken.total() > 0)


def _explore(task: tuple[str, str, Play, int]) -> Explored:
    name, kind, play, step = task
    with ext4_if_possible("fsmq-stories-") as folder:
        found = list(explore(STORIES[name], play, folder, step))
    return name, kind, play, len(found), [finding for finding in found if finding is not None]


if __name__ == "__main__":
    main()
