"""Logs on the fast path: publishes of one message; from channels, claims of one, and their acks.

Claims that find nothing, or fail, and acks that fail are left to aiohttp, whose handlers wait, and
answer errors. A publish must not be repeated, so its errors are answered here.
"""

from __future__ import annotations

import logging
from functools import partial

from fsmq.spool import ChannelMessage
from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import LARGE_BYTES

from ...fast_path.request import FastRoute, FastRoutes, Request
from ...routing.bodies import INERT, raw
from ...service.service import Service
from ..logs.channels import Channels
from ..logs.log_forms import (
    COUNT,
    GENERATION,
    VISIBILITY,
    headers_of_claimed,
    new_entry,
    offset_of,
    published,
)
from ..logs.logs import Logs
from .heads import ALL, ONE

log = logging.getLogger(__name__)


class FastLogs:
    """The routes of the fast path for logs, and for their channels."""

    def __init__(self, service: Service) -> None:
        self._logs = service.logs
        self._admission = service.admission
        self.of_logs: FastRoutes = {
            ("POST", ALL): FastRoute(Logs.PUBLISH, "send", self._publish, has_body=True),
        }
        self.of_channels: FastRoutes = {
            ("GET", ALL): FastRoute(Channels.CLAIM, "receive", self._claim),
            ("DELETE", ONE): FastRoute(Channels.FINISH, "receive", self._finish),
        }

    def _publish(self, request: Request) -> None:
        fields = request.fields
        entry = new_entry(request.body, fields.key, request.values, fields.kept)
        _, name = request.queue.split("/")
        self._logs.begin_publish(name, [entry], partial(_published, request))

    def _claim(self, request: Request) -> None:
        if request.fields.in_json or request.values[COUNT] is not None:
            request.fall_back()
            return
        self._admission.check(request.account)
        answered = partial(self._claimed, request)
        of, visibility = _channel(request), request.values[VISIBILITY]
        self._logs.begin_claim(request.account, of, visibility, answered)

    def _claimed(self, request: Request, outcome: list[ChannelMessage] | Exception) -> None:
        if isinstance(outcome, Exception) or not outcome:
            request.fall_back()
        else:
            request.answer_by(self._give, outcome[0])

    def _give(self, request: Request, message: ChannelMessage) -> None:
        size = len(message.body)
        try:
            request.hold(size, sure=size <= LARGE_BYTES)
        except FsmqError:
            self._logs.release(_channel(request), [message])
            request.fall_back()
            return
        headers = headers_of_claimed(message)
        if request.is_gone:
            self._logs.release(_channel(request), [message])
            request.hang_up()
        elif size > LARGE_BYTES:
            request.respond(raw(message, headers))
        else:
            request.answer(200, {**INERT, **headers}, message.body)

    def _finish(self, request: Request) -> None:
        offset = offset_of(request.message_id)
        answered = partial(_finished, request)
        self._logs.begin_ack(_channel(request), offset, request.values[GENERATION], answered)


def _published(request: Request, outcome: int | Exception) -> None:
    if isinstance(outcome, FsmqError):
        outcome.index = None  # there is only one message
    request.answer_by(_stored, outcome)


def _stored(request: Request, offset: int) -> None:
    request.answer(201, *published(offset))


def _finished(request: Request, outcome: int | Exception) -> None:
    if isinstance(outcome, Exception):
        request.fall_back()  # repeating an ack does no harm
    else:
        request.answer(202, {}, b"")


def _channel(request: Request) -> tuple[str, str]:
    _, of, name = request.queue.split("/")
    return of, name
