"""How fast two hosts publish to one log on real NFS, against one of them alone.

    python -m tests.nfs.log_rates --times 3 --seconds 20 --delay-ms 20 --options vers=4.2,hard

One host publishes as fast as it can, then both at once, and so on in turn, each time to a new log.
All that was answered has to be there: offsets without a gap, each with the body that got it.

Both hosts and the server share the emulated processors here. So it is measured twice: as it is,
which says what both cost the processors, and with a network that is slow, so that the processors
wait as those of hosts do that have their own. The second has to reach what is wanted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from fsmq.spool import Spool
from tests.harness.hosts import Hosts
from tests.nfs.export import Export
from tests.nfs.publishers import Published, body_of
from tests.nfs.rivals import Remote, Rivals
from tests.power.kills import HOSTS

_EXPORTED = Path("/srv/export")
_QUEUE = ("tc", "qdisc", "add", "dev", "eth0", "root")
_BAR = 0.8  # of what one host publishes
_WARM_UP_S = 5.0  # in which both have begun: the emulated processor translates what is new to it
_SETTLE_S = 1.0  # until the slower one has heard that it shall begin


class Rate(NamedTuple):
    """What some hosts have done in one measurement."""

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
    export = Export(_EXPORTED)
    export.start()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        mounted = folder / "mq"
        mounted.mkdir()
        hosts = held.enter_context(Hosts(folder, None, *HOSTS))
        for host in hosts.others:
            export.mount(host, mounted, options)
        one, two = held.enter_context(Rivals(*hosts.others, mounted / "rates"))
        findings: list[str] = []
        for delay in (0, delay_ms):
            print(f"each call takes {delay} ms longer than it does by itself", flush=True)
            if delay:
                for host in hosts.others:
                    host.run(*_QUEUE, "netem", "delay", f"{delay}ms")
            measured = _measure(one, two, times, threads, seconds, f"{delay}-ms", findings)
            print(f"both publish {measured:.2f} x what one does, {_BAR} are wanted")
            if delay and measured < _BAR:
                findings.append("two hosts publish less than is wanted")
    for finding in findings:
        print(finding)
    print(f"results: {len(findings)} findings")
    sys.exit(bool(findings))


def _measure(
    one: Remote,
    two: Remote,
    times: int,
    threads: int,
    seconds: float,
    name: str,
    findings: list[str],
) -> float:
    """How many times as much both publish as one does; what is wrong comes to the findings."""
    rates: dict[str, list[float]] = {"one": [], "two": []}
    for number in range(times):
        order = (("one", [one]), ("two", [one, two]))
        # In turn the other way round, so that a machine that becomes slower is so for both.
        for which, publishers in order if number % 2 == 0 else order[::-1]:
            log = f"{name}-{which}-{number}"
            one("make_log", log)
            told = _publish(publishers, log, threads, seconds)
            rate = _rate(told, seconds)
            rates[which].append(sum(rate.per_s))
            print(f"  {which}: {rate}", flush=True)
            findings += _judge(_EXPORTED / "rates", log, told)
            one("drop_log", log)
    return sum(rates["two"]) / sum(rates["one"])


def _publish(
    publishers: Sequence[Remote], log: str, threads: int, seconds: float
) -> list[Published]:
    """Let them publish at once."""
    begin = time.monotonic() + _SETTLE_S + _WARM_UP_S  # all hosts are on this machine's clock
    for number, publisher in enumerate(publishers):
        publisher.begin("publish_fast", log, f"host-{number}", threads, begin, begin + seconds)
    return [Published(*publisher.end()) for publisher in publishers]


def _rate(told: Sequence[Published], seconds: float) -> Rate:
    return Rate(
        [one.counted / seconds for one in told],
        sum(one.turns for one in told),
        sum(one.segments for one in told),
    )


def _judge(root: Path, log: str, told: Sequence[Published]) -> list[str]:
    """What is wrong with a log to which nobody publishes any more."""
    answered: dict[int, bytes] = {}
    findings = []
    for one in told:
        for thread, offsets in enumerate(one.offsets):
            for number, offset in enumerate(offsets):
                body = body_of(one.name, thread, number)
                if answered.setdefault(offset, body) != body:
                    findings.append(f"{log}: offset {offset} was answered twice")
    with Spool(root, delivers=False) as spool:
        found = [(message.offset, message.body) for message in spool.log(log).read()]
    if [offset for offset, _ in found] != list(range(len(found))):
        findings.append(f"{log}: there are gaps")
    if dict(found) != answered:
        wrong = [offset for offset, body in found if answered.get(offset) != body]
        findings.append(
            f"{log}: {len(answered)} were answered, {len(found)} are there; not alike: {wrong[:9]}"
        )
    return findings


if __name__ == "__main__":
    main()
