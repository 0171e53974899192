"""Kills of jobs: each runs as its command does, is killed midway, and is run again to its end.

    python -m tests.soak.job_kills --rounds 3

A round is a scenario on one spool, with its mover and reaper at work: messages are loaded, spread
over queues, archived, replayed and thinned out. Each job is killed once, at an arbitrary moment
before, in or after what makes it count, and run again. After each no message may be lost, none be
there twice, and all bytes and ids have to be as they were. Exit code 1 otherwise.
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

SOURCE, SPREAD = "jobs", ("work-a", "work-b")
_COPIES = 3  # of each key, for dedup
_KEY = "substring(body, 1, 8)"
_LONGEST_S = 1.5  # from the first sign of a job's work to the kill

Found = dict[tuple[str, str], tuple[bytes, int]]  # queue and id: body and priority


@dataclass
class Scenario:
    """What a round has come to.

    kills: by job, how many ended it before its own end. wrong: what was not as it had to be.
    """

    kills: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def expect(self, holds: bool, told: str) -> None:
        if not holds:
            self.wrong.append(told)

    def add(self, other: Scenario) -> None:
        self.kills += other.kills
        self.runs += other.runs
        self.messages += other.messages
        self.wrong += other.wrong
        self.seconds += other.seconds

    def __str__(self) -> str:
        of_jobs = ", ".join(f"{job} {self.kills[job]} of {n}" for job, n in self.runs.items())
        return (
            f"killed midway: {of_jobs}; {self.messages:,} messages, {len(self.wrong)} findings;"
            f" {self.seconds:.0f} s"
        )


class Jobs:
    """The jobs of one spool, each killed once and run again."""

    def __init__(self, folder: Path, chance: random.Random, scenario: Scenario) -> None:
        self._folder = folder
        self._chance = chance
        self._scenario = scenario
        self.root = folder / "mq"

    def run(self, job: str, words: Sequence[str], begins: Callable[[], bool]) -> dict[str, Any]:
        """Kill a job some time after it ``begins`` to change something, and run it again."""
        self._scenario.runs[job] += 1
        with self._started(job, words) as program:
            eventually(lambda: begins() or not program.is_running(), PATIENCE_S)
            arbitrary_moment(self._chance, 0.0, _LONGEST_S)
            self._scenario.kills[job] += program.is_running()
            program.kill()
        return self.finish(job, words)

    def finish(self, job: str, words: Sequence[str]) -> dict[str, Any]:
        """Run a job to its end; what it says."""
        with self._started(job, words) as again:
            told: dict[str, Any] = json.loads(again.output())
            return told

    def _started(self, job: str, words: Sequence[str]) -> Program:
        given = [job, *words, f"--root={self.root}", "--master=local[2]", "--json"]
        return Program(self._folder, "fsmq.cli", "pipeline", *given)

    def release(self) -> int:
        """Give back all that is in flight, as its timers would; how many messages."""
        with Spool(self.root, delivers=False) as spool:
            return sum(
                spool.complete(prepare.release_many(spool.context, queue))
                for queue in spool.queues()
            )

    def stages(self, *, committed: bool) -> bool:
        """Whether a job is being written, or is committed."""
        jobs = [name for name in os.listdir(self.root / "staging") if ":" in name]
        return any((name[0] != ".") == committed for name in jobs)

    def standing(self) -> Found:
        """All that waits, when nothing is on its way."""
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


def play(folder: Path, messages: int, seed: object) -> Scenario:
    """One round in an empty folder."""
    chance = random.Random(str(seed))
    scenario = Scenario(messages=messages)
    began = time.monotonic()
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")
        with Spool(suite.root, delivers=False) as spool:
            for queue in (SOURCE, *SPREAD):
                spool.create_queue(queue)
        jobs = Jobs(folder, chance, scenario)
        loaded = _load(jobs, messages, chance, scenario)
        spread = _rebalance(jobs, loaded, scenario)
        _archive_and_replay(jobs, spread, folder / "archive", chance, scenario)
        _dedup(jobs, spread, scenario)
        left = [name for name in os.listdir(suite.root / "staging") if ":" in name]
        scenario.expect(not left, f"left in staging: {left}")
        findings = check(suite.root).findings
        scenario.expect(not findings, f"fsck: {findings[:3]}")
    scenario.seconds = time.monotonic() - began
    return scenario


def _load(jobs: Jobs, messages: int, chance: random.Random, scenario: Scenario) -> Found:
    lines = jobs.root.parent / "in.jsonl"
    # The same key at the same priority: which of them is the oldest must be clear.
    rows = [
        (f"{n // _COPIES:08}".encode() + chance.randbytes(chance.randrange(400)), n // _COPIES % 3)
        for n in range(messages)
    ]
    with lines.open("w") as file:
        for body, priority in rows:
            payload = base64.b64encode(body).decode()
            file.write(json.dumps({"payload": payload, "priority": priority}) + "\n")
    late = chance.random() < 0.5
    words = [str(lines), f"--queue={SOURCE}", "--column", "body=unbase64(payload)"]
    words += ["--column", "priority=cast(priority as int)"]
    jobs.run("load", words, lambda: jobs.stages(committed=late))
    found = jobs.standing()
    scenario.expect(Counter(found.values()) == Counter(rows), _difference("load", rows, found))
    return found


def _rebalance(jobs: Jobs, before: Found, scenario: Scenario) -> Found:
    shares = f"--to={SPREAD[0]}=2,{SPREAD[1]}=1"
    jobs.run("rebalance", [SOURCE, shares], lambda: any(jobs.length(q) for q in SPREAD))
    found = jobs.standing()
    scenario.expect(
        _by_id(found) == _by_id(before), f"rebalance: {len(before)} are {len(found)} now"
    )
    scenario.expect(
        {queue for queue, _ in found} == set(SPREAD), "rebalance: not where they belong"
    )
    return found


def _archive_and_replay(
    jobs: Jobs, before: Found, archive: Path, chance: random.Random, scenario: Scenario
) -> None:
    total = len(before)
    words = [*SPREAD, f"--to={archive}", f"--batch={total // 8}"]
    told = jobs.run("archive", words, lambda: sum(map(jobs.length, SPREAD)) < total)
    if told["hidden"]:
        # It was killed between a claim and its note.
        scenario.expect(told["hidden"] <= total // 8, f"archive: hides {told['hidden']}")
        scenario.expect(jobs.release() == told["hidden"], "archive: more is hidden than it says")
        told = jobs.finish("archive", words)
    scenario.expect(told["hidden"] == 0, f"archive: still hides {told['hidden']}")
    scenario.expect(not jobs.standing(), "archive: not all was taken")
    late = chance.random() < 0.5
    jobs.run("replay", [str(archive)], lambda: jobs.stages(committed=late))
    found = jobs.standing()
    # One that the archive had twice would have been put once, since its id stands: see below.
    scenario.expect(found == before, f"archive and replay: {total} are {len(found)} now")
    import pyarrow.parquet as pq

    rows = sum(pq.read_metadata(file).num_rows for file in archive.rglob("*.parquet"))
    scenario.expect(rows == total, f"archive: {rows} rows for {total} messages")


def _dedup(jobs: Jobs, before: Found, scenario: Scenario) -> None:
    total = len(before)
    jobs.run("dedup", ["work-*", "--key", _KEY], lambda: sum(map(jobs.length, SPREAD)) < total)
    stays: dict[tuple[str, bytes], tuple[str, str]] = {}
    for queue, message_id in sorted(before):
        stays.setdefault((queue, before[queue, message_id][0][:8]), (queue, message_id))
    wanted = {place: before[place] for place in stays.values()}
    found = jobs.standing()
    scenario.expect(found == wanted, f"dedup: {len(found)} are left of {len(wanted)}")


def _by_id(found: Found) -> Counter[tuple[str, bytes, int]]:
    return Counter((message_id, *fact) for (_, message_id), fact in found.items())


def _difference(job: str, rows: Sequence[object], found: Found) -> str:
    wanted, there = Counter(rows), Counter(found.values())
    lost, more = (wanted - there).total(), (there - wanted).total()
    return f"{job}: {lost} lost, {more} more than were given"


@click.command(help=__doc__)
@click.option("--rounds", default=3, show_default=True, help="Scenarios, of five kills each.")
@click.option("--messages", default=30_000, show_default=True, help="In each.")
@click.option("--seed", type=int, help="Of the moments; the time if not given.")
def main(rounds: int, messages: int, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    total = Scenario()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
            scenario = play(Path(folder), messages, (seed, number))
        print(f"round {number + 1}: {scenario}", *scenario.wrong, sep="\n  ", flush=True)
        total.add(scenario)
    print(f"jobs: {total}")
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    main()
