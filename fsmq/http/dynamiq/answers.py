"""Answers as Dynamiq gives them: JSON that is often a bare value, and errors of one member."""

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
    """What Dynamiq refuses in words of its own. ``bare``: without an object around them."""

    def __init__(self, status: int, words: str, *, bare: bool = False) -> None:
        super().__init__(words)
        self.status = status
        self.bare = bare


def answer(status: int, content: Any) -> Response:
    return Response(status=status, body=written(content), headers=JSON)


def written(content: Any) -> bytes:
    """A value as it stands in an answer."""
    return _dumps(content).encode("utf-8", "replace")


def answer_list(before: str, values: Collection[Any], behind: str) -> Response:
    """What :func:`fsmq.http.connection.pieces.listed` answers, in this form."""
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
    """The answer to an error: Dynamiq's words where it has some, else ours."""
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
