"""Channels of logs on the fast path: claims of one message, and their acks.

Requests that find nothing, or fail, are left to aiohttp, whose handlers wait, and answer errors.
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
from ..logs.log_forms import COUNT, GENERATION, VISIBILITY, headers_of_claimed, offset_of
from .heads import ALL, ONE

log = logging.getLogger(__name__)


class FastChannels:
    """The routes of the fast path for channels."""

    def __init__(self, service: Service) -> None:
        self._logs = service.logs
        self._admission = service.admission
        self.routes: FastRoutes = {
            ("GET", ALL): FastRoute(Channels.CLAIM, "receive", self._claim),
            ("DELETE", ONE): FastRoute(Channels.FINISH, "receive", self._finish),
        }

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


def _finished(request: Request, outcome: int | Exception) -> None:
    if isinstance(outcome, Exception):
        request.fall_back()  # repeating an ack does no harm
    else:
        request.answer(202, {}, b"")


def _channel(request: Request) -> tuple[str, str]:
    _, of, name = request.queue.split("/")
    return of, name
