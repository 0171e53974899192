"""What every row gets: where to work, how long, how often, and how large."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.suite import Suite

from .load import Load, wrk
from .place import Place


@dataclass(frozen=True)
class Sizes:
    """How much of everything; the defaults are what the bars are about."""

    body: int = 1024  # bytes
    group: int = 1000  # messages of one put_many
    few: int = 1_000  # messages waiting
    many: int = 1_000_000
    fetches: int = 100  # at each depth, in each repetition
    contested: int = 100_000  # messages that 64 consumers race for
    # A rival is filled for so long at most: what it takes meanwhile is enough for it. That, or
    # sends that do not count, let a JVM come to its speed.
    rival_fill_s: float = 10.0
    new: int = 200_000  # files in new/ for the mover
    posts_per_s: int = 1_000
    timers: int = 100_000
    timers_within_s: float = 20.0
    head_start_s: float = 7.0  # for the mover to start before the first timer ends
    delayed: int = 1_000_000
    waiters: int = 5_000
    arrivals_per_s: int = 50
    removed: int = 1_000_000
    neighbour_mb_per_s: int = 200
    tabled: int = 100_000  # messages that Spark reads
    connections: tuple[int, ...] = (1, 8, 64, 512)
    clients: tuple[int, ...] = (1, 8, 64)  # of us and of the rivals
    bodies: tuple[int, ...] = (100, 1024, 64 * 1024, 1024 * 1024)
    depths: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    ordered: int = 200_000  # messages waiting in a thousand groups
    one_group: int = 1_000_000  # messages of one group, in front of all others
    log_messages: int = 5_000
    log_channels: int = 1_000
    tasks: int = 2_000  # calls
    processes: tuple[int, ...] = (1, 2, 4)  # each against the first
    # Of a core, for each of them: four such processes, the mover, the load and the kernel's own
    # work fit two cores.
    core_share: float = 0.1


TINY = Sizes(
    processes=(1, 2),
    core_share=0.5,
    ordered=5_000,
    one_group=2_000,
    log_messages=1000,
    log_channels=3,
    tasks=20,
    group=20,
    few=50,
    many=200,
    fetches=5,
    contested=20_000,
    rival_fill_s=0.5,
    new=200,
    posts_per_s=50,
    timers=100,
    timers_within_s=0.5,
    head_start_s=1.5,
    delayed=200,
    waiters=50,
    arrivals_per_s=20,
    removed=200,
    neighbour_mb_per_s=5,
    tabled=200,
    connections=(1, 8),
    clients=(1, 2),
    bodies=(100, 1024),
    depths=(50, 200),
)
"""Sizes that show that a row works, and nothing else."""


@dataclass(frozen=True)
class Bench:
    """How to run.

    repeat: how often; the order is floor, subject, floor, subject …
    seconds: how long each run lasts.
    warm_up: seconds of load before each run that is measured.
    processes: of mq, where the row does not say otherwise; one, as users get it.
    """

    place: Place
    repeat: int = 5
    seconds: float = 3.0
    warm_up: float = 1.0
    processes: int = 1
    sizes: Sizes = field(default_factory=Sizes)
    say: Callable[[str], None] = print

    @contextlib.contextmanager
    def suite(
        self,
        *,
        options: Sequence[str] = (),
        processes: int | None = None,
        mover: bool = False,
        reaper: bool = False,
        everywhere: Sequence[str] = (),
        fill: Callable[[Path], None] | None = None,
        start: bool = True,
    ) -> Iterator[Suite]:
        """The programs on a fresh root, where ``fill`` puts messages before they start."""
        count = self.processes if processes is None else processes
        with self.place.fresh("mq") as folder:
            root = folder / "mq"
            suite = Suite(
                root,
                mq_options=[f"--processes={count}", *options],
                mover=mover,
                reaper=reaper,
                everywhere=everywhere,
                logs=folder / "logs",
                # What a fork server has imported would count as the program's own memory.
                forked=False,
            )
            make_queue(root)
            if fill is not None:
                fill(root)
                self.place.settle()
            try:
                if start:
                    with suite:
                        yield suite
                else:
                    yield suite
            finally:
                suite.close()

    def load(self, suite: Suite, script: str, connections: int, *arguments: object) -> Load:
        """Put load on a suite's queue ``bench``, after a warm-up."""
        return wrk(
            suite.url,
            script,
            connections,
            self.seconds,
            QUEUE,
            *arguments,
            warm_up=self.warm_up,
        )


QUEUE = "bench"


def make_queue(root: Path, name: str = QUEUE) -> Path:
    """Create a queue as a shell user would; its folder."""
    folder = root / "queues" / name
    # mq refuses a root that others may read, as it makes its own.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder
