"""What runs in the machine for Spark: a driver on one host, a worker on the other, one export.

`python -m tests.nfs.spark` is the act; with ``--at`` it is the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from fsmq.pipeline import session
from fsmq.spool import Spool
from tests.hosts import Hosts
from tests.nfs.export import Export
from tests.pipeline.cluster import Cluster

_NUMBER = 300
_OPTIONS = "vers=4.2,hard,noatime,lookupcache=positive"
_MODULE = "tests.nfs.spark"


@click.command()
@click.option("--at", type=click.Path(path_type=Path))
@click.option("--master")
def main(at: Path | None, master: str | None) -> None:
    if at is not None:
        drive(at, master)
        return
    export = Export(Path("/srv/export"))
    export.start()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        shared = folder / "shared"
        shared.mkdir()
        hosts = held.enter_context(Hosts(folder, None, "one", "two"))
        for host in hosts.others:
            export.mount(host, shared, _OPTIONS)
        with Spool(export.folder / "mq", delivers=True) as spool:
            spool.queue("jobs").put_many(b"%d" % n for n in range(_NUMBER))
            spool.deliver()
        one, two = hosts.others
        cluster = held.enter_context(Cluster(folder, one, [two]))
        print("the cluster is up", flush=True)
        command = (sys.executable, "-m", _MODULE, "--at", shared, "--master", cluster.url)
        done = subprocess.run([*one.enter, *map(str, command)], env=cluster.environ)
        with Spool(export.folder / "mq", create=False, delivers=False) as spool:
            left = spool.counts("jobs").total
        print(f"left in the queue: {left}", flush=True)
    sys.exit(done.returncode or left)


def drive(shared: Path, master: str | None) -> None:
    """A snapshot, a write, a stream that drains; what came of each, as it comes."""
    began = time.monotonic()

    def tell(what: str, found: object) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {what}: {json.dumps(found)}", flush=True)

    spark = session("nfs", master=master)
    tell("session", spark.version)
    spool = {"root": str(shared / "mq"), "queue": "jobs"}
    standing = spark.read.format("fsmq").options(**spool).load()
    tell("snapshot", standing.select("body").distinct().count())
    rows = spark.range(_NUMBER).selectExpr("concat('row ', id) body")
    rows.write.format("fsmq").mode("append").options(**spool).save()
    tell("standing after the write", standing.count())
    taken = spark.readStream.format("fsmq").options(**spool, consumer="nfs").load()
    writing = taken.writeStream.format("parquet").trigger(availableNow=True)
    places = {"path": str(shared / "out"), "checkpointLocation": str(shared / "checkpoint")}
    writing.options(**places).start().awaitTermination()
    sink = spark.read.parquet(str(shared / "out"))
    tell("in the sink, different ones", [sink.count(), sink.select("body").distinct().count()])
    spark.stop()


if __name__ == "__main__":
    main()
