"""Ordered logs: publish and consume in the library, against raw appends to a file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fsmq import Client
from fsmq.spool import Spool

from .. import fan_out, fill
from ..bench import QUEUE, Bench
from ..load import wrk
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side
from ..rivals import REDIS

_HOME = Path(__file__).resolve().parents[2]
_SIZE = 4096


def log_publish(bench: Bench) -> Outcome:
    """5000 messages of 4 KiB: in one batch, by 64 threads, one after the other; and beside
    1000 channels."""
    number = bench.sizes.log_messages

    def load(what: str, **options: int) -> float:
        """Messages a second."""
        with bench.place.fresh("log") as folder:
            return number / _seconds(folder, what, number=number, size=_SIZE, **options)

    found = side_by_side(
        bench.repeat,
        {
            "raw batch": lambda: load("raw_batch"),
            "batch": lambda: load("batch"),
            "threads": lambda: load("threads", threads=64),
            "raw one": lambda: load("raw_one"),
            "one": lambda: load("one"),
            "channels": lambda: load("one", channels=bench.sizes.log_channels),
        },
    )

    def ms(name: str) -> list[float]:
        return [1000 * number / value for value in found[name]]

    what = f"log: {number:,} messages of 4 KiB"
    return Outcome(
        [
            Measure(f"{what} in one batch", ms("batch"), "ms", Bar("<=", 60, "ms")),
            Measure(
                f"{what} in one batch, against one raw write and fdatasync",
                ratios(found["batch"], found["raw batch"]),
                bar=Bar(">=", 1 / 1.3),
            ),
            Measure(f"{what} by 64 threads", ms("threads"), "ms", Bar("<=", 300, "ms")),
            Measure(
                f"{what} one after the other, against raw appends with fdatasync",
                ratios(found["one"], found["raw one"]),
                bar=Bar(">=", 0.7),
            ),
            Measure(
                f"log: the same beside {bench.sizes.log_channels:,} channels, against none",
                ratios(found["one"], found["channels"]),
                bar=Bar("<=", 1.05),
                note="the same system calls: tests/spool/test_log_calls.py",
            ),
        ]
    )


def log_consume(bench: Bench) -> Outcome:
    """Claims of 1000 and durable dones: one channel, and many that read the same messages."""
    few, many = bench.sizes.log_messages, bench.sizes.log_channels
    lot = 20 * few

    def rate(number: int, size: int, channels: int) -> float:
        with bench.place.fresh("log") as folder:
            seconds = _seconds(folder, "consume", number=number, size=size, channels=channels)
            return number // 1000 * 1000 * channels / seconds

    found = side_by_side(
        bench.repeat,
        {
            "1 KiB": lambda: rate(lot, 1024, 1),
            "4 KiB": lambda: rate(lot // 2, _SIZE, 1),
            "many": lambda: rate(few, 1024, many),
        },
    )
    return Outcome(
        [
            Measure("log: one channel, 1 KiB", found["1 KiB"], "/s", Bar(">=", 100_000, "/s")),
            Measure("log: one channel, 4 KiB", found["4 KiB"], "/s", Bar(">=", 50_000, "/s")),
            Measure(
                f"log: {many:,} channels that read the same {few:,} messages, in sum",
                found["many"],
                "/s",
                Bar(">=", 200_000, "/s"),
            ),
        ]
    )


def log_held(bench: Bench) -> Outcome:
    """A claim and its done where much is done and given up: by one process, and by two in turn."""
    number = 20 * bench.sizes.log_messages

    def ms(processes: int) -> float:
        with bench.place.fresh("log") as folder:
            return _seconds(folder, "held", number=number, threads=processes) / 2

    found = side_by_side(bench.repeat, {"one": lambda: ms(1), "two": lambda: ms(2)})
    what = f"log: a claim and its done, {number:,} messages, half of them done, a fifth delayed"
    return Outcome(
        [
            Measure(what, found["one"], "ms", Bar("<=", 5, "ms")),
            Measure(f"{what}, two processes in turn", found["two"], "ms", Bar("<=", 5, "ms")),
        ]
    )


def log_channels(bench: Bench) -> Outcome:
    """What channels cost a publish: the time of the processor, one run beside the other."""
    number = bench.sizes.log_messages

    def cpu(channels: int) -> float:
        with bench.place.fresh("log") as folder:
            return _both(folder, "one", number=number, size=_SIZE, channels=channels)[1]

    many = bench.sizes.log_channels
    found = side_by_side(bench.repeat, {"none": lambda: cpu(0), "many": lambda: cpu(many)})
    return Outcome(
        [
            Measure(
                f"log: CPU of {number:,} publishes beside {many:,} channels, against none",
                ratios(found["many"], found["none"]),
                bar=Bar("<=", 1.05),
                measured=f"{1e6 * min(found['many']) / number:.0f} µs",
                against=f"{1e6 * min(found['none']) / number:.0f} µs",
            )
        ]
    )


def log_http(bench: Bench) -> Outcome:
    """Claims of one message and their ends over HTTP, of a channel and of a queue; and batches."""
    number, of_one, batch = bench.sizes.contested, bench.sizes.log_messages, 1000

    def fill_queue(root: Path) -> None:
        fill.ready(root, number, bench.sizes.body)

    def fill_log(root: Path) -> None:
        with Spool(root, delivers=False) as spool:
            log = spool.log(QUEUE, create=True)
            for _ in range(number // batch):
                log.publish_many([bytes(bench.sizes.body)] * batch)
            log.channel("bench").create("first")

    def ended(fill_it: Callable[[Path], None], path: str, name: str) -> float:
        with bench.suite(processes=1, fill=fill_it) as suite:
            load = wrk(suite.url, "claim", 64, bench.seconds, path, name, warm_up=bench.warm_up)
        return load.rate_of(202)

    def batches() -> float:
        bodies = [os.urandom(2048).hex() for _ in range(batch)]
        with bench.suite(processes=1) as suite, Client(suite.url) as client:
            log = client.log(QUEUE, create=True)
            log.publish_many(bodies[:1])
            started = time.perf_counter()
            for _ in range(of_one // batch):
                log.publish_many(bodies)
            return 1000 * (time.perf_counter() - started)

    at = f"/_logs/{QUEUE}/channels/bench"
    found = side_by_side(
        bench.repeat,
        {
            "log": lambda: ended(fill_log, at, "X-Message-Offset"),
            "queue": lambda: ended(fill_queue, f"/{QUEUE}", "X-Message-Id"),
            "batches": batches,
        },
    )
    return Outcome(
        [
            Measure(
                "log: claim and done of one message over HTTP, 64 clients, against a queue's",
                ratios(found["log"], found["queue"]),
                bar=Bar(">=", 1.0),
                measured=rate(found["log"]),
                against=rate(found["queue"]),
                note="mq --processes=1",
            ),
            Measure(
                f"log: {of_one:,} messages of 4 KiB over HTTP, {batch:,} at a time",
                found["batches"],
                "ms",
                Bar("<=", 250, "ms"),
                note="texts, one client of ours",
            ),
        ]
    )


def log_rivals(bench: Bench) -> Outcome:
    """Publishes of 4 KiB one after the other, with 0, 10 and many channels: here, NSQ, Redis."""
    number, many = bench.sizes.log_messages // 10, bench.sizes.log_channels

    def here(channels: int) -> float:
        with bench.place.fresh("log") as folder:
            seconds = _seconds(folder, "one", number=number, size=_SIZE, channels=channels)
            return number / seconds

    def nsq(channels: int) -> float:
        # It stores a copy for each channel.
        few = max(10, number // max(1, channels // 10))
        return few / fan_out.nsq(bench.place, channels, few, _SIZE)

    def redis(groups: int) -> float:
        return number / fan_out.redis_stream(bench.place, groups, number, _SIZE)

    rivals = {"NSQ, sync-every=1": (nsq, fan_out.NSQ), "Redis stream": (redis, REDIS)}
    measures: list[Measure] = []
    for channels in (0, 10, many):
        name = f"log: publishes one after the other, {channels:,} channels"
        able = {rival: run for rival, (run, needs) in rivals.items() if not fan_out.missing(needs)}
        contenders = {"here": lambda c=channels: here(c)}
        contenders |= {rival: lambda r=run, c=channels: r(c) for rival, run in able.items()}
        found = side_by_side(bench.repeat, contenders)
        measures.append(Measure(name, found["here"], "/s", note="the library"))
        for rival, (_, needs) in rivals.items():
            if rival in found:
                measures.append(Measure(f"{name}: {rival}", found[rival], "/s"))
            else:
                measures.append(Measure(f"{name}: {rival}", [], note=fan_out.missing(needs)))
    return Outcome(measures)


def _seconds(folder: Path, what: str, **options: int) -> float:
    return _both(folder, what, **options)[0]


def _both(folder: Path, what: str, **options: int) -> tuple[float, float]:
    """The seconds of a load, and those of its CPU."""
    command = [sys.executable, "-m", "benchmarks.log_load", what, str(folder)]
    command += [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
    seconds, cpu = map(float, done.stdout.split())
    return seconds, cpu
