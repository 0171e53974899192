"""Two hosts on one export: programs are killed, hosts disconnected, and the server restarts.

The suites of `tests.power.kills` on a real network filesystem, with its faults.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.harness.hosts import Host
from tests.harness.suite import arbitrary_moment
from tests.nfs.export import Export
from tests.power.daemons import Daemons
from tests.power.kills import TwoSuites
from tests.power.programs import Programs
from tests.power.results import Results
from tests.power.verbs import OverHttp

# The weights of the faults.
_STRIKES = {"kill": 12, "cut": 2, "restart": 1, "lost answers": 3}
_PAUSES = (0.5, 2.0)  # the emulated machine does about 50 operations per second
_CUT_S = (1.0, 8.0)
_LOSS_S = (0.3, 2.0)


class TwoHosts(TwoSuites):
    """Rounds on an export that each host has mounted at ``folder``.

    inspector: programs on the server that inspect the spool at the end. keeps_reasons: whether
    files have extended attributes in this version of NFS.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        programs_of: Mapping[str, Programs],
        export: Export,
        folder: Path,
        inspector: Daemons,
        *,
        keeps_reasons: bool,
        seed: object,
    ) -> None:
        super().__init__(programs_of, folder, processes=1, seed=seed, pauses=_PAUSES)
        self.strikes: Counter[str] = Counter()
        self._began = time.monotonic()
        self._places = hosts
        self._export = export
        self._inspector = inspector
        self._keeps_reasons = keeps_reasons

    def _http(self, node: str) -> OverHttp:
        """A connection from the network of a host."""
        http = super()._http(node)
        with self._places[node].inside():
            http.connect()
        return http

    def _strike(self) -> None:
        [kind] = self._chance.choices(list(_STRIKES), list(_STRIKES.values()))
        host = self._places[self._chance.choice(sorted(self._places))]
        self.strikes[kind] += 1
        print(f"[{time.monotonic() - self._began:4.0f} s] {kind}, {host.name}", flush=True)
        if kind == "cut":
            host.cut()
            arbitrary_moment(self._chance, *_CUT_S)
            host.restore()
        elif kind == "restart":
            self._restart()
        elif kind == "lost answers":
            with self._export.losing_answers(host):
                arbitrary_moment(self._chance, *_LOSS_S)
                self._restart()
        else:
            super()._strike()  # of any host

    def _restart(self) -> None:
        began = time.monotonic()
        self._export.restart()
        self._restarts.append((began, time.monotonic()))

    def _look(self, rounds: int) -> Results:
        print(f"[{time.monotonic() - self._began:4.0f} s] inspection", flush=True)
        for node, host in self._hosts.items():
            for pid in host.pids.values():
                self._programs_of[node].kill(pid)
        self._inspector.start()
        return super()._look(rounds)

    def _inspected(self) -> tuple[Path, OverHttp]:
        return self._inspector.root, OverHttp(self._inspector.url)
