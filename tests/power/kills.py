"""Kills: two full suites on one tree under load, whose programs and clients die and hang at random.

In the spirit of Jepsen's total queue: whatever was acknowledged comes out or was deleted, whatever
comes out was put in, and no one gets what another holds. A SIGKILL loses nothing that the kernel
has, so here every answer is certain, whenever it came.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from tests.power.clients import FAN, MAIN, MIXED, TOPIC
from tests.power.daemons import Daemons
from tests.power.dedup import READ, WRITE
from tests.power.history import History, read
from tests.power.inspection import Inspection
from tests.power.nursery import Nursery
from tests.power.tally import Tally
from tests.power.verbs import OverHttp
from tests.suite import arbitrary_moment

HOSTS = ("one", "two")
_CLIENTS = 2  # of each host, over HTTP
_SYNC = "fsync"
_NEVER = float("inf")


class Battle:
    """Rounds of kills on one tree. A round is one victim: killed and started again, or stopped."""

    def __init__(self, nursery: Nursery, folder: Path, *, processes: int, seed: object) -> None:
        self._nursery = nursery
        self._folder = folder
        self._root = folder / "mq"
        self._chance = random.Random(str(seed))
        self._hosts = {
            node: Daemons(nursery, self._root, sync=_SYNC, processes=processes, node=node, peers=1)
            for node in HOSTS
        }
        self._clients: dict[str, tuple[str, int]] = {}  # by name: the host, the process
        self._started = 0
        self._files: list[Path] = []
        self._queues: dict[str, bool | None] = {MAIN: True, FAN: True}

    def run(self, rounds: int) -> Tally:
        """So many kills, then quiet, then a look at everything."""
        try:
            for host in self._hosts.values():
                host.start()
            self._make_queues()
            for node in HOSTS:
                for _ in range(_CLIENTS):
                    self._start_client(node)
            self._start_client("library")
            for _ in range(rounds):
                arbitrary_moment(self._chance, 0.01, 0.08)
                self._strike()
            time.sleep(0.05)
            for _, pid in self._clients.values():
                self._nursery.kill(pid)
            return self._look(rounds)
        finally:
            self._nursery.kill_all()
            for host in self._hosts.values():
                host.close()

    def _make_queues(self) -> None:
        http = OverHttp(self._hosts["one"].url)
        for queue in (MAIN, FAN, READ, WRITE):
            http.create(queue)
        http.ask("PUT", f"/_topics/{TOPIC}")
        for queue in (MAIN, FAN):
            http.ask("PUT", f"/_topics/{TOPIC}/queues/{queue}")

    def _start_client(self, node: str) -> None:
        # Each has queues of its own: what a dead one asked for may still be done.
        name = f"{node}{self._started}-kills"
        self._started += 1
        library = node == "library"
        target = str(self._root) if library else self._hosts[node].url
        file = self._folder / f"{name}.events"
        known = json.dumps({"mine": [], "held": []})
        argv = [name, target, _SYNC, str(file), json.dumps(MIXED), known]
        program = "library" if library else "http"
        self._clients[name] = (node, self._nursery.client(name, program, argv))
        self._files.append(file)

    def _strike(self) -> None:
        """Kill or stop one program; it runs again afterwards."""
        deadly = self._chance.random() < 0.6
        if self._chance.random() < 0.3:
            name = self._chance.choice(sorted(self._clients))
            node, pid = self._clients[name]
            assert self._nursery.is_running(pid), self._nursery.log(name)
            if deadly:
                self._nursery.kill(self._clients.pop(name)[1])
                self._start_client(node)
            else:
                self._pause(pid)
            return
        host = self._hosts[self._chance.choice(HOSTS)]
        daemon = self._chance.choice(host.names)
        pid = host.pids[daemon]
        assert self._nursery.is_running(pid), self._nursery.log(f"{host.node}-{daemon}")
        if deadly:
            self._nursery.kill(pid)
            arbitrary_moment(self._chance, 0.0, 0.05)
            host.start_one(daemon)
        else:
            self._pause(pid)

    def _pause(self, pid: int) -> None:
        self._nursery.stop(pid)
        arbitrary_moment(self._chance, 0.01, 0.3)
        self._nursery.go_on(pid)

    def _look(self, rounds: int) -> Tally:
        ops = read(self._files)
        history = History(ops, _NEVER, set())
        history.check_load()
        inspection = Inspection(history, self._root, OverHttp(self._hosts["one"].url))
        visibilities: dict[str, set[float]] = {}
        history.visibilities(visibilities)
        inspection.run(self._queues | history.queues(), visibilities)
        return Tally(
            rounds=rounds,
            operations=len(ops),
            acknowledged=sum(history.certain(op) for op in ops),
            uncertain=sum(not history.certain(op) for op in ops),
            came_out=inspection.came_out,
            hidden=inspection.hidden,
            findings=history.findings,
        )
