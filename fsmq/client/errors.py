"""Errors of a client: the spool's, made from the server's answers, and those of the connection."""

from __future__ import annotations

import json
from typing import Any

from fsmq.spool.errors import FsmqError, Unavailable
from fsmq.wire import ERROR_FIELDS, PROBLEM_PREFIX, SPOOL_PROBLEMS

from .exchange import Answer

_KINDS = {problem.kind: error for error, problem in SPOOL_PROBLEMS.items()}


class ConnectionFailed(FsmqError, ConnectionError):
    """No answer came: the server could not be reached, closed the connection, or took too long.

    maybe_done: whether the request may have reached the server.
    lasting: whether a retry would fail in the same way (a wrong certificate).
    """

    def __init__(self, reason: str, *, maybe_done: bool = True, lasting: bool = False) -> None:
        super().__init__(reason)
        self.maybe_done = maybe_done
        self.lasting = lasting


class AccessDenied(FsmqError, PermissionError):
    """The server wants a key, or the key does not allow this."""


class UnexpectedAnswer(FsmqError):
    """The answer does not come from fsmq; ``status`` is its HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the server answered {status}: {detail}")
        self.status = status


def error_of(answer: Answer) -> FsmqError:
    """The error of an answer."""
    problem = _problem(answer.body)
    detail = str(problem.get("detail") or answer.body[:200].decode("utf-8", "replace").strip())
    kind = _KINDS.get(str(problem.get("type", "")).removeprefix(PROBLEM_PREFIX))
    if kind is not None:
        return _rebuilt(kind, detail, problem, answer)
    if answer.status in (401, 403):
        return AccessDenied(detail or f"the server answered {answer.status}")
    if answer.is_temporary:
        seconds = round(answer.retry_after or 1)
        return Unavailable(detail or f"the server answered {answer.status}", seconds)
    return UnexpectedAnswer(answer.status, detail or "nothing more")


def _rebuilt(
    kind: type[FsmqError], detail: str, problem: dict[str, Any], answer: Answer
) -> FsmqError:
    # Without __init__, which would make a text: the server sent it.
    error: FsmqError = kind.__new__(kind)
    index = problem.get("index")
    prefix = "" if index is None else f"message {index}: "
    error.args = (detail.removeprefix(prefix),)
    for name in ERROR_FIELDS:
        if name in problem:
            setattr(error, name, problem[name])
    if isinstance(error, Unavailable):
        error.retry_after = round(answer.retry_after or problem.get("retry_after") or 1)
    return error


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
