"""What aiohttp answers by itself, to what is no HTTP, told in our shape of errors."""

from __future__ import annotations

import logging

from aiohttp import http_exceptions, web
from aiohttp.web import BaseRequest, StreamResponse

from .problems import HttpError, InternalError, MalformedRequest, UnreadableBody, problem

log = logging.getLogger(__name__)


class ProblemServer(web.Server):
    """A server whose connections tell every error as a problem."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer what never reached a handler, or what a handler could not have foreseen."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: there is no place for another one")
        if status >= 500:
            log.error("a request failed outside its handler", exc_info=exc)
        response = problem(_error_for(status, exc, message))
        response.force_close()
        return response


def _error_for(status: int, exc: BaseException | None, message: str | None) -> HttpError:
    if status >= 500:
        return InternalError()
    # The parser draws the place of the error below it: of no use in one line.
    reason = (message or "").split("\n")[0].rstrip(": ")[:200] or "no reason known"
    if isinstance(exc, http_exceptions.PayloadEncodingError):
        return UnreadableBody(f"the body cannot be read: {reason}")
    return MalformedRequest(f"the request cannot be understood: {reason}")
