"""A day of work with the real programs, to check the figures of the journal's tables.

    python -m tests.soak.day --seed 7 --to /tmp/day

Seeded producers and consumers use queues of different kinds: steady load, bursts, poison messages
that become dead letters, slow consumers, delays, messages that expire while their consumers are
away, a queue that is purged. They count their operations. The day takes a few minutes; then the
times of the journal are stretched to 24 hours, tables and a report are made from it, and each
figure of the tables is compared with the counts. With --kills the job follows the journal during
the day, and is killed again and again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fsmq import Client, Message, NewMessage
from tests.harness.suite import HOME, Suite, eventually

DAY_S = 86_400
# The beginning of the stretched day: 20 November 2026, 00:00 UTC.
MIDNIGHT_MS = 1_795_132_800_000
MAX_DELIVERIES = 3
# So long that no claim ends by itself on a slow machine.
_VISIBILITY_S = 300.0
# When the claim of a consumer that hangs ends.
_HANGS_S = 0.4
_PATIENCE_S = 300.0

Span = tuple[float, float]


@dataclass(frozen=True)
class Kind:
    """A kind of queue. Times are shares of the day, except work, which is in seconds.

    share: of all messages. shape: the rate of messages at a time of the day. fails, hangs, poison:
    shares of messages that are released once, whose consumer hangs once, that never succeed.
    away: when there are no consumers. ends: when the producers stop.
    """

    share: float
    shape: Callable[[float], float]
    consumers: int = 1
    work: float = 0.0
    batch: int = 10
    fails: float = 0.0
    hangs: float = 0.0
    poison: float = 0.0
    delay: float = 0.0
    ttl: float = 0.0
    away: tuple[float, float] = (2.0, 2.0)
    ends: float = 1.0


def _office(t: float) -> float:
    """Low at night, two peaks by day."""
    morning = math.exp(-(((t - 0.43) / 0.09) ** 2))
    return 0.05 + morning + 0.8 * math.exp(-(((t - 0.64) / 0.08) ** 2))


def _evening(t: float) -> float:
    return 0.15 + math.exp(-(((t - 0.82) / 0.07) ** 2)) + 0.3 * _office(t)


def _bursts(t: float) -> float:
    return 0.02 + sum(5.0 for at in (0.08, 0.36, 0.71) if at <= t < at + 0.02)


def _always(t: float) -> float:
    return 1.0


KINDS = {
    "mail": Kind(0.36, _office, consumers=2, work=0.002, fails=0.02),
    "clicks": Kind(0.30, _evening, consumers=2, batch=50),
    "thumbnails": Kind(0.10, _bursts, consumers=2, work=0.04, batch=1, hangs=0.03),
    "payments": Kind(0.10, _office, consumers=2, work=0.01, batch=2, fails=0.03, poison=0.02),
    "reminders": Kind(0.04, _always, delay=0.05),
    "alerts": Kind(0.06, _always, ttl=0.02, batch=5, away=(0.0, 0.6)),
    "import": Kind(0.04, _always, consumers=0, ends=0.3, delay=0.0),
}
DEAD = "payments-dead"
_PURGED = "import"


class Tally:
    """The operations of producers and consumers by queue, and waiting times. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._accepted: dict[str, Span] = {}
        self._claimed: dict[str, dict[str, Span]] = defaultdict(dict)

    def count(self, queue: str, step: str, number: int = 1) -> None:
        with self._lock:
            self.counts[queue][step] += number

    def accepted(self, queue: str, ids: list[str], delayed: bool, asked: float) -> None:
        """Count messages whose request was sent at ``asked`` and is answered now."""
        now = time.time()
        with self._lock:
            self.counts[queue]["accepted"] += len(ids)
            if not delayed:
                self._accepted.update((message_id, (asked, now)) for message_id in ids)

    def claimed(self, queue: str, messages: list[Message], asked: float) -> None:
        """Like `accepted`."""
        now = time.time()
        with self._lock:
            self.counts[queue]["claimed"] += len(messages)
            first = [message.id for message in messages if message.deliveries == 1]
            self._claimed[queue].update((message_id, (asked, now)) for message_id in first)

    def waits(self, queue: str) -> Span | None:
        """The least and most that a message waited on average; None if none was measured.

        It was accepted and claimed at some time during two requests.
        """
        spans = [
            (self._accepted[message_id], claim)
            for message_id, claim in self._claimed[queue].items()
            if message_id in self._accepted
        ]
        if not spans:
            return None
        least = sum(max(0.0, claim[0] - put[1]) for put, claim in spans)
        most = sum(claim[1] - put[0] for put, claim in spans)
        return least / len(spans), most / len(spans)


class Day:
    """A day of ``seconds`` with ``messages`` messages."""

    def __init__(self, url: str, seed: int, seconds: float, messages: int) -> None:
        self._url = url
        self._seed = seed
        self._seconds = seconds
        self._messages = messages
        self._over = threading.Event()
        self._begin = 0.0
        self._faults: list[BaseException] = []
        self.tally = Tally()

    def play(self) -> None:
        """Play the day until every queue is empty, except that of the dead letters."""
        with Client(self._url, retry_for=60) as client:
            for name in KINDS:
                client.create_queue(name)
            client.queue("payments").configure(
                max_deliveries=MAX_DELIVERIES, dead_letter_queue=DEAD
            )
        self._begin = time.monotonic()
        producers = [self._start(self._produce, name) for name in KINDS]
        consumers = [
            self._start(self._consume, name)
            for name, kind in KINDS.items()
            for _ in range(kind.consumers)
        ]
        for producer in producers:
            producer.join()
        try:
            self._drain()
        finally:
            self._over.set()
            for consumer in consumers:
                consumer.join()
        if self._faults:
            raise self._faults[0]
        self._conclude()

    def _start(self, work: Callable[[str, Client], None], name: str) -> threading.Thread:
        def run() -> None:
            try:
                with Client(self._url, retry_for=60) as client:
                    work(name, client)
            except BaseException as fault:
                self._faults.append(fault)
                self._over.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _elapsed(self) -> float:
        return (time.monotonic() - self._begin) / self._seconds

    def _until(self, t: float) -> None:
        self._over.wait(max(0.0, (t - self._elapsed()) * self._seconds))

    def _plan(self, name: str) -> list[tuple[float, NewMessage]]:
        """The messages and their times; the same for the same seed."""
        kind, chance = KINDS[name], random.Random(f"{self._seed} {name}")
        grid = [n / 1000 for n in range(int(kind.ends * 1000))]
        number = round(kind.share * self._messages)
        times = chance.choices(grid, [kind.shape(t) for t in grid], k=number)
        plan = []
        for n, t in enumerate(sorted(at + chance.random() / 1000 for at in times)):
            dice = chance.random()
            fate = "plain"
            for name_, share in (
                ("fails", kind.fails),
                ("hangs", kind.hangs),
                ("poison", kind.poison),
            ):
                if fate == "plain" and dice < share:
                    fate = name_
                dice -= share
            work = chance.expovariate(1 / kind.work) if kind.work else 0.0
            body = {
                "n": n,
                "fate": fate,
                "work": round(work, 4),
                "text": "x" * chance.randrange(400),
            }
            delay = kind.delay * self._seconds * chance.uniform(0.2, 1) if kind.delay else None
            ttl = max(1.0, kind.ttl * self._seconds) if kind.ttl else None
            plan.append((t, NewMessage(json.dumps(body).encode(), delay=delay, ttl=ttl)))
        return plan

    def _produce(self, name: str, client: Client) -> None:
        queue, plan = client.queue(name), self._plan(name)
        delayed = KINDS[name].delay > 0
        while plan and not self._over.is_set():
            self._until(plan[0][0])
            now = self._elapsed()
            due = [message for t, message in plan[:100] if t <= now]
            del plan[: len(due)]
            if due:
                asked = time.time()
                self.tally.accepted(name, queue.put_many(due), delayed, asked)
        if name == _PURGED:
            self._until(0.4)
            queue.purge()
            self.tally.count(name, "purged", self.tally.counts[name]["accepted"])

    def _consume(self, name: str, client: Client) -> None:
        kind, queue = KINDS[name], client.queue(name)
        while not self._over.is_set():
            if kind.away[0] <= self._elapsed() < kind.away[1]:
                self._until(kind.away[1])
            asked = time.time()
            messages = queue.claim(kind.batch, visibility=_VISIBILITY_S, wait=1)
            self.tally.claimed(name, messages, asked)
            for message in messages:
                self._work(client, message)

    def _work(self, client: Client, message: Message) -> None:
        queue, tally = client.queue(message.queue), self.tally
        content = json.loads(message.body)
        fate, first = content["fate"], message.deliveries == 1
        self._over.wait(content["work"])
        if fate == "fails" and first:
            queue.release(message.id)
            tally.count(message.queue, "released")
        elif fate == "poison" or (fate == "hangs" and first):
            queue.renew(message.id, _HANGS_S)
            tally.count(message.queue, "renewed")
            is_last = fate == "poison" and message.deliveries == MAX_DELIVERIES
            tally.count(message.queue, "buried" if is_last else "redelivered")
        else:
            tally.count(message.queue, "removed", queue.remove(message.id))

    def _drain(self) -> None:
        with Client(self._url, retry_for=60) as client:
            queues = [client.queue(name) for name in KINDS]

            def is_empty() -> bool:
                return self._over.is_set() or not any(sum(queue.counts()) for queue in queues)

            eventually(is_empty, _PATIENCE_S)

    def _conclude(self) -> None:
        """Count expired messages: those of queues with a TTL that no client has removed."""
        for name, kind in KINDS.items():
            counts = self.tally.counts[name]
            gone = counts["removed"] + counts["buried"] + counts["purged"]
            if kind.ttl:
                counts["expired"] = counts["accepted"] - gone
            elif counts["accepted"] != gone:
                raise AssertionError(f"{name}: {counts['accepted']} accepted, {gone} removed")
        self.tally.counts[DEAD]["arrived"] = self.tally.counts["payments"]["buried"]


def played(root: Path, seed: int, seconds: float, messages: int) -> Tally:
    """Play a day on a new spool; all its journal is in closed segments then."""
    with Suite(root) as suite:
        day = Day(suite.url, seed, seconds, messages)
        day.play()
        # The reaper still has to unlink files and to write its steps down.
        eventually(lambda: not os.listdir(root / "remove"), _PATIENCE_S)
        for name in ("mq", "mover", "reaper"):
            if suite.terminate(name) != 0:
                raise AssertionError(f"{name} ended with an error: {suite.logs(name)}")
    return day.tally


def stretch(root: Path, to: Path) -> float:
    """Copy a journal with its times stretched to a day; the factor of the times."""
    segments = sorted((root / "journal").glob("[!.]*.jsonl"))
    lines = {path: [json.loads(line) for line in path.open()] for path in segments}
    times = [line["at"] for each in lines.values() for line in each]
    begin, end = min(times), max(times)
    factor = (DAY_S * 1000 - 60_000) / (end - begin)
    (to / "journal").mkdir(parents=True)
    for path, each in lines.items():
        created, _, rest = path.name.partition("-")
        for line in each:
            line["at"] = MIDNIGHT_MS + int((line["at"] - begin) * factor)
            if "claim_ms" in line:
                line["claim_ms"] = int(line["claim_ms"] * factor)
        created_ms = MIDNIGHT_MS + max(0, int((int(created) - begin) * factor))
        text = "".join(json.dumps(line) + "\n" for line in each)
        (to / "journal" / f"{created_ms:013}-{rest}").write_text(text)
    return factor


@contextmanager
def killed_again_and_again(root: Path, tables: Path, seed: int) -> Iterator[list[int]]:
    """Run the job that follows a journal and kill it at random moments; the pids of the killed."""
    command = [sys.executable, "-m", "fsmq.cli", "pipeline", "journal", f"--at={root}"]
    command += [f"--to={tables}", "--follow", "--every=1", "--late=60"]
    chance, over = random.Random(seed), threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not over.is_set():
            with open(os.devnull, "wb") as nowhere:
                driver = subprocess.Popen(
                    command, cwd=HOME, stdout=nowhere, stderr=nowhere, start_new_session=True
                )
            over.wait(chance.uniform(10, 30))  # a random moment
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            killed.append(driver.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=240, help="the length of the day")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", action="store_true", help="follow the journal, with kills")
    parser.add_argument("--to", type=Path, required=True, help="a new folder for the results")
    options = parser.parse_args()
    options.to.mkdir(parents=True)
    play(options.to, options.seed, options.seconds, options.messages, options.kills)


def play(to: Path, seed: int, seconds: float, messages: int, kills: bool) -> None:
    """Play a day, make tables and a report of it, and compare them with the counts."""
    from fsmq.pipeline import session
    from tests.pipeline.comparison import compare, make

    root = to / "mq"
    root.mkdir()
    (root / "journal").mkdir()
    if kills:
        with killed_again_and_again(root, to / "followed", seed) as killed:
            tally = played(root, seed, seconds, messages)
        print(f"the following job was killed {len(killed)} times", flush=True)
    else:
        tally = played(root, seed, seconds, messages)
    total = sum(counts["accepted"] for counts in tally.counts.values())
    print(f"{total:,} messages in {len(KINDS)} queues", flush=True)
    factor = stretch(root, to / "stretched")
    spark = session("a day")
    try:
        if kills:
            compare(make(spark, root, to / "followed"), tally, 1.0)
            print("the tables of the killed job are exact", flush=True)
        compare(make(spark, to / "stretched", to / "tables"), tally, factor)
        print("the tables of the stretched day are exact", flush=True)
    finally:
        spark.stop()
    report = [sys.executable, "-m", "fsmq.cli", "pipeline", "report", str(to / "tables")]
    subprocess.run([*report, f"--to={to / 'report.html'}"], cwd=HOME, check=True)


if __name__ == "__main__":
    main()
