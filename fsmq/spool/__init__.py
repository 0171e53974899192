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
from .layout.message import Message, NewMessage
from .layout.settings import QueueSettings
from .layout.transitions import State
from .queue import Queue
from .spool import Spool
from .topic import Topic

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
