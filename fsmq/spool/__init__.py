"""The spool: the on-disk format and every verb on it. Knows the disk and nothing else."""

from .context import Pending
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
from .views.browse import Moved
from .views.counts import Counts

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
