"""Two of three hosts are killed and return under load: no message is lost or waits for long."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from fsmq import Spool
from fsmq.dyno import DynoQueues
from fsmq.spool.fsck import Severity, check
from tests.dyno.host import DEAD_AFTER_S, UNACK_MS
from tests.harness.suite import HOME

ZONES = ("a", "b", "c")
_PUSHES = 25
# How long a message may wait after the end of its claim.
_SLACK_S = 30.0


class Hosts:
    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder / "mq", folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, zone: str, pushes: int = _PUSHES) -> None:
        command = [sys.executable, "-m", "tests.dyno.host"]
        arguments = [str(self.root), zone, str(self.folder / f"{zone}.log"), str(pushes)]
        self._running[zone] = subprocess.Popen([*command, *arguments], cwd=HOME)

    def kill(self, zone: str) -> None:
        host = self._running.pop(zone)
        host.kill()
        host.wait()

    def kill_all(self) -> None:
        for zone in list(self._running):
            self.kill(zone)

    def logged(self, word: str, zones: tuple[str, ...] = ZONES) -> set[str]:
        """The ids in the logs of some hosts after a word."""
        lines = [
            line
            for zone in zones
            if (self.folder / f"{zone}.log").exists()
            for line in (self.folder / f"{zone}.log").read_text().splitlines()
        ]
        return {line.partition(" ")[2] for line in lines if line.startswith(word)}

    def are_done(self, ids: set[str]) -> bool:
        """Whether messages are acknowledged; a host may die before it logs that."""
        left = ids - self.logged("acked")
        if not left:
            return True
        if not left <= self.logged("trying"):
            return False
        with Spool(self.root, delivers=False) as spool:
            queue = DynoQueues(spool, zone="a").get("tasks")
            return all(queue.get(one) is None for one in left)

    def have_finished(self) -> bool:
        """Whether the running hosts have pushed all their messages."""
        return {str(host.pid) for host in self._running.values()} <= self.logged("finished")

    def wait_until(self, is_done: object, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not is_done():  # type: ignore[operator]
            assert time.monotonic() < end, self.logged("pushed") - self.logged("acked")
            time.sleep(0.05)


def test_two_of_three_hosts_die_and_return_under_load(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    try:
        for zone in ZONES:
            hosts.start(zone)
        hosts.wait_until(lambda: all(hosts.logged("acked", (zone,)) for zone in ZONES), 60)
        hosts.kill("b")
        hosts.kill("c")
        before = hosts.logged("pushed", ("b", "c"))
        # The living host reads their messages, ready or unacked.
        within = UNACK_MS / 1000 + DEAD_AFTER_S + _SLACK_S
        hosts.wait_until(lambda: hosts.are_done(before), within)
        for zone in ("b", "c"):
            hosts.start(zone)
        hosts.wait_until(hosts.have_finished, 60)
        hosts.wait_until(lambda: hosts.are_done(hosts.logged("pushed")), within)
    finally:
        hosts.kill_all()
    with Spool(hosts.root) as spool:
        left = DynoQueues(spool, zone="a").get("tasks").get_all_messages()
        # A push that was cut off by a kill may be left.
        assert not {message.id for message in left} & hosts.logged("pushed")
    assert not [f for f in check(hosts.root, offline=True).findings if f.severity is Severity.ERROR]
