"""Kills and pauses programs and clients of two full suites on one spool under load.

As in Jepsen's total queue, every acknowledged message is delivered or was deleted, every delivered
message was put, and no client gets a message that another holds. A SIGKILL loses nothing that the
kernel has, so every answer is certain.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from tests.harness.suite import arbitrary_moment, eventually
from tests.power.clients import BUSY, FAN, MAIN, MIXED, TOPIC
from tests.power.daemons import Daemons
from tests.power.dedup import READ, WRITE
from tests.power.history import History
from tests.power.inspection import Inspection
from tests.power.ops import acknowledged, read
from tests.power.programs import Programs
from tests.power.results import Results
from tests.power.verbs import OverHttp

HOSTS = ("one", "two")
NO_SLOWER = dict.fromkeys(HOSTS, 0.0)
ONE_SLOWER = {"one": 0.0, "two": 0.1}
LIBRARY = "library"  # a client of the first host, without its programs
_CLIENTS = 2  # of each host, over HTTP
_SYNC = "fsync"
_NEVER = float("inf")


class TwoSuites:
    """Rounds of kills on one spool. In each, one program is killed and restarted, or paused.

    programs_of: starts the programs of each of the HOSTS. pauses: the least and most seconds
    between two rounds. slow_s: the longest delay of a sync on each host, so that short claims end
    before they are synced. weights: of the actions of clients. least: the number of operations that
    are acknowledged before the end.
    """

    _keeps_reasons = True  # whether the filesystem keeps reasons of burials

    def __init__(
        self,
        programs_of: Mapping[str, Programs],
        folder: Path,
        *,
        processes: int,
        seed: object,
        pauses: tuple[float, float] = (0.01, 0.08),
        slow_s: Mapping[str, float] = NO_SLOWER,
        weights: Mapping[str, int] = MIXED,
        least: int = 1,
    ) -> None:
        self._programs_of = {LIBRARY: programs_of[HOSTS[0]], **programs_of}
        self._folder = folder
        self._root = folder / "mq"
        self._weights = json.dumps(weights)
        self._pauses = pauses
        self._least = least
        self._chance = random.Random(str(seed))
        self._hosts = {
            node: Daemons(
                place,
                self._root,
                sync=_SYNC,
                processes=processes,
                node=node,
                peers=1,
                slow_s=slow_s[node],
            )
            for node, place in programs_of.items()
        }
        self._clients: dict[str, tuple[str, int]] = {}  # by name: the host, the process
        self._started = 0
        self._files: list[Path] = []
        self._queues: dict[str, bool | None] = dict.fromkeys((MAIN, BUSY, FAN), True)
        self._restarts: list[tuple[float, float]] = []  # see `History`

    def run(self, rounds: int) -> Results:
        """Run the rounds, end the load, and inspect everything."""
        try:
            for host in self._hosts.values():
                host.start()
            self._make_queues()
            for node in HOSTS:
                for _ in range(_CLIENTS):
                    self._start_client(node)
            self._start_client(LIBRARY)
            for _ in range(rounds):
                arbitrary_moment(self._chance, *self._pauses)
                self._strike()
            eventually(lambda: acknowledged(self._files) >= self._least)
            for node, pid in self._clients.values():
                self._programs_of[node].kill(pid)
            return self._look(rounds)
        finally:
            for programs in self._programs_of.values():
                programs.kill_all()
            for host in self._hosts.values():
                host.close()

    def _make_queues(self) -> None:
        http = self._http("one")
        for queue in (MAIN, BUSY, FAN, READ, WRITE):
            http.create(queue)
        http.ask("PUT", f"/_topics/{TOPIC}")
        for queue in (MAIN, FAN):
            http.ask("PUT", f"/_topics/{TOPIC}/queues/{queue}")

    def _http(self, node: str) -> OverHttp:
        return OverHttp(self._hosts[node].url)

    def _start_client(self, node: str) -> None:
        # Each has its own queues: requests of a killed client may still be carried out.
        name = f"{node}{self._started}-kills"
        self._started += 1
        library = node == LIBRARY
        target = str(self._root) if library else self._hosts[node].url
        file = self._folder / f"{name}.events"
        known = json.dumps({"mine": [], "held": []})
        argv = [name, target, _SYNC, str(file), self._weights, known]
        program = "library" if library else "http"
        self._clients[name] = (node, self._programs_of[node].client(name, program, argv))
        self._files.append(file)

    def _strike(self) -> None:
        """Kill and restart one program, or pause it."""
        deadly = self._chance.random() < 0.6
        if self._chance.random() < 0.3:
            name = self._chance.choice(sorted(self._clients))
            node, pid = self._clients[name]
            programs = self._programs_of[node]
            assert programs.is_running(pid), programs.log(name)
            if deadly:
                programs.kill(self._clients.pop(name)[1])
                self._start_client(node)
            else:
                self._pause(programs, pid)
            return
        host = self._hosts[self._chance.choice(HOSTS)]
        daemon = self._chance.choice(host.names)
        pid, programs = host.pids[daemon], self._programs_of[host.node]
        assert programs.is_running(pid), programs.log(f"{host.node}-{daemon}")
        if deadly:
            programs.kill(pid)
            arbitrary_moment(self._chance, 0.0, 0.05)
            host.start_one(daemon)
        else:
            self._pause(programs, pid)

    def _pause(self, programs: Programs, pid: int) -> None:
        programs.stop(pid)
        arbitrary_moment(self._chance, 0.01, 0.3)
        programs.go_on(pid)

    def _look(self, rounds: int) -> Results:
        ops = read(self._files)
        history = History(ops, _NEVER, set(), restarts=self._restarts)
        history.check_load()
        inspection = Inspection(history, *self._inspected())
        inspection.dead.keeps_reasons = self._keeps_reasons
        visibilities: dict[str, set[float]] = {}
        history.visibilities(visibilities)
        inspection.run(history.queues(self._queues), visibilities)
        return Results(
            rounds=rounds,
            operations=len(ops),
            acknowledged=sum(history.certain(op) for op in ops),
            uncertain=sum(not history.certain(op) for op in ops),
            delivered=inspection.delivered,
            hidden=inspection.hidden,
            findings=history.findings,
        )

    def _inspected(self) -> tuple[Path, OverHttp]:
        """The root that is inspected at the end, and an mq that serves it."""
        return self._root, self._http("one")
