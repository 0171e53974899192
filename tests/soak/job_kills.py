"""Kills jobs at a random moment and runs them again.

    python -m tests.soak.job_kills --rounds 3

A round has one spool, with mover and reaper: messages are loaded into two queues, archived and
replayed. Each job is killed once, before, during or after its commit, and run again. Then no
message may be lost or duplicated, and bodies and ids must be unchanged. Otherwise the exit code
is 1.
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from fsmq.spool import Spool, prepare
from fsmq.spool.fsck import check
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.pipeline.processes import PATIENCE_S, Program

QUEUES = ("work-a", "work-b")
_LONGEST_S = 1.5  # from the first change by a job to the kill

Messages = dict[tuple[str, str], tuple[bytes, int]]  # queue and id: body and priority


@dataclass
class Outcome:
    """The results of some rounds.

    kills: by job, how many were killed before they had ended. wrong: the broken promises.
    """

    kills: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.wrong.append(text)

    def add(self, other: Outcome) -> None:
        self.kills += other.kills
        self.runs += other.runs
        self.messages += other.messages
        self.wrong += other.wrong
        self.seconds += other.seconds

    def __str__(self) -> str:
        jobs = ", ".join(f"{job} {self.kills[job]} of {n}" for job, n in self.runs.items())
        return (
            f"killed before the end: {jobs}; {self.messages:,} messages,"
            f" {len(self.wrong)} findings; {self.seconds:.0f} s"
        )


class Jobs:
    """Runs jobs on one spool."""

    def __init__(self, folder: Path, chance: random.Random, outcome: Outcome) -> None:
        self._folder = folder
        self._chance = chance
        self._outcome = outcome
        self.root = folder / "mq"

    def run(self, job: str, words: Sequence[str], begins: Callable[[], bool]) -> dict[str, Any]:
        """Kill a job some time after it ``begins`` to change something, and run it again."""
        self._outcome.runs[job] += 1
        with self._started(job, words) as program:
            eventually(lambda: begins() or not program.is_running(), PATIENCE_S)
            arbitrary_moment(self._chance, 0.0, _LONGEST_S)
            self._outcome.kills[job] += program.is_running()
            program.kill()
        return self.finish(job, words)

    def finish(self, job: str, words: Sequence[str]) -> dict[str, Any]:
        """Run a job to its end; its summary."""
        with self._started(job, words) as program:
            summary: dict[str, Any] = json.loads(program.output())
            return summary

    def _started(self, job: str, words: Sequence[str]) -> Program:
        command = ["pipeline", job, *words, f"--root={self.root}", "--master=local[2]", "--json"]
        return Program(self._folder, "fsmq.cli", *command)

    def release(self) -> int:
        """Release all messages in flight, as their timers would; how many."""
        with Spool(self.root, delivers=False) as spool:
            return sum(
                spool.complete(prepare.release_many(spool.context, queue))
                for queue in spool.queues()
            )

    def stages(self, *, committed: bool) -> bool:
        """Whether a job in ``staging/`` is committed, or else is being written."""
        jobs = [name for name in os.listdir(self.root / "staging") if ":" in name]
        return any((name[0] != ".") == committed for name in jobs)

    def ready(self) -> Messages:
        """All ready messages, once all are delivered."""
        with Spool(self.root, delivers=False) as spool:
            eventually(lambda: all(spool.counts(q).new == 0 for q in spool.queues()), PATIENCE_S)
            found = {}
            for queue in spool.queues():
                after = ""
                while some := spool.queue(queue).peek(1000, after=after):
                    found |= {(queue, m.id): (m.body, m.priority) for m in some}
                    after = some[-1].id
            return found

    def length(self, queue: str) -> int:
        return len(os.listdir(self.root / "queues" / queue))


def play(folder: Path, messages: int, seed: object) -> Outcome:
    """A round in an empty folder."""
    chance = random.Random(str(seed))
    outcome = Outcome(messages=messages)
    began = time.monotonic()
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")
        with Spool(suite.root, delivers=False) as spool:
            for queue in QUEUES:
                spool.create_queue(queue)
        jobs = Jobs(folder, chance, outcome)
        loaded = _load(jobs, messages, chance, outcome)
        _archive_and_replay(jobs, loaded, folder / "archive", chance, outcome)
        left = [name for name in os.listdir(suite.root / "staging") if ":" in name]
        outcome.expect(not left, f"left in staging: {left}")
        findings = check(suite.root).findings
        outcome.expect(not findings, f"fsck: {findings[:3]}")
    outcome.seconds = time.monotonic() - began
    return outcome


def _load(jobs: Jobs, messages: int, chance: random.Random, outcome: Outcome) -> Messages:
    lines = jobs.root.parent / "in.jsonl"
    rows = [
        (
            QUEUES[n % 3 == 2],
            f"{n:08}".encode() + chance.randbytes(chance.randrange(400)),
            chance.randrange(3),
        )
        for n in range(messages)
    ]
    with lines.open("w") as file:
        for queue, body, priority in rows:
            payload = base64.b64encode(body).decode()
            row = {"queue": queue, "payload": payload, "priority": priority}
            file.write(json.dumps(row) + "\n")
    is_late = chance.random() < 0.5
    words = [str(lines), "--column", "queue=queue", "--column", "body=unbase64(payload)"]
    words += ["--column", "priority=cast(priority as int)"]
    jobs.run("load", words, lambda: jobs.stages(committed=is_late))
    found = jobs.ready()
    wanted = Counter(rows)
    stored = Counter((queue, *content) for (queue, _), content in found.items())
    difference = f"{(wanted - stored).total()} lost, {(stored - wanted).total()} too many"
    outcome.expect(stored == wanted, f"load: {difference}")
    return found


def _archive_and_replay(
    jobs: Jobs, before: Messages, archive: Path, chance: random.Random, outcome: Outcome
) -> None:
    total = len(before)
    words = [*QUEUES, f"--to={archive}", f"--batch={total // 8}"]
    summary = jobs.run("archive", words, lambda: sum(map(jobs.length, QUEUES)) < total)
    if hidden := summary["hidden"]:
        # It was killed between a claim and the note of the batch.
        outcome.expect(hidden <= total // 8, f"archive: hides {hidden}")
        outcome.expect(jobs.release() == hidden, "archive: hides more than its summary says")
        summary = jobs.finish("archive", words)
    outcome.expect(summary["hidden"] == 0, f"archive: still hides {summary['hidden']}")
    outcome.expect(not jobs.ready(), "archive: left messages in the queues")
    is_late = chance.random() < 0.5
    jobs.run("replay", [str(archive)], lambda: jobs.stages(committed=is_late))
    found = jobs.ready()
    outcome.expect(found == before, f"archive and replay: {total} before, {len(found)} after")
    import pyarrow.parquet as pq

    # A duplicate in the archive is put only once, because of its id, so its rows are counted.
    rows = sum(pq.read_metadata(file).num_rows for file in archive.rglob("*.parquet"))
    outcome.expect(rows == total, f"archive: {rows} rows for {total} messages")


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, help="Of three kills each.")
@click.option("--messages", default=30_000, show_default=True, help="In each round.")
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
def main(rounds: int, messages: int, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    total = Outcome()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
            outcome = play(Path(folder), messages, (seed, number))
        print(f"round {number + 1}: {outcome}", *outcome.wrong, sep="\n  ", flush=True)
        total.add(outcome)
    print(f"jobs: {total}")
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    main()
