"""The errors of tasks."""

from __future__ import annotations

from fsmq.spool.errors import FsmqError


class TaskFailed(FsmqError):
    """A task has failed for good.

    kind: the type of its exception. reason: the text of that. traceback: where, as text.
    """

    def __init__(self, kind: str, reason: str, traceback: str) -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.kind = kind
        self.reason = reason
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.traceback}".rstrip()


class NoResult(FsmqError, TimeoutError):
    """There is no result yet; or none any more, or none at all: see docs/howto/tasks.md."""


class TimeLimit(BaseException):
    """Raised in a task when its ``timeout`` is over.

    Not an Exception, so that an ``except Exception`` in the task does not swallow it.
    """
