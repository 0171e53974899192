"""A request as the actions see it, and the base class of actions."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fsmq.spool import QueueSettings

from ..dialect import Handlers
from ..guard.access import Identity
from ..guard.keys import Right
from ..problems import Forbidden
from ..routing.call import Call
from ..service.service import Service
from .errors import denied, no_such_queue
from .names import SqsOptions, queue_of_url
from .queue_attributes import MEMBER, storing

TRACE_HEADER = "X-Amzn-Trace-Id"
_TRACE = re.compile(r"[!-~](?:[ -~]{0,1022}[!-~])?")
T = TypeVar("T")
# By what it is, and by the queue.
Shared: TypeAlias = dict[tuple[str, str], Any]


class Ask:
    """One request: its sender, its action and the members.

    origin: of the URLs in its answer. call: None if the fast path has taken it. shared: cached
    facts about its queues. trace: the trace from its header; None if a message cannot keep it.
    """

    __slots__ = ("_call", "action", "identity", "members", "options", "origin", "shared", "trace")

    def __init__(
        self,
        call: Call | None,
        identity: Identity,
        action: str,
        members: Mapping[str, Any],
        options: SqsOptions,
        origin: str = "",
        trace: str | None = None,
    ) -> None:
        self._call = call
        self.trace = trace if trace and _TRACE.fullmatch(trace) else None
        self.shared: Shared = {}
        self.identity = identity
        self.action = action
        self.members = members
        self.options = options
        self.origin = origin

    @property
    def call(self) -> Call:
        """The request, for actions that are not on the fast path."""
        assert self._call is not None
        return self._call

    def get(self, name: str, default: Any = None) -> Any:
        """A member; ``default`` if it was not sent."""
        return self.members.get(name, default)

    def url(self, queue: str) -> str:
        """The URL of a queue."""
        return f"{self.origin}/{self.options.account}/{queue}"

    def queue(self, right: Right | None) -> str:
        """The queue of the request; checks a right on it, None: any. Raises SqsError."""
        name = queue_of_url(self.members["QueueUrl"])
        self.require(right, name)
        return name

    def require(self, right: Right | None, queue: str) -> None:
        """Check a right on a queue; None: any. Raises SqsError, Unauthorized."""
        if right is None:
            self.allowed(queue, partial(self.identity.require_sight, queue))
        else:
            self.allowed(queue, partial(self.identity.require, right, queue))

    def allowed(self, queue: str, check: Callable[[], T]) -> T:
        """The result of a check of rights; its refusal names the queue. Raises as `require`."""
        try:
            return check()
        except Forbidden:
            arn = self.options.arn(queue)
            raise denied(self.identity.name, self.action, arn) from None


# The result of an action, and its handler.
Result: TypeAlias = dict[str, Any]
Action: TypeAlias = Callable[[Ask], Awaitable[Result]]


class Actions(Handlers):
    """Handlers of some actions."""

    def __init__(self, service: Service, options: SqsOptions) -> None:
        super().__init__(service)
        self._options = options

    def settings(self, ask: Ask, queue: str) -> QueueSettings:
        """The settings of a queue. Raises InvalidValue, NoSuchQueue, Unavailable."""
        found: QueueSettings | None = ask.shared.get(("settings", queue))
        if found is None:
            found = ask.shared["settings", queue] = self._spool.settings(queue)
        return found

    async def change_member(
        self, queue: str, change: Callable[[QueueSettings, dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Change what a queue's file stores for this dialect, and settings of the queue with it.

        change: gets the current settings and the stored member, which it modifies; returns changes
            of settings. Raises SqsError, NoSuchQueue, Unavailable.
        """

        def members(now: QueueSettings, document: Mapping[str, Any]) -> dict[str, Any]:
            kept = document.get(MEMBER)
            member = {**(kept if isinstance(kept, dict) else {}), "modified": int(time.time())}
            return {**change(now, member), MEMBER: member}

        with storing():
            await self._service.resources.configure_queue(queue, members, MEMBER)

    def check_there(self, queue: str) -> None:
        """Check that a queue exists. Raises SqsError, Unavailable."""
        if not self._spool.has_queue(queue):
            raise no_such_queue()
