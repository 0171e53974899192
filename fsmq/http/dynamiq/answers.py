"""Answers as Dynamiq gives them: JSON that is often a bare value, and errors of one member."""

from __future__ import annotations

import json
from typing import Any

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchQueue

from ..problems import HttpError, UnreadableBody
from ..problems import problem as native_problem


class Refused(HttpError):
    """What Dynamiq refuses in words of its own. ``bare``: without an object around them."""

    def __init__(self, status: int, words: str, *, bare: bool = False) -> None:
        super().__init__(words)
        self.status = status
        self.bare = bare


def answer(status: int, content: Any) -> Response:
    # Without spaces, as Go writes it.
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    body = text.encode("utf-8", "replace")
    return Response(
        status=status, body=body, headers={"Content-Type": "application/json; charset=UTF-8"}
    )


def plain(text: str) -> Response:
    return Response(text=text, content_type="text/plain", charset="utf-8")


def no_such_queue(queue: str) -> str:
    return f"There is no queue named {queue}"


def problem(error: FsmqError) -> Response:
    """The answer that tells an error: what Dynamiq says where it says something, else our words."""
    if isinstance(error, Refused):
        words = str(error)
        return answer(error.status, words if error.bare else {"error": words})
    native = native_problem(error)
    status = 422 if isinstance(error, InvalidValue | UnreadableBody) else native.status
    words = no_such_queue(error.queue) if isinstance(error, NoSuchQueue) else str(error)
    told = answer(status, {"error": words})
    for name in ("Retry-After", "Allow", "WWW-Authenticate", "Accept-Encoding"):
        if name in native.headers:
            told.headers[name] = native.headers[name]
    return told
