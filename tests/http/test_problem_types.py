"""Which answer an error has that is of a class below one that the answers know."""

from __future__ import annotations

from fsmq.http.problems import problem
from fsmq.spool.errors import FsmqError, InUse
from fsmq.spool.index.listings import Unlisted
from fsmq.spool.limits.sequencer import Unrecovered, Unsent


def test_what_has_to_wait_is_told_so_whoever_finds_out() -> None:
    for error in (Unlisted("jobs"), Unsent("jobs"), Unrecovered("jobs"), InUse("one")):
        answer = problem(error)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1"), error


def test_an_error_of_no_known_class_is_an_internal_one() -> None:
    assert problem(FsmqError("?")).status == 500
