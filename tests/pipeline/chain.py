"""A driver with two streams: one writes rows into a queue, the other takes them into a sink.

    python -m tests.pipeline.chain FOLDER --place PLACE            until it is killed
    python -m tests.pipeline.chain FOLDER --place PLACE --drain    all rows; prints the sink

FOLDER/in has files of rows. PLACE has the spool, both checkpoints and the sink. The sink is printed
as a list of bodies.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsmq.pipeline import session
from fsmq.spool import Spool
from tests.harness.suite import eventually
from tests.pipeline.processes import PATIENCE_S, Program

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

QUEUE, CONSUMER = "jobs", "chain"
_MODULE = "tests.pipeline.chain"
_LINES = 100
WRITES, TAKES = "writes", "takes"  # the checkpoints


def feed(folder: Path, number: int) -> int:
    """Add the file of this number, from 0; the number of rows so far."""
    first = number * _LINES
    draft = folder / f".{number}"
    draft.write_text("".join(f"row {first + n}\n" for n in range(_LINES)))
    draft.rename(folder / f"{number:09}.txt")
    return first + _LINES


@contextmanager
def producing(folder: Path, pause: float, files: int = 1_000_000) -> Iterator[list[int]]:
    """Add a file of rows after each pause; the number of rows, in a list of one."""
    over, rows = threading.Event(), [0]

    def produce() -> None:
        for number in range(files):
            rows[0] = feed(folder, number)
            if over.wait(pause):
                return

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield rows
    finally:
        over.set()
        producer.join()


def running(folder: Path, place: Path, *more: str) -> Program:
    """The driver as a process."""
    return Program(folder, _MODULE, folder, "--place", place, *more)


def drained(folder: Path, place: Path, *more: str) -> Counter[str]:
    """Take the remaining rows into the sink; its bodies."""
    with running(folder, place, "--drain", *more) as last:
        return Counter(json.loads(last.output().splitlines()[-1]))


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--place", type=click.Path(path_type=Path), required=True)
@click.option("--master", default="local[2,4]", show_default=True)
@click.option("--drain", is_flag=True)
def main(folder: Path, place: Path, master: str, drain: bool) -> None:
    # Executors of the cluster are killed again and again.
    spark = session("chain", master=master, settings={"spark.deploy.maxExecutorRetries": "-1"})
    trigger = {"availableNow": True} if drain else {"processingTime": "0 seconds"}

    def start(frame: object, sink: str, checkpoint: str, **options: str) -> StreamingQuery:
        writing = frame.writeStream.format(sink).options(**options)  # type: ignore[attr-defined]
        checkpointed = writing.option("checkpointLocation", str(place / checkpoint))
        query: StreamingQuery = checkpointed.trigger(**trigger).start()
        if drain:
            query.awaitTermination()
        return query

    spool = {"root": str(place / "mq"), "queue": QUEUE}
    lines = spark.readStream.option("maxFilesPerTrigger", "100" if drain else "5")
    rows = lines.text(str(folder / "in")).withColumnRenamed("value", "body").repartition(2)
    start(rows, "fsmq", WRITES, **spool)
    if drain:
        with Spool(spool["root"], delivers=False) as opened:
            eventually(lambda: not opened.counts(QUEUE).new, PATIENCE_S)
            # Abandoned claims end by their timers, except those of an open batch.
            eventually(lambda: _is_ours(opened), PATIENCE_S)
    taking = spark.readStream.format("fsmq").options(**spool, consumer=CONSUMER)
    taking = taking.options(maxMessagesPerBatch=5000 if drain else 500, visibilityTimeout=10)
    safe = ",".join(map(str, (place / "out", place / TAKES)))
    for made in (place / "out", place / TAKES):
        made.mkdir(exist_ok=True)
    messages = taking.option("syncBeforeCommit", safe).load().selectExpr("id", "string(body) body")
    start(messages, "parquet", TAKES, path=str(place / "out"))
    if drain:
        found = spark.read.parquet(str(place / "out")).select("body").toLocalIterator()
        print(json.dumps([row.body for row in found]))
        spark.stop()
    else:
        spark.streams.awaitAnyTermination()


def _is_ours(spool: Spool) -> bool:
    """Whether all messages in flight belong to open batches of the consumer."""
    from fsmq.spool.consumers.batches import overview

    seen = overview(spool.context).get(CONSUMER)
    return spool.counts(QUEUE).in_flight <= (seen.messages if seen is not None else 0)


if __name__ == "__main__":
    main()
