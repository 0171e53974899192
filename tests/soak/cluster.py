"""A real Spark cluster: a master with the driver, and two workers, each on its own host.

    python -m tests.soak.cluster --strikes 6

The hosts are network namespaces that mount one folder of a server over sshfs; mq, mover and reaper
run on another. One file is loaded, archived and replayed by spark-submit. Then a driver writes rows
into a queue with one stream and takes them into files with another, while executors die, workers
are cut off the network and the driver is killed. The files must have every row once. Otherwise the
exit code is 1. As root; about ten minutes on two cores.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click

from fsmq.spool import Spool
from tests.harness.hosts import CannotBeHost, Host, Hosts
from tests.harness.sshfs import FRESH, Sshfs
from tests.harness.suite import HOME, arbitrary_moment, eventually
from tests.pipeline.chain import QUEUE, producing
from tests.pipeline.processes import CONF, PATIENCE_S, Program, descendants, end_all
from tests.power.daemons import Daemons
from tests.power.programs import Programs
from tests.soak.worker_kills import batches, is_at_work, wanted_rows

_APPLICATION = HOME / "fsmq" / "cli" / "pipeline" / "__main__.py"
NAMES = ("queue", "head", "one", "two")
_LINES = 500
_PORT = 7077
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
# Spark gives up disconnected workers sooner than by default, which is minutes.
_DEFAULTS = """
spark.network.timeout 20s
spark.network.timeoutInterval 10s
spark.executor.heartbeatInterval 3s
spark.executor.memory 600m
spark.worker.timeout 15
spark.ui.enabled false
"""
_STRIKES = ("executor", "executor", "cut", "long cut", "driver")
_CUTS = {"cut": (1.0, 3.0), "long cut": (15.0, 40.0)}  # seconds
_PAUSE_S = 5.0  # between files of rows: sshfs is slow
_DRAIN_S = 900.0


class Cluster:
    """Spark's master on one host and a worker on each of some others, until the ``with`` ends.

    folder: the files that are not shared.
    """

    def __init__(self, folder: Path, head: Host, workers: list[Host]) -> None:
        self.url = f"spark://{head.name}:{_PORT}"
        self.environ = _environment(folder)
        self._folder = folder
        self._log = (folder / "cluster.log").open("ab")
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        words = ("--host", head.name, "--port", _PORT, "--webui-port", 0)
        self._master = self._start(head, _MASTER, *words)
        try:
            self._await(f"Starting Spark master at {self.url}")
            for host in workers:
                work = folder / f"work-{host.name}"
                words = ("--host", host.name, "--webui-port", 0, "--cores", 1, "--memory", "1g")
                self.workers[host.name] = self._start(host, _WORKER, *words, "-d", work, self.url)
            self._await("Successfully registered with master", len(workers))
        except BaseException:
            self.close()
            raise

    def _start(self, host: Host, *words: object) -> subprocess.Popen[bytes]:
        program = Path(self.environ["SPARK_HOME"]) / "bin" / "spark-class"
        return host.start(program, *words, log=self._log, env=self.environ)

    def _await(self, text: str, times: int = 1) -> None:
        log = self._folder / "cluster.log"
        eventually(lambda: log.read_text(errors="replace").count(text) >= times, PATIENCE_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all its processes."""
        for process in (*self.workers.values(), self._master):
            end_all(process)
        self._log.close()


def _environment(folder: Path) -> dict[str, str]:
    """The environment of Spark's programs, with their settings and the path of this project."""
    from fsmq.pipeline.java import find_java

    conf = folder / "conf"
    conf.mkdir()
    defaults = (CONF / "spark-defaults.conf").read_text()
    (conf / "spark-defaults.conf").write_text(defaults + _DEFAULTS)
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return {
        **os.environ,
        "JAVA_HOME": str(find_java()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")])),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_HOME": str(Path(found.origin).parent),
        "PYSPARK_PYTHON": sys.executable,
    }


class Place(NamedTuple):
    """The hosts and the cluster. shared: the folder that all hosts have mounted."""

    hosts: dict[str, Host]
    cluster: Cluster
    shared: Path
    folder: Path

    @property
    def root(self) -> Path:
        return self.shared / "mq"


@contextmanager
def staged(folder: Path, options: str) -> Iterator[Place]:
    """Start hosts, mount the folder on them, start the programs of fsmq and a cluster."""
    exported, shared = folder / "exported", folder / "shared"
    exported.mkdir()
    shared.mkdir()
    with ExitStack() as held:
        hosts = held.enter_context(Hosts(folder, "files", *NAMES))
        files = held.enter_context(Sshfs(hosts.server, folder))
        for host in hosts.others:
            files.mount(host, exported, shared, options)
        named = dict(zip(NAMES, hosts.others, strict=True))
        programs = held.enter_context(Programs(folder / "logs", named["queue"]))
        Daemons(programs, shared / "mq", sync="fsync").start()
        held.callback(programs.kill_all)
        cluster = Cluster(folder, named["head"], [named["one"], named["two"]])
        held.enter_context(cluster)
        yield Place(named, cluster, shared, folder)


class Findings:
    """Prints results. wrong: how many differ from the expected ones."""

    def __init__(self) -> None:
        self.wrong = 0
        self._began = time.monotonic()

    def expect(self, name: str, found: object, wanted: object) -> None:
        is_right = found == wanted
        self.wrong += not is_right
        result = f"{found}" if is_right else f"{found}, NOT {wanted}"
        print(f"[{time.monotonic() - self._began:4.0f} s] {name}: {result}", flush=True)


def submit(place: Place, job: str, *words: object) -> dict[str, Any]:
    """Run a job on the cluster with spark-submit; its summary."""
    command = [Path(place.cluster.environ["SPARK_HOME"]) / "bin" / "spark-submit"]
    words = ("--master", place.cluster.url, _APPLICATION, job, *words, f"--root={place.root}")
    done = subprocess.run(
        [*place.hosts["head"].enter, *map(str, (*command, *words, "--json"))],
        env=place.cluster.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), f"{job}: {done.returncode} {done.stdout}{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def jobs(place: Place, findings: Findings) -> None:
    """Run each job; load runs twice, and the second run adds nothing."""
    source, archive = place.shared / "lines.jsonl", place.shared / "archive"
    _write(place, source, "".join(f'{{"body": "line {n}"}}\n' for n in range(_LINES)))
    load = ("load", source, "--queue=lines", "--create-queues")
    findings.expect("load", submit(place, *load)["messages"], _LINES)
    findings.expect("load again", submit(place, *load)["messages"], 0)
    taken = submit(place, "archive", "lines", f"--to={archive}")
    findings.expect("archive", (taken["messages"], taken["hidden"]), (_LINES, 0))
    findings.expect("replay", submit(place, "replay", archive)["messages"], _LINES)
    tables = submit(place, "journal", f"--to={place.shared / 'tables'}")
    print(f"journal: {tables}")


def _write(place: Place, path: Path, text: str) -> None:
    """Write a file on a host."""
    command = [*place.hosts["head"].enter, "sh", "-c", 'cat > "$1"', "sh", str(path)]
    subprocess.run(command, input=text, text=True, check=True)


def strikes(place: Place, findings: Findings, number: int, chance: random.Random) -> None:
    """Run both streams while parts of the cluster fail, then drain and count."""
    exported = place.folder / "exported"
    (exported / "in").mkdir()
    with Spool(exported / "mq", create=False, delivers=False) as spool:
        spool.create_queue(QUEUE)
    run = partial(
        Program,
        place.folder,
        "tests.pipeline.chain",
        place.shared,
        "--place",
        place.shared,
        "--master",
        place.cluster.url,
        under=place.hosts["head"].enter,
        environ=place.cluster.environ,
    )
    done: Counter[str] = Counter()
    starts = 0
    with producing(exported / "in", _PAUSE_S) as rows:
        while done.total() < number:
            starts += 1
            with run() as driver:
                while done.total() < number and driver.is_running():
                    eventually(partial(is_at_work, driver, exported, batches(exported)), PATIENCE_S)
                    kind = chance.choice(_STRIKES)
                    done[kind] += 1
                    print(f"strike: {kind}", flush=True)
                    _strike(place, kind, driver, chance)
                # It has to continue after the last strike, too.
                eventually(partial(is_at_work, driver, exported, batches(exported)), PATIENCE_S)
    with run("--drain") as last:
        found = Counter(json.loads(last.output(_DRAIN_S).splitlines()[-1]))
    wanted = wanted_rows(rows[0])
    print(f"strikes: {dict(done)}, {starts} drivers; {rows[0]} rows", flush=True)
    findings.expect("rows lost", (wanted - found).total(), 0)
    findings.expect("rows twice", (found - wanted).total(), 0)
    with Spool(exported / "mq", create=False, delivers=False) as spool:
        findings.expect("left in the queue", spool.counts(QUEUE).total, 0)


def _strike(place: Place, kind: str, driver: Program, chance: random.Random) -> None:
    arbitrary_moment(chance, 0.0, 3.0)
    name = chance.choice(sorted(place.cluster.workers))
    if kind == "driver":
        driver.kill()
    elif kind == "executor":
        worker = place.cluster.workers[name]
        for pid in descendants(worker.pid, _EXECUTOR):
            driver.kill_one(pid)
    else:
        place.hosts[name].cut()
        arbitrary_moment(chance, *_CUTS[kind])
        place.hosts[name].restore()


def _fsmq(place: Place, *words: str) -> str:
    """Run the command `fsmq` on the host of mq; its output."""
    command = (sys.executable, "-m", "fsmq.cli", *words, "--root", place.root)
    return place.hosts["queue"].run(*command)


@click.command(help=__doc__)
@click.option("--strikes", "number", default=6, show_default=True, help="Failures of the cluster.")
@click.option("--no-jobs", is_flag=True, help="Only the streams.")
@click.option("--options", default=FRESH, show_default=True, help="More options of sshfs.")
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
def main(number: int, no_jobs: bool, options: str, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    findings = Findings()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # so that it cleans up
    with tempfile.TemporaryDirectory(prefix="fsmq-cluster-") as folder:
        try:
            with staged(Path(folder), options) as place:
                if not no_jobs:
                    jobs(place, findings)
                if number:
                    strikes(place, findings, number, random.Random(seed))
                findings.expect("fsck", _fsmq(place, "fsck").split()[-1], "clean")
        except CannotBeHost as error:
            print(f"NO CLUSTER: {error}")
            sys.exit(1)
    sys.exit(findings.wrong > 0)


if __name__ == "__main__":
    main()
