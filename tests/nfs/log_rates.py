"""The rate at which two hosts publish to one log on real NFS, compared with that of one host.

    python -m tests.nfs.log_rates --times 3 --seconds 20 --delay-ms 20 --options vers=4.2,hard

One host publishes as fast as it can, then both, and so on in turn, each time to a new log. The log
must have all acknowledged messages, without gaps.

The hosts and the server share the emulated processors. So the rates are measured twice: without a
network delay, when they depend on the load of the processors, and with one, when the processors
wait for the network as on real hosts. Only the second result is checked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from fsmq.spool import Spool
from tests.nfs.export import mounted
from tests.nfs.publishers import Published, body_of
from tests.nfs.rivals import Remote, Rivals

_QDISC = ("tc", "qdisc", "add", "dev", "eth0", "root")
_LEAST = 0.8  # the rate of both, as a multiple of the rate of one
_WARM_UP_S = 5.0  # the emulator translates new code
_SETTLE_S = 1.0  # until both have received the command


class Rate(NamedTuple):
    """One measurement. per_s: the rate of each host."""

    per_s: list[float]
    turns: int
    segments: int

    def __str__(self) -> str:
        shares = " + ".join(f"{one:.1f}" for one in self.per_s)
        return (
            f"{sum(self.per_s):7.1f} messages/s ({shares});"
            f" {self.turns} turns, {self.segments} segments"
        )


@click.command()
@click.option("--times", type=int, required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--threads", type=int, default=8, show_default=True, help="On each host.")
@click.option("--delay-ms", type=int, required=True, help="Of each packet that a host sends.")
@click.option("--options", required=True)
def main(times: int, seconds: float, threads: int, delay_ms: int, options: str) -> None:
    findings: list[str] = []
    with mounted(options) as place, Rivals(*place.hosts, place.root / "rates") as (one, two):
        exported = place.export.folder / "rates"
        for delay in (0, delay_ms):
            print(f"each call takes {delay} ms longer", flush=True)
            if delay:
                for host in place.hosts:
                    host.run(*_QDISC, "netem", "delay", f"{delay}ms")
            name = f"{delay}-ms"
            ratio = _measure(one, two, exported, times, threads, seconds, name, findings)
            print(f"both publish {ratio:.2f} times as much as one, at least {_LEAST} required")
            if delay and ratio < _LEAST:
                findings.append("the rate of two hosts is too low")
    for finding in findings:
        print(finding)
    print(f"results: {len(findings)} findings")
    sys.exit(bool(findings))


def _measure(
    one: Remote,
    two: Remote,
    exported: Path,
    times: int,
    threads: int,
    seconds: float,
    name: str,
    findings: list[str],
) -> float:
    """The rate of both hosts as a multiple of the rate of one. findings: receives the faults."""
    rates: dict[str, list[float]] = {"one": [], "two": []}
    for number in range(times):
        order = (("one", [one]), ("two", [one, two]))
        # The order alternates, so that a machine that becomes slower affects both.
        for which, publishers in order if number % 2 == 0 else order[::-1]:
            log = f"{name}-{which}-{number}"
            one("create_log", log)
            published = _publish(publishers, log, threads, seconds)
            rate = _rate(published, seconds)
            rates[which].append(sum(rate.per_s))
            print(f"  {which}: {rate}", flush=True)
            findings += _judge(exported, log, published)
            one("delete_log", log)
    return sum(rates["two"]) / sum(rates["one"])


def _publish(
    publishers: Sequence[Remote], log: str, threads: int, seconds: float
) -> list[Published]:
    """Publish from all hosts at once."""
    begin = time.monotonic() + _SETTLE_S + _WARM_UP_S  # the hosts share this machine's clock
    for number, publisher in enumerate(publishers):
        publisher.begin("publish_fast", log, f"host-{number}", threads, begin, begin + seconds)
    return [Published(*publisher.end()) for publisher in publishers]


def _rate(published: Sequence[Published], seconds: float) -> Rate:
    return Rate(
        [host.counted / seconds for host in published],
        sum(host.turns for host in published),
        sum(host.segments for host in published),
    )


def _judge(root: Path, log: str, published: Sequence[Published]) -> list[str]:
    """The faults of a log after all publishers have ended."""
    answered: dict[int, bytes] = {}
    findings = []
    for host in published:
        for thread, offsets in enumerate(host.offsets):
            for number, offset in enumerate(offsets):
                body = body_of(host.name, thread, number)
                if answered.setdefault(offset, body) != body:
                    findings.append(f"{log}: offset {offset} was answered twice")
    with Spool(root, delivers=False) as spool:
        found = [(message.offset, message.body) for message in spool.log(log).read()]
    if [offset for offset, _ in found] != list(range(len(found))):
        findings.append(f"{log}: there are gaps")
    if dict(found) != answered:
        wrong = [offset for offset, body in found if answered.get(offset) != body]
        text = f"{log}: {len(answered)} acknowledged, {len(found)} in the log"
        findings.append(f"{text}; different offsets: {wrong[:9]}")
    return findings


if __name__ == "__main__":
    main()
