# Made from ../_async/schedule.py by `make sync`: change that one.
"""One schedule of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsmq.spool.schedules.schedule_settings import (
    CatchUp,
    ScheduleSettings,
    ScheduleState,
    schedule_of,
)

from ..session._sync.session import Session
from ..verbs.schedule_verbs import ScheduleVerbs


class ClientSchedule:
    """One schedule of a server; every verb is durable when it returns."""

    def __init__(self, client: Session, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = ScheduleVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<ClientSchedule {self.name!r} of {self.client.options.origin}>"

    def define(
        self,
        cron: str,
        queue: str,
        body: bytes | str = b"",
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        paused: bool = False,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> bool:
        """Create the schedule, or replace it; False if it existed.

        It begins now; if it existed with the same line and zone, it continues where it was. See
        :class:`~fsmq.spool.ScheduleSettings` for the arguments.

        Raises InvalidValue.
        """
        content = schedule_of(
            cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
            content_type, attributes,
        )  # fmt: skip
        return self._run(self._verbs.define(self.name, content))

    def state(self) -> ScheduleState:
        """The current state of the schedule. Raises NoSuchSchedule."""
        return self._run(self._verbs.state(self.name))

    def configure(self, **changes: Any) -> ScheduleSettings:
        """Change settings, such as ``configure(paused=True)``; returns all of them.

        Raises InvalidValue, NoSuchSchedule.
        """
        return self._run(self._verbs.configure(self.name, changes))

    def next(self, count: int = 5) -> list[float]:
        """The next moments, in Unix seconds, as if it were not paused. Raises NoSuchSchedule."""
        return self._run(self._verbs.next(self.name, count))

    def put_now(self) -> str:
        """Put an extra message now; returns its id.

        Raises NoSuchSchedule, NoSuchQueue, QueueFull; InvalidValue if the queue refuses the body.
        """
        return self._run(self._verbs.run(self.name))

    def delete(self) -> None:
        """Delete the schedule; messages that it has put stay. Raises NoSuchSchedule."""
        self._run(self._verbs.delete(self.name))
