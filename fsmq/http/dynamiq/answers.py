"""Answers in Dynamiq's form: JSON that is often a bare value, and errors with one member."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchQueue

from ..connection.pieces import listed
from ..problems import HttpError, UnreadableBody
from ..problems import problem as native_problem

CONTENT_TYPE = "application/json; charset=UTF-8"
JSON = {"Content-Type": CONTENT_TYPE}


class Refused(HttpError):
    """An error in Dynamiq's own words. ``bare``: a JSON string instead of an object."""

    def __init__(self, status: int, words: str, *, bare: bool = False) -> None:
        super().__init__(words)
        self.status = status
        self.bare = bare


def answer(status: int, content: Any) -> Response:
    return Response(status=status, body=written(content), headers=JSON)


def written(content: Any) -> bytes:
    """A value as JSON of an answer."""
    return _dumps(content).encode("utf-8", "replace")


def answer_list(before: str, values: Collection[Any], behind: str) -> Response:
    """The answer of :func:`fsmq.http.connection.pieces.listed`, in Dynamiq's form."""
    return listed(before, values, behind, dumps=_dumps, content_type=CONTENT_TYPE)


def _dumps(content: Any) -> str:
    # Without spaces, as Go writes it.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


PLAIN = {"Content-Type": "text/plain; charset=utf-8"}


def plain(text: str) -> Response:
    return Response(body=text.encode(), headers=PLAIN)


def no_such_queue(queue: str) -> str:
    return f"There is no queue named {queue}"


def problem(error: FsmqError) -> Response:
    """The answer to an error, in Dynamiq's words if it has any, else in ours."""
    if isinstance(error, Refused):
        words = str(error)
        return answer(error.status, words if error.bare else {"error": words})
    native = native_problem(error)
    status = 422 if isinstance(error, InvalidValue | UnreadableBody) else native.status
    words = no_such_queue(error.queue) if isinstance(error, NoSuchQueue) else str(error)
    answered = answer(status, {"error": words})
    for name in ("Retry-After", "Allow", "WWW-Authenticate", "Accept-Encoding"):
        if name in native.headers:
            answered.headers[name] = native.headers[name]
    return answered
