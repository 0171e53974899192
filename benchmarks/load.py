"""wrk, the load generator: one run of it, and what it saw."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_LUA = Path(__file__).with_name("lua")
# A request may wait this long for its answer before wrk counts it as failed.
_TIMEOUT_S = 30


class Failed(Exception):
    """The run proves nothing: requests failed, or a program that it needs is missing."""


@dataclass(frozen=True)
class Load:
    """One run. Latencies are in milliseconds; ``statuses`` where the script counts them."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    statuses: dict[int, int]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds

    def rate_of(self, status: int) -> float:
        """Answers of one status a second."""
        return self.statuses.get(status, 0) / self.seconds


def is_installed() -> bool:
    return shutil.which("wrk") is not None


def wrk(
    url: str, script: str, connections: int, seconds: float, *arguments: object, warm_up: float = 0
) -> Load:
    """Run wrk with one of our scripts (``post``, ``fetch``, ``life``) and its arguments.

    seconds, warm_up: whole seconds, at least one unless 0.

    Raises:
        Failed: wrk is missing, a connection failed or a request was refused.
    """
    if warm_up:
        wrk(url, script, connections, warm_up, *arguments)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
    command += [f"--timeout={_TIMEOUT_S}s", f"--script={_LUA / script}.lua", url, "--"]
    command += [str(argument) for argument in arguments]
    environ = {**os.environ, "FSMQ_BENCH_LUA": str(_LUA)}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise Failed("wrk is not installed (Debian: apt install wrk)") from error
    except subprocess.CalledProcessError as error:
        raise Failed(f"wrk failed: {error.stderr.strip()}") from error
    _, marker, result = done.stdout.partition("RESULT ")
    if not marker:
        raise Failed(f"wrk told nothing: {done.stdout.strip()}")
    told = json.loads(result)
    if told["bad_statuses"] or told["socket_errors"]:
        raise Failed(f"requests failed: {result.strip()}")
    if not told["requests"]:
        # The machine stood still all the time: that is no run.
        return wrk(url, script, connections, seconds, *arguments)
    return Load(
        requests=told["requests"],
        seconds=told["seconds"],
        p50_ms=told["p50_ms"],
        p99_ms=told["p99_ms"],
        max_ms=told["max_ms"],
        statuses={int(status): count for status, count in told["statuses"].items()},
    )
