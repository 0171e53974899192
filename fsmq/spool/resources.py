"""Things with settings: queues, topics with their subscriptions, logs with their channels."""

from __future__ import annotations

from .layout import settings
from .layout.settings import DEFAULTS, SETTINGS
from .layout.settings_base import REQUIRED, MessageBody, Setting, Texts, checked
from .layout.settings_store import SettingsStore
from .layout.topics.deliveries import REDRIVE, Delivery, looks_into_bodies
from .layout.topics.filters import MAX_FILTER_BYTES, Filter
from .layout.topics.policies import (
    MAX_LOOKED_INTO_BYTES,
    SCOPES,
    Candidates,
    Policy,
    Scope,
    as_number,
    listed,
)
from .layout.topics.topics import Subscription, as_json, log_of, subscriber_of, work_of
from .log.consuming.burial import check_dead_letters
from .log.log_places import From, place_in
from .log.log_settings import CHANNEL_SETTINGS, LOG_SETTINGS, ChannelSettings, LogSettings
from .log.ranges import Range, ranges_of
from .log.segment.record import MAX_ID_BYTES, MAX_KEY_BYTES
from .schedules import schedule_settings
from .schedules.crontab import Crontab
from .schedules.schedule import MAX_NEXT
from .schedules.schedule_settings import (
    MAX_NAME_BYTES,
    MAX_SCHEDULE_BYTES,
    ScheduleSettings,
    check_schedule,
)
from .verbs.queues import creation, subscribing
from .verbs.queues.creation import changed

__all__ = [
    "CHANNEL_SETTINGS",
    "DEFAULTS",
    "LOG_SETTINGS",
    "MAX_FILTER_BYTES",
    "MAX_ID_BYTES",
    "MAX_KEY_BYTES",
    "MAX_LOOKED_INTO_BYTES",
    "MAX_NAME_BYTES",
    "MAX_NEXT",
    "MAX_SCHEDULE_BYTES",
    "REDRIVE",
    "REQUIRED",
    "SCOPES",
    "SETTINGS",
    "Candidates",
    "ChannelSettings",
    "Crontab",
    "Delivery",
    "Filter",
    "From",
    "LogSettings",
    "MessageBody",
    "Policy",
    "Range",
    "ScheduleSettings",
    "Scope",
    "Setting",
    "SettingsStore",
    "Subscription",
    "Texts",
    "as_json",
    "as_number",
    "changed",
    "check_dead_letters",
    "check_schedule",
    "checked",
    "creation",
    "listed",
    "log_of",
    "looks_into_bodies",
    "place_in",
    "ranges_of",
    "schedule_settings",
    "settings",
    "subscriber_of",
    "subscribing",
    "work_of",
]
