"""The verbs on whole queues, topics and schedules, for requests of all dialects.

Dialects check rights and make the answers. Each verb raises what that of the spool raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from fsmq.spool import QueueSettings, Schedule, ScheduleState, Spool
from fsmq.spool.checks import check_queue
from fsmq.spool.resources import (
    Filter,
    ScheduleSettings,
    check_schedule,
    creation,
    subscribing,
)

from ..running.runner import Runner

Check: TypeAlias = Callable[[ScheduleState | None], object]


class Resources:
    """The verbs on one spool's resources. All changes are durable when a verb returns."""

    def __init__(self, spool: Spool, runner: Runner) -> None:
        self._spool = spool
        self._context = spool.context
        self._runner = runner

    # -- queues ------------------------------------------------------------------------------------

    async def create_queue(
        self, queue: str, members: Mapping[str, Any] | None = None, *, of_any_kind: bool = False
    ) -> bool:
        """Create a queue, with the members of its file; False if it existed, and is unchanged.

        of_any_kind: accept an existing queue without the index or order that the members ask for.
        """
        create = partial(creation.create, of_any_kind=of_any_kind)
        return await self._runner.in_thread(create, self._context, check_queue(queue), members)

    async def configure_queue(
        self, queue: str, change: creation.Change, keeps: str | None = None
    ) -> QueueSettings:
        """Change settings of a queue; returns all of them.

        keeps: a member of its file that is not a setting, but may be changed, too.
        """
        return await self._runner.in_thread(creation.change, self._context, queue, change, keeps)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and all its messages."""
        await self._runner.listing(self._spool.delete_queue, queue)

    async def purge(self, queue: str) -> None:
        """Remove all messages of a queue."""
        await self._runner.listing(self._spool.queue(queue).purge)

    # -- topics ------------------------------------------------------------------------------------

    async def create_topic(self, topic: str) -> bool:
        """Create a topic; False if it existed."""
        return await self._runner.in_thread(self._spool.create_topic, topic)

    async def describe_topic(
        self,
        topic: str,
        change: Callable[[dict[str, Any]], Mapping[str, Any]],
        *,
        creates: bool = False,
    ) -> None:
        """Change what a dialect stores with a topic. creates: create the topic if it is missing."""
        describe = partial(subscribing.describe_topic, creates=creates)
        await self._runner.in_thread(describe, self._context, topic, change)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic and its subscriptions."""
        await self._runner.listing(self._spool.delete_topic, topic)

    async def subscribe(
        self,
        topic: str,
        subscriber: str,
        filter: Filter | None = None,
        *,
        keep: bool = False,
        check: Callable[[QueueSettings], object] = lambda settings: None,
    ) -> bool:
        """Subscribe a queue or ``logs/<log>``, or replace its filter; False if it was subscribed.

        keep: leave an existing subscription as it is. check: can refuse the queue's settings.
        """
        subscribe = partial(subscribing.subscribe, keep=keep, check=check)
        return await self._runner.in_thread(subscribe, self._context, topic, subscriber, filter)

    async def change_filter(
        self, topic: str, subscriber: str, change: Callable[[Filter | None], Filter | None]
    ) -> bool:
        """Change the filter of a subscription; False if there is none."""
        of_topic = partial(subscribing.change_filter, self._context, topic)
        return await self._runner.in_thread(of_topic, subscriber, change)

    async def unsubscribe(self, topic: str, subscriber: str) -> bool:
        """End a subscription; False if there was none."""
        return await self._runner.in_thread(self._spool.unsubscribe, topic, subscriber)

    # -- schedules ---------------------------------------------------------------------------------

    async def define_schedule(
        self, name: str, check: Check, settings: ScheduleSettings
    ) -> tuple[bool, ScheduleState]:
        """Create a schedule, or replace it; returns whether it is new, and its state afterwards."""
        return await self._runner.in_thread(self._schedule(name, check).replace, settings)

    async def change_schedule(
        self, name: str, check: Check, change: Callable[[ScheduleSettings], Mapping[str, Any]]
    ) -> ScheduleState:
        """Change some settings of a schedule; returns its state afterwards."""
        return (await self._runner.in_thread(self._schedule(name, check).change, change))[1]

    async def delete_schedule(self, name: str, check: Check) -> None:
        """Delete a schedule; messages that it has put stay."""
        await self._runner.in_thread(self._schedule(name, check).delete)

    async def put_of_schedule(self, name: str, check: Check) -> str:
        """Put the message of a schedule now; returns its id."""
        return await self._runner.listing(self._schedule(name, check).put_now)

    def _schedule(self, name: str, check: Check) -> Schedule:
        """A schedule whose changes ``check`` may refuse: it gets the current state, under the lock.

        The schedule's queue decides who may change it, so check and change have to be one step.
        """
        return Schedule(self._context, self._spool.complete, check_schedule(name), check)
