"""The spool: the on-disk format and every verb on it. Depends on nothing else in fsmq."""

from typing import TYPE_CHECKING

from fsmq.later import importing

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

if TYPE_CHECKING:
    from ._sync.claimed_message import Claimed as Claimed
    from .claimed import Bury as Bury
    from .claimed import Retry as Retry
    from .index.counting import Counts as Counts
    from .indexed import Indexed as Indexed
    from .layout.messages.message import Message as Message
    from .layout.messages.message import NewMessage as NewMessage
    from .layout.settings import QueueSettings as QueueSettings
    from .layout.transitions import State as State
    from .log._sync.channel_message import ChannelMessage as ChannelMessage
    from .log.channel import Channel as Channel
    from .log.log import Log as Log
    from .log.log import LogEntry as LogEntry
    from .log.segment.record import LogMessage as LogMessage
    from .queue import Queue as Queue
    from .schedules.schedule import Schedule as Schedule
    from .schedules.schedule_settings import ScheduleSettings as ScheduleSettings
    from .schedules.schedule_settings import ScheduleState as ScheduleState
    from .spool import Spool as Spool
    from .topic import Topic as Topic
    from .verbs.moves.move import Moved as Moved

_LATER = {
    "Bury": "claimed",
    "Channel": "log.channel",
    "ChannelMessage": "log._sync.channel_message",
    "Claimed": "_sync.claimed_message",
    "Counts": "index.counting",
    "Indexed": "indexed",
    "Log": "log.log",
    "LogEntry": "log.log",
    "LogMessage": "log.segment.record",
    "Message": "layout.messages.message",
    "Moved": "verbs.moves.move",
    "NewMessage": "layout.messages.message",
    "Queue": "queue",
    "QueueSettings": "layout.settings",
    "Retry": "claimed",
    "Schedule": "schedules.schedule",
    "ScheduleSettings": "schedules.schedule_settings",
    "ScheduleState": "schedules.schedule_settings",
    "Spool": "spool",
    "State": "layout.transitions",
    "Topic": "topic",
}
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

__getattr__ = importing(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
