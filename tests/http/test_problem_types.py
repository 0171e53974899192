"""Answers for subclasses of known errors."""

from __future__ import annotations

from fsmq.http.problems import problem
from fsmq.spool.errors import FsmqError, InUse
from fsmq.spool.index.listings import Unlisted
from fsmq.spool.limits.sequencer import Unrecovered, Unsent


def test_errors_that_pass_are_answered_with_retry_after() -> None:
    for error in (Unlisted("jobs"), Unsent("jobs"), Unrecovered("jobs"), InUse("one")):
        answer = problem(error)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1"), error


def test_an_error_of_an_unknown_class_is_an_internal_error() -> None:
    assert problem(FsmqError("?")).status == 500
