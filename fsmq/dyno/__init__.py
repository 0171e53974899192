"""dyno-queues: the queues of Netflix's library of that name, on a spool or a server of fsmq.

>>> from fsmq import Spool
>>> from fsmq.dyno import DynoQueues, Message
>>> queue = DynoQueues(Spool("/var/lib/fsmq"), zone="us-east-1a").get("tasks")
>>> queue.push([Message("id-1", "payload", timeout=5000)])

Start with `queue.py`. A shard is a queue ``<queue>@<shard>`` with an index of ids; this package is
built on the verbs of `fsmq.spool.indexed`.
"""

from .message import Message
from .queue import DynoQueue
from .queues import DynoQueues
from .strategies import ByHash, LeastFull, Local, RoundRobin

__all__ = [
    "ByHash",
    "DynoQueue",
    "DynoQueues",
    "LeastFull",
    "Local",
    "Message",
    "RoundRobin",
]
