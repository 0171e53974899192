"""Actions on queues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from fsmq.spool import Counts, QueueSettings, Spool
from fsmq.spool.errors import NoSuchQueue, as_unavailable
from fsmq.spool.on_disk import OfQueues

from ...service.service import Service
from .. import fifo
from .. import queue_attributes as attributes
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError, invalid, no_such_queue
from ..flags import in_small_letters
from ..names import SqsOptions, check_new_name, is_visible
from ..queue_attributes import MEMBER, Change
from .paging import page
from .tags import check_tags_of

# Counts that take longer are cached for a while, because autoscalers ask often.
_QUICK_S = 0.02


class Queues(Actions):
    """Actions that create, find, list, describe, change, purge and delete queues."""

    def __init__(self, service: Service, options: SqsOptions) -> None:
        super().__init__(service, options)
        # Until when counts are cached.
        self._slow_until: OfQueues[float] = OfQueues(service.spool.tree)

    def actions(self) -> Mapping[str, Action]:
        return {
            "CreateQueue": self.create,
            "DeleteQueue": self.delete,
            "GetQueueAttributes": self.describe,
            "GetQueueUrl": self.find,
            "ListDeadLetterSourceQueues": self.list_sources,
            "ListQueues": self.list_queues,
            "PurgeQueue": self.purge,
            "SetQueueAttributes": self.configure,
        }

    async def create(self, ask: Ask) -> Result:
        given = in_small_letters(ask.get("Attributes", {}))
        is_fifo = given.get(fifo.FLAG) == "true"
        queue = check_new_name(ask.members["QueueName"], is_fifo)
        ask.require("admin", queue)
        change = attributes.read_change(given, is_fifo)
        fifo.check_together(change.kept)
        tags = check_tags_of(queue, ask.get("tags", {}))
        self._check_redrive(ask, queue, change, is_fifo)
        while not await self._create(queue, change, tags, is_fifo):
            if await self._has(queue, given):
                break
        return {"QueueUrl": ask.url(queue)}

    async def _create(
        self, queue: str, change: Change, tags: Mapping[str, str], is_fifo: bool
    ) -> bool:
        now_ms = int(time.time() * 1000)
        now = now_ms // 1000
        member = {"created": now, "created_ms": now_ms, "tags": dict(tags), "modified": now}
        attributes.keep(member, change.kept)
        retention = float(attributes.DEFAULT_RETENTION_S)
        asked = {"retention": retention, **change.settings}
        if is_fifo:
            asked |= fifo.first_settings_of(change.kept)
        members = {**_typed(asked), MEMBER: member}
        with attributes.storing():
            return await self._service.resources.create_queue(queue, members, of_any_kind=True)

    async def _has(self, queue: str, given: Mapping[str, str]) -> bool:
        """Make sure that a queue that was there has these attributes; False if it is gone.

        Raises SqsError.
        """
        if not await self._service.in_thread(self._differs, queue, given):
            return True

        def check(settings: QueueSettings, document: Mapping[str, Any]) -> Mapping[str, Any]:
            if name := self._differs(queue, given):
                words = (
                    "A queue already exists with the same name and a different value for"
                    f" attribute {name}"
                )
                raise SqsError("QueueNameExists", words)
            return {}

        try:  # under its lock: what was seen may have been deleted, and be there anew
            await self._service.resources.configure_queue(queue, check)
        except NoSuchQueue:
            return False
        return True

    def _differs(self, queue: str, given: Mapping[str, str]) -> str | None:
        """An attribute of a queue that is another."""
        now = self._described(queue)
        for name, value in given.items():
            if value != now.get(name, "") and not _is_same_json(value, now.get(name, "")):
                return name
        return None

    async def find(self, ask: Ask) -> Result:
        name = ask.members["QueueName"]
        if not is_visible(name):
            raise no_such_queue()
        ask.require(None, name)
        self.check_there(name)
        return {"QueueUrl": ask.url(name)}

    async def list_queues(self, ask: Ask) -> Result:
        prefix = ask.get("QueueNamePrefix", "")
        names = await self._service.names(ask.call, self._spool.queues, ask.identity.visible)
        found = [name for name in names if name.startswith(prefix) and is_visible(name)]
        return _listed(ask, "QueueUrls", found)

    async def describe(self, ask: Ask) -> Result:
        queue = ask.queue(None)
        self.check_there(queue)
        names = attributes.check_names(ask.get("AttributeNames", []))
        if not names:
            return {}
        found = self._described(queue)
        if attributes.asks_for_counts(names):
            counts = await self._counts(queue)
            found |= attributes.counted(counts.new + counts.ready, counts.in_flight, counts.delayed)
        found["QueueArn"] = ask.options.arn(queue)
        chosen = {name: found[name] for name in names if name in found}
        return {"Attributes": chosen} if chosen else {}

    async def configure(self, ask: Ask) -> Result:
        queue = ask.queue("admin")
        is_fifo = self._spool.settings(queue).fifo
        given = in_small_letters(ask.members["Attributes"])
        change = attributes.read_change(given, is_fifo)
        self._check_redrive(ask, queue, change, is_fifo)

        def configured(now: QueueSettings, member: dict[str, Any]) -> dict[str, Any]:
            attributes.keep(member, change.kept)
            fifo.check_together(fifo.kept_of(now, attributes.kept_in(member)))
            return _typed(change.settings)

        await self.change_member(queue, configured)
        return {}

    async def delete(self, ask: Ask) -> Result:
        queue = ask.queue("admin")
        await self._service.resources.delete_queue(queue)
        return {}

    async def purge(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        await self._service.resources.purge(queue)
        return {}

    async def list_sources(self, ask: Ask) -> Result:
        queue = ask.queue(None)
        self.check_there(queue)
        sources = await self._service.listing(self._sources, queue, ask.identity.visible)
        return {"queueUrls": [], **_listed(ask, "queueUrls", sources)}

    def _sources(self, queue: str, visible: Callable[[list[str]], list[str]]) -> list[str]:
        return [name for name in visible(sources_of(self._spool, queue)) if is_visible(name)]

    # -- parts -----------------------------------------------------------------------------------

    def _check_redrive(self, ask: Ask, queue: str, change: Change, is_fifo: bool) -> None:
        """Check that a redrive policy names a queue that can take these dead letters.

        Raises SqsError, Unavailable.
        """
        if change.redrive is None:
            return
        target, text = change.redrive.target, change.kept[attributes.REDRIVE]
        # Otherwise an admin of one queue could put messages into any other. Checked first, because
        # only its admins may learn whether the target exists.
        ask.require("admin", target)
        if target == queue:
            reason = "fsmq does not take a queue as its own dead-letter queue."
            raise invalid(attributes.REDRIVE, text, reason)
        if not is_visible(target) or not self._spool.has_queue(target):
            raise invalid(attributes.REDRIVE, text, "Dead letter target does not exist.")
        with as_unavailable(f"cannot read the settings of {target!r}"):
            member = self._spool.context.settings.member(target, MEMBER)
            if self._spool.context.settings.get(target).fifo != is_fifo:
                reason = "Dead-letter queue must be same type of queue as the source queue."
                raise invalid(attributes.REDRIVE, text, reason)
        allow = attributes.kept_in(member).get(attributes.REDRIVE_ALLOW)
        if not attributes.redrive_allows(allow, ask.options.arn(queue)):
            reason = "The dead-letter queue does not permit this queue as a source."
            raise invalid(attributes.REDRIVE, text, reason)

    def _described(self, queue: str) -> dict[str, str]:
        context = self._spool.context
        with as_unavailable(f"cannot read the settings of {queue!r}"):
            member = context.settings.member(queue, MEMBER)
            settings = context.settings.get(queue)
        return attributes.described(settings, member, context.max_message_bytes, self._redrive_of)

    def _redrive_of(self, settings: QueueSettings) -> str | None:
        if settings.dead_letter_queue is None:
            return None
        target = self._options.arn(settings.dead_letter_queue)
        return json.dumps(
            {"deadLetterTargetArn": target, "maxReceiveCount": settings.max_deliveries}
        )

    async def _counts(self, queue: str) -> Counts:
        """The current counts if counting is quick, because many clients ask after sending."""
        started = time.monotonic()
        is_slow = self._slow_until.get(queue, 0.0) > started
        if is_slow:
            return await self._service.sizes.counts(queue)
        counts = await self._service.listing(self._spool.counts, queue)
        took = time.monotonic() - started
        if took > _QUICK_S:
            self._slow_until[queue] = started + 50 * took
        else:
            self._slow_until.pop(queue, None)
        return counts


def sources_of(spool: Spool, queue: str) -> list[str]:
    """The queues whose dead letters go to a queue, sorted. Raises Unavailable."""
    with as_unavailable("cannot read the settings of queues"):
        settings = spool.context.settings
        return [name for name in spool.queues() if settings.get(name).dead_letter_queue == queue]


def _listed(ask: Ask, name: str, queues: list[str]) -> Result:
    found, token = page(ask, queues)
    result: Result = {name: [ask.url(queue) for queue in found]} if found else {}
    if token is not None:
        result["NextToken"] = token
    return result


def _typed(changes: Mapping[str, Any]) -> dict[str, Any]:
    seconds = ("visibility_timeout", "default_delay", "retention")
    return {
        name: float(value) if name in seconds and value is not None else value
        for name, value in changes.items()
    }


def _is_same_json(one: str, other: str) -> bool:
    """Whether two policies are equal; a number in one can be text in the other."""
    first, second = attributes.object_in(one), attributes.object_in(other)
    if first is None or second is None:
        return False
    return {k: str(v) for k, v in first.items()} == {k: str(v) for k, v in second.items()}
