"""The rows of the table, by the name that the command line takes."""

from __future__ import annotations

from collections.abc import Callable

from ..bench import Bench
from ..measure import Outcome
from . import (
    dynamiq,
    dyno,
    emodb,
    fetch,
    fifo,
    growth,
    journal,
    library,
    life,
    logs,
    longpoll,
    memory,
    metrics,
    mover,
    neighbour,
    pages,
    post,
    reaper,
    spark,
    spark_drain,
    spark_write,
    sqs,
)

Row = Callable[[Bench], Outcome]

ROWS: dict[str, Row] = {
    "post-64": post.post_64,
    "post-1": post.post_1,
    "life-64": life.life_64,
    "put-many": library.put_many,
    "log-publish": logs.log_publish,
    "log-consume": logs.log_consume,
    "log-channels": logs.log_channels,
    "log-rivals": logs.log_rivals,
    "fetch-depth": fetch.depth,
    "races": fetch.races,
    "fifo-send": fifo.send,
    "fifo-receive": fifo.receive,
    "mover-rate": mover.deliveries,
    "mover-latency": mover.latency,
    "mover-timers": mover.timers,
    "mover-restart": mover.restart,
    "longpoll": longpoll.waiters,
    "reaper": reaper.unlinks,
    "memory": memory.resident,
    "journal": journal.cost,
    "metrics": metrics.cost,
    "ui-page": pages.first_page,
    "ui-viewers": pages.cost_of_viewers,
    "neighbour": neighbour.slow,
    "growth": growth.growth,
    "emodb-send": emodb.send_batches,
    "emodb-dedup": emodb.send_dedup_batches,
    "emodb-poll": emodb.poll_and_ack,
    "emodb-depth": emodb.depth,
    "publish": dynamiq.publish,
    "dynamiq-batch": dynamiq.batches,
    "two-hosts": dynamiq.hosts,
    "sqs-send-batch": sqs.send_batches,
    "sqs-send": sqs.send,
    "sqs-receive-delete": sqs.receive_and_delete,
    "dyno-push": dyno.push,
    "dyno-life": dyno.life,
    "dyno-depth": dyno.depth,
    "spark-read": spark.snapshots,
    "spark-driver": spark.driver,
    "spark-drain": spark_drain.drain,
    "spark-write": spark_write.durable,
}
