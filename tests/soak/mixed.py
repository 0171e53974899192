"""Concurrent programs do random actions; they are killed, stopped and started, and calls fail.

    python -m tests.soak.mixed                 a minute of each story, of the limit of claims, and
                                               of a log with many publishers and each setting
    python -m tests.soak.mixed --seconds 600 --only "given ids" --seed 7

Prints the traces of rounds that break a promise. With any the exit code is 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

from tests.harness.log_load import many_messages
from tests.replay.place import scratch
from tests.soak import limited
from tests.stories.every import STORIES
from tests.stories.fuzz import Round
from tests.stories.story import Story

Outcome = tuple[int, list[str]]  # the number of rounds or messages, and the broken promises


def rounds(story: Story, folder: Path, seconds: float, seed: str) -> Outcome:
    """Play rounds of a story."""
    end = time.monotonic() + seconds
    number, found = 0, []
    while time.monotonic() < end:
        number += 1
        played = Round(story, folder / "mq", f"{seed}-{number}")
        if fault := played.play():
            lines = [f"{story.name}, round {number}:", *played.trace, f"=> {fault}"]
            found.append("\n    ".join(lines))
    return number, found


def _limit(folder: Path, seconds: float, seed: str) -> Outcome:
    return 1, limited.story(folder / "mq", seconds, seed)


def _many(writers: str, folder: Path, seconds: float, seed: str) -> Outcome:
    return many_messages(folder / "mq", writers, seconds, seed)


def _all() -> Iterator[tuple[str, Callable[[Path, float, str], Outcome]]]:
    for name, story in STORIES.items():
        yield name, partial(rounds, story)
    yield "the limit of claims", _limit
    for writers in ("host", "hosts"):
        yield f"a log with many messages, writers={writers}", partial(_many, writers)


PLAYS = dict(_all())


@click.command(help=__doc__)
@click.option("--seconds", default=60.0, show_default=True, help="Of each.")
@click.option("--only", type=click.Choice(list(PLAYS)), multiple=True)
@click.option("--seed", type=int, help="Of the random choices; default: the time.")
def main(seconds: float, only: tuple[str, ...], seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    broken = 0
    print(f"seed {seed}")
    for name in only or PLAYS:
        with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-mixed-") as folder:
            number, found = PLAYS[name](Path(folder), seconds, f"{seed}")
        broken += len(found)
        print(*found[:3], f"{name}: {number}, {len(found)} break a promise", sep="\n", flush=True)
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
