"""Queues as Spark tables and streams.

>>> from fsmq.pipeline import register
>>> register(spark)
>>> spark.read.format("fsmq").option("root", "/var/lib/fsmq").option("queue", "jobs").load()

Needs ``pip install fsmq[spark]`` and Java 17 or newer. Each module is one noun: the data source and
what it reads and writes, the session, and one module for each job of ``fsmq pipeline``.
"""

from fsmq.pipeline.session import register as register
from fsmq.pipeline.session import session as session

__all__ = ["register", "session"]
