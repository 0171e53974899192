"""The rivals, told to sync before every answer, each on a fresh folder: beanstalkd, Redis, NATS
JetStream, RabbitMQ and SQLite; `postgres.py` has PostgreSQL.

And SoftLayer's mq, whose protocol and folders fsmq began with; and those that speak SQS, ElasticMQ
and moto's server, which keep all in memory.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .place import Place

_PATIENCE_S = 10.0
_VM_PATIENCE_S = 120.0  # for those in a virtual machine of Java or Erlang
_HOME = Path(__file__).resolve().parents[1]
BEANSTALKD, REDIS = "beanstalkd", "redis-server"
NATS, RABBITMQ = "nats-server", "rabbitmq-server"
SOFTLAYER = "softlayer-mq"
HUEY, RQ = "huey", "rq"
ELASTICMQ, MOTO = "ElasticMQ", "moto"
_OF_SQS = {
    ELASTICMQ: "Java: mvn -f benchmarks/elasticmq.xml dependency:copy-dependencies"
    " -DoutputDirectory=DIR, and ELASTICMQ=DIR",
    MOTO: "pip install 'moto[server]'",
}
_DEBIAN = {
    BEANSTALKD: "beanstalkd",
    REDIS: "redis-server redis-tools",
    RABBITMQ: "rabbitmq-server",
}
# The script on the PATH changes to a user of its own, and to that one's files.
_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_NATS_SYNCS = (2, 10)  # the version that can sync before each answer
# Ours have the names that theirs have: mq, mq-mover and mq-reaper.
_SOFTLAYER_MOVER, _SOFTLAYER_REAPER = f"{SOFTLAYER}-mover", f"{SOFTLAYER}-reaper"
_BUILT = "sh benchmarks/softlayer.sh DIR builds it with Go; DIR on PATH"


def missing(name: str) -> str:
    """Why a rival cannot run here; empty if it can."""
    if name in _OF_SQS:
        program = "java" if name == ELASTICMQ else "moto_server"
        if shutil.which(program) and (name == MOTO or os.environ.get("ELASTICMQ")):
            return ""
        return f"skipped: {name} is not installed ({_OF_SQS[name]})"
    if name in (HUEY, RQ):
        there = importlib.util.find_spec(name) is not None
        return "" if there else f"skipped: {name} is not installed (pip install {name})"
    if name == NATS:
        return _missing_nats()
    needed = {
        REDIS: (name, "redis-benchmark", "redis-cli"),
        RABBITMQ: (_RABBITMQ, "epmd"),
        SOFTLAYER: (name, _SOFTLAYER_MOVER, _SOFTLAYER_REAPER),
    }.get(name, (name,))
    if all(shutil.which(program) for program in needed):
        return ""
    how = f"Debian: apt install {_DEBIAN[name]}" if name in _DEBIAN else _BUILT
    return f"skipped: {name} is not installed ({how})"


def _missing_nats() -> str:
    least = ".".join(map(str, _NATS_SYNCS))
    how = f"go install github.com/nats-io/nats-server/v2@latest, on PATH; {least} or later"
    if not shutil.which(NATS):
        return f"skipped: {NATS} is not installed ({how})"
    told = subprocess.run([NATS, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", told)
    if found is None or tuple(map(int, found.groups())) < _NATS_SYNCS:
        return f"skipped: a {NATS} that can sync before it answers is not installed ({how})"
    return ""


@dataclass(frozen=True)
class Work:
    """What clients do: rounds of ``put`` or ``life``, one after the other on each connection.

    size: of a body, in bytes. warm_up: seconds of the same before, not counted.
    """

    what: Literal["put", "life"]
    connections: int
    seconds: float
    size: int
    warm_up: float = 0.0

    def load(self, module: str, *arguments: object) -> str:
        """Run a load in a process of its own; what it prints.

        Raises:
            subprocess.CalledProcessError: the load failed, or messages were lost.
        """
        command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
        command += [f"--connections={self.connections}", f"--seconds={self.seconds}"]
        command += [f"--size={self.size}", f"--warm-up={self.warm_up}"]
        return subprocess.run(
            command, cwd=_HOME, stdout=subprocess.PIPE, check=True, text=True
        ).stdout


Told = dict[str, float]
"""What a load of a server tells: ``rate``, rounds a second, and ``cpu``, its share of a CPU."""


def beanstalkd(place: Place, work: Work) -> Told:
    """With a binlog and fsync on every put.

    Raises:
        subprocess.CalledProcessError: the load failed, or messages were lost.
    """
    with place.fresh("beanstalkd") as folder, started_beanstalkd(folder, work.size) as port:
        return _told(work.load("wire_load", "beanstalkd", work.what, port))


@contextlib.contextmanager
def started_beanstalkd(folder: Path, size: int) -> Iterator[int]:
    """One with its binlog in a folder that takes bodies of ``size`` bytes; its port."""
    port = _free_port()
    command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f", "0"]
    # The longest job is 65,535 bytes unless one asks for more.
    command += ["-z", str(max(65_535, size))]
    with _server(command, port):
        yield port


def nats(place: Place, work: Work) -> Told:
    """A stream in files, synced at each message.

    Raises:
        subprocess.CalledProcessError: the load failed, or messages were lost.
    """
    with place.fresh("nats") as folder:
        port = _free_port()
        settings = folder / "settings"
        settings.write_text(
            f"host: 127.0.0.1\nport: {port}\n"
            f'jetstream {{ store_dir: "{folder}/store", sync_interval: always }}\n'
        )
        with _server([NATS, "-c", str(settings)], port):
            return _told(work.load("wire_load", "nats", work.what, port))


def rabbitmq(place: Place, work: Work) -> Told:
    """A quorum queue on one node, which syncs its log before it confirms.

    Raises:
        subprocess.CalledProcessError: the load failed, or messages were lost.
    """
    with place.fresh("rabbitmq") as folder:
        port, names = _free_port(), _free_port()
        settings = folder / "settings.conf"
        settings.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        environ = {
            "HOME": str(folder),  # where the cookie is made
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(settings.with_suffix("")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOGS": "-",
        }
        # Erlang's table of names would else be started by the server, and outlive it.
        table = ["epmd", "-address", "127.0.0.1", "-port", str(names)]
        server = ["env", *(f"{name}={value}" for name, value in environ.items()), _RABBITMQ]
        with _server(table, names), _server(server, port, _VM_PATIENCE_S):
            return _told(work.load("wire_load", "rabbitmq", work.what, port))


@contextlib.contextmanager
def softlayer(place: Place, queue: str) -> Iterator[tuple[str, Path]]:
    """SoftLayer's mq, its movers and its reaper, with a queue; its URL and its root.

    Raises:
        RuntimeError: a program did not start, or has ended.
    """
    with place.fresh("softlayer") as folder, contextlib.ExitStack() as programs:
        root, port = folder / "mq", _free_port()
        command = [SOFTLAYER, "-address=127.0.0.1", f"-port={port}", f"-root={root}"]
        programs.enter_context(_server(command, port))  # it has made the folders
        to_queues = f"-destination={root}/queues"
        for source, program, *options in (
            ("new", _SOFTLAYER_MOVER, to_queues),
            # In milliseconds; by default a claimed message would come back at once.
            ("delay", _SOFTLAYER_MOVER, to_queues, "-delay=10000"),
            ("remove", _SOFTLAYER_REAPER),
        ):
            command = [program, f"-source={root}/{source}", *options]
            programs.enter_context(_watcher(command, folder / f"{source}.log"))
        (root / "queues" / queue).mkdir()
        yield f"http://127.0.0.1:{port}", root


def _watcher(command: Sequence[str], log: Path) -> contextlib.AbstractContextManager[None]:
    """One that sees what comes into a folder once it watches that; then it logs its first line."""
    return _program(command, lambda: log.stat().st_size > 0, log=log)


def sqlite(place: Place, work: Work) -> float:
    """Rounds a second on a table, without a server.

    Raises:
        subprocess.CalledProcessError: the load failed, or messages were lost.
    """
    with place.fresh("sqlite") as folder:
        return float(work.load("sqlite_load", folder / "queue", work.what))


def _told(text: str) -> Told:
    told: Told = json.loads(text)
    return told


def redis(place: Place, connections: int, seconds: float, size: int) -> float:
    """LPUSHes a second with appendfsync always, by redis-benchmark.

    Raises:
        subprocess.CalledProcessError: the load failed.
        AssertionError: messages were lost.
    """
    with place.fresh("redis") as folder, started_redis(folder) as port:
        # It takes a number of requests, not a time: find out how many fill it.
        few = 20 * connections + 200
        trial = _redis_benchmark(port, connections, few, size)
        many = max(1000, int(trial * seconds))
        found = _redis_benchmark(port, connections, many, size)
        command = ["redis-cli", "-p", str(port), "llen", "mylist"]
        held = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        assert held == few + many, f"the list has {held} messages, not {few + many}"
        return found


@contextlib.contextmanager
def started_redis(folder: Path) -> Iterator[int]:
    """One that syncs its file in a folder before each answer; its port."""
    port = _free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    command += ["--auto-aof-rewrite-percentage", "0"]
    with _server(command, port):
        yield port


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
    with _server(command, port, _VM_PATIENCE_S):
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
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    with _program(command, answers, patience_s):
        yield


@contextlib.contextmanager
def _program(
    command: Sequence[str],
    is_ready: Callable[[], bool],
    patience_s: float = _PATIENCE_S,
    log: Path = Path(os.devnull),
) -> Iterator[None]:
    """Run a program that has to be there until the end."""
    with log.open("wb") as told:
        # A group of its own: some are scripts that start what serves.
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=told, start_new_session=True
        )
    try:
        end = time.monotonic() + patience_s
        while not is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} does not start")
            time.sleep(0.02)
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} has ended")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
