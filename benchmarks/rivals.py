"""The rivals: beanstalkd and Redis, told to sync before every answer, each on a fresh folder.

And those that speak SQS, ElasticMQ and moto's server, which keep all in memory.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .place import Place

_PATIENCE_S = 10.0
_JVM_PATIENCE_S = 120.0
_HOME = Path(__file__).resolve().parents[1]
BEANSTALKD, REDIS = "beanstalkd", "redis-server"
ELASTICMQ, MOTO = "ElasticMQ", "moto"
_OF_SQS = {
    ELASTICMQ: "Java: mvn -f benchmarks/elasticmq.xml dependency:copy-dependencies"
    " -DoutputDirectory=DIR, and ELASTICMQ=DIR",
    MOTO: "pip install 'moto[server]'",
}
_DEBIAN = {BEANSTALKD: "beanstalkd", REDIS: "redis-server redis-tools"}


def missing(name: str) -> str:
    """Why a rival cannot run here; empty if it can."""
    if name in _OF_SQS:
        program = "java" if name == ELASTICMQ else "moto_server"
        if shutil.which(program) and (name == MOTO or os.environ.get("ELASTICMQ")):
            return ""
        return f"skipped: {name} is not installed ({_OF_SQS[name]})"
    needed = (name, "redis-benchmark") if name == REDIS else (name,)
    if all(shutil.which(program) for program in needed):
        return ""
    return f"skipped: {name} is not installed (Debian: apt install {_DEBIAN[name]})"


def beanstalkd(place: Place, connections: int, seconds: float, size: int) -> dict[str, float]:
    """Puts with a binlog and fsync on every put; rate, latencies and the client's share of a CPU.

    Raises:
        subprocess.CalledProcessError: the load failed.
    """
    with place.fresh("beanstalkd") as folder:
        port = _free_port()
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f", "0"]
        # The longest job is 65,535 bytes unless one asks for more.
        command += ["-z", str(max(65_535, size))]
        with _server(command, port):
            load = [sys.executable, "-m", "benchmarks.beanstalk_load", str(port)]
            load += [f"--connections={connections}", f"--seconds={seconds}", f"--size={size}"]
            done = subprocess.run(load, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def redis(place: Place, connections: int, seconds: float, size: int) -> float:
    """LPUSHes a second with appendfsync always, by redis-benchmark.

    Raises:
        subprocess.CalledProcessError: the load failed.
    """
    with place.fresh("redis") as folder:
        port = _free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        command += ["--auto-aof-rewrite-percentage", "0"]
        with _server(command, port):
            # It takes a number of requests, not a time: find out how many fill it.
            trial = _redis_benchmark(port, connections, 20 * connections + 200, size)
            return _redis_benchmark(port, connections, max(1000, int(trial * seconds)), size)


@contextlib.contextmanager
def sqs_server(name: str) -> Iterator[int]:
    """A server that speaks SQS, without a queue; its port."""
    port = _free_port()
    if name == MOTO:
        command = ["moto_server", "-H", "127.0.0.1", "-p", str(port)]
    else:
        command = ["java", "-cp", f"{os.environ['ELASTICMQ']}/*"]
        command += [f"-Drest-sqs.bind-port={port}", "-Drest-sqs.bind-hostname=127.0.0.1"]
        command += ["-Drest-stats.enabled=false", "org.elasticmq.server.Main"]
    with _server(command, port, _JVM_PATIENCE_S):
        yield port


def _redis_benchmark(port: int, connections: int, requests: int, size: int) -> float:
    command = ["redis-benchmark", "-p", str(port), "-c", str(connections), "-n", str(requests)]
    command += ["-d", str(size), "-t", "lpush", "--csv"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    [row] = csv.DictReader(done.stdout.splitlines())
    return float(row["rps"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _server(command: Sequence[str], port: int, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + patience_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{command[0]} does not start") from None
                time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()
