"""The spool: the on-disk format and every verb on it. Knows the disk and nothing else."""

from ._sync.claimed_message import Claimed as Claimed
from .claimed import Bury, Retry
from .errors import (
    ClaimEnded,
    ClaimVoid,
    ConsumerInUse,
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    LogFull,
    MessageTooLarge,
    NoSuchChannel,
    NoSuchLog,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSchedule,
    NoSuchSubscription,
    NoSuchTopic,
    NotInFlight,
    OffsetGone,
    OtherWriter,
    QueueFull,
    Unavailable,
    UnusableSpool,
)
from .index.counting import Counts
from .layout.message import Message, NewMessage
from .layout.settings import QueueSettings
from .layout.transitions import State as State
from .log._sync.channel_message import ChannelMessage as ChannelMessage
from .log.channel import Channel as Channel
from .log.log import Log as Log
from .log.log import LogEntry
from .log.segment.record import LogMessage as LogMessage
from .queue import Queue as Queue
from .schedules.schedule import Schedule as Schedule
from .schedules.schedule_settings import ScheduleSettings as ScheduleSettings
from .schedules.schedule_settings import ScheduleState as ScheduleState
from .spool import Spool
from .topic import Topic as Topic
from .verbs.move import Moved as Moved

# What programs make or catch; what they are given (Queue, Topic) can be imported, too.
__all__ = [
    "Bury",
    "ClaimEnded",
    "ClaimVoid",
    "ConsumerInUse",
    "Counts",
    "DuplicateMessage",
    "FsmqError",
    "InvalidValue",
    "LogEntry",
    "LogFull",
    "Message",
    "MessageTooLarge",
    "NewMessage",
    "NoSuchChannel",
    "NoSuchLog",
    "NoSuchMessage",
    "NoSuchQueue",
    "NoSuchSchedule",
    "NoSuchSubscription",
    "NoSuchTopic",
    "NotInFlight",
    "OffsetGone",
    "OtherWriter",
    "QueueFull",
    "QueueSettings",
    "Retry",
    "Spool",
    "Unavailable",
    "UnusableSpool",
]
