"""The spool: the on-disk format and every verb on it. Knows the disk and nothing else."""

from .browse import Moved
from .context import Pending
from .counts import Counts
from .errors import (
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSubscription,
    NoSuchTopic,
    QueueFull,
    Unavailable,
    UnusableSpool,
)
from .message import Message, NewMessage
from .queue import Queue
from .settings import QueueSettings
from .spool import Spool
from .topic import Topic
from .transitions import State

__all__ = [
    "Counts",
    "DuplicateMessage",
    "FsmqError",
    "InvalidValue",
    "Message",
    "MessageTooLarge",
    "Moved",
    "NewMessage",
    "NoSuchMessage",
    "NoSuchQueue",
    "NoSuchSubscription",
    "NoSuchTopic",
    "Pending",
    "Queue",
    "QueueFull",
    "QueueSettings",
    "Spool",
    "State",
    "Topic",
    "Unavailable",
    "UnusableSpool",
]
