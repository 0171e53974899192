"""The spool: the on-disk format and every verb on it. Knows the disk and nothing else."""

from .claimed import Bury, Retry
from .errors import (
    ConsumerInUse,
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
from .layout.transitions import State as State
from .queue import Queue as Queue
from .spool import Spool
from .topic import Topic as Topic
from .verbs.move import Moved as Moved
from .views.counts import Counts

# What programs make or catch; what they are given (Queue, Topic) can be imported, too.
__all__ = [
    "Bury",
    "ConsumerInUse",
    "Counts",
    "DuplicateMessage",
    "FsmqError",
    "InvalidValue",
    "Message",
    "MessageTooLarge",
    "NewMessage",
    "NoSuchMessage",
    "NoSuchQueue",
    "NoSuchSubscription",
    "NoSuchTopic",
    "QueueFull",
    "QueueSettings",
    "Retry",
    "Spool",
    "Unavailable",
    "UnusableSpool",
]
