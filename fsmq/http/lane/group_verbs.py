"""One verb of the spool for a group of requests of any dialect: who is told what if it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import DuplicateMessage, FsmqError, Unavailable

from ..service.service import Service
from .groups import hand_over
from .request import Request

log = logging.getLogger(__name__)
# Begins the verb. May raise FsmqError.
_Begin = Callable[[], Pending[Any]]
# Answers the requests by what the verb has come to.
_Done = Callable[[Any], None]


class GroupVerbs:
    """Begins verbs, and answers requests whose verb has failed. refusal: the answer of an error."""

    def __init__(self, service: Service, refusal: Callable[[FsmqError], Response]) -> None:
        self._service = service
        self._refusal = refusal

    def put(self, requests: list[Request], begin: _Begin, done: _Done) -> None:
        """Store the messages of requests."""
        try:
            pending = begin()
        except FsmqError as error:
            if type(error) is Unavailable and len(requests) == 1:
                self.fail(requests, error)  # a disk that refuses is not asked twice
            else:
                hand_over(requests)  # whose fault it is, each of them finds out alone
            return
        self._service.then(pending, done, partial(self._not_stored, requests))

    def _not_stored(self, requests: list[Request], error: FsmqError) -> None:
        if isinstance(error, DuplicateMessage):
            hand_over(requests)  # the same: nothing was stored
        else:
            self.fail(requests, error)

    def remove(self, requests: list[Request], begin: _Begin, done: _Done) -> None:
        """Remove the messages of requests."""
        try:
            pending = begin()
        except Unavailable as error:
            self.fail(requests, error)  # another try would not find those that are removed
            return
        except FsmqError:
            hand_over(requests)
            return
        self._go_on(requests, pending, done)

    def change(self, request: Request, begin: _Begin, done: _Done) -> None:
        """Change the message of a request."""
        try:
            pending = begin()
        except FsmqError:
            request.hand_over()
            return
        self._go_on([request], pending, done)

    def fail(self, requests: list[Request], error: FsmqError) -> None:
        """Tell those who have not been told of an error of their verb."""
        if isinstance(error, Unavailable):
            log.warning("%d requests to queue %r: %s", len(requests), requests[0].queue, error)
        for request in requests:
            if request.is_open:
                request.respond(self._refusal(error))

    def _go_on(self, requests: list[Request], pending: Pending[Any], done: _Done) -> None:
        self._service.then(pending, done, partial(self.fail, requests))
