"""The options of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from fsmq.kinds import Number, Whole
from fsmq.spool.layout.names import MAX_PRIORITY
from fsmq.spool.layout.settings import MAX_DELAY_S, MAX_TTL_S
from fsmq.spool.layout.settings_base import QueueName, Settings, setting, settings_of
from fsmq.spool.layout.stamps import MAX_COUNT
from fsmq.spool.schedules.schedule_settings import SETTINGS as OF_SCHEDULES
from fsmq.spool.worker.handlers import WorkerOptions

# Deliveries of a task's queue that failures do not use up: a worker that is killed has had one.
KILLS = 10
MAX_RETRIES = MAX_COUNT - KILLS - 1
Unique: TypeAlias = "bool | Callable[..., str]"


class Equal:
    """The kind of ``unique``: a switch, or a function of the arguments that returns a text."""

    native: tuple[type, ...] = (bool, Callable)  # type: ignore[assignment]
    unit = limits = ""
    metavar = "UNIQUE"
    expected = "true, false or a function"

    def parse(self, raw: Any) -> Unique:
        """The value as it is."""
        value: Unique = raw
        return value


@dataclass(frozen=True)
class TaskOptions(Settings):
    """How the calls of a task are sent and tried. `OPTIONS` describes each, also for the docs."""

    # An application always gives one.
    queue: str = setting(None, QueueName(), "where its calls wait", null="that of the app")
    retries: int = setting(
        3, Whole(0, MAX_RETRIES, "retries"), "how often a call that failed is tried again"
    )
    backoff: float = setting(
        1.0,
        Number(0, MAX_DELAY_S, "seconds"),
        "until the first retry; doubled each time, minus up to a fifth at random",
    )
    backoff_max: float = setting(
        300.0, Number(0, MAX_DELAY_S, "seconds"), "until the next retry at most"
    )
    timeout: float | None = setting(
        None, Number(0.001, MAX_DELAY_S, "seconds"), "that a try may take", null="no limit"
    )
    priority: int = setting(0, Whole(0, MAX_PRIORITY, ""), "lower ones are run first")
    ttl: float | None = setting(
        None, Number(0, MAX_TTL_S, "seconds"), "after which a call that waits expires", null="never"
    )
    unique: Unique = setting(
        False, Equal(), "whether, or by which text, calls are the same: one of them waits or runs"
    )
    cron: str | None = setting(
        None, OF_SCHEDULES["cron"].kind, "when it is called without arguments", null="never"
    )
    timezone: str = setting("UTC", OF_SCHEDULES["timezone"].kind, "of that line")

    @cached_property
    def pace(self) -> WorkerOptions:
        """The pauses between tries, as a worker makes them."""
        return WorkerOptions(backoff=self.backoff, backoff_max=self.backoff_max)


OPTIONS = settings_of(TaskOptions)
