"""A driver to be killed: a stream from a queue into a Parquet file sink, in a process of its own.

    python -m tests.pipeline.driver FOLDER            until it is killed
    python -m tests.pipeline.driver FOLDER --drain    what is ready, then prints what the sink has

FOLDER has the spool ``mq``, the sink ``out`` and the checkpoint.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fsmq.pipeline import session

QUEUE, CONSUMER = "jobs", "archive"
PER_BATCH, PER_DRAIN = 200, 5000


def main(folder: Path, drains: bool) -> None:
    spark = session("kills", master="local[2]")
    stream = (
        spark.readStream.format("fsmq")
        .options(root=str(folder / "mq"), queue=QUEUE, consumer=CONSUMER)
        .options(maxMessagesPerBatch=PER_DRAIN if drains else PER_BATCH, visibilityTimeout=5)
        .load()
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**({"availableNow": True} if drains else {"processingTime": "0 seconds"}))
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(folder / "out")).select("id", "body").toLocalIterator()
    print(json.dumps([(row.id, bytes(row.body).decode()) for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--drain" in sys.argv[2:])
