"""Requests of the lane that are done together: one that fails must not spoil the others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.steps import FEW

if TYPE_CHECKING:
    from .request import Request

log = logging.getLogger(__name__)
T = TypeVar("T")
# The work for so many messages is done at once.
MOST_AT_ONCE = 4 * FEW


def by_queue(requests: list[Request]) -> Mapping[str, list[Request]]:
    """The requests of each queue."""
    groups: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        groups[request.queue].append(request)
    return groups


def each(requests: Iterable[Request], do: Callable[..., None], *of: Iterable[Any]) -> None:
    """Do something with each request and what belongs to it; one that fails, fails alone."""
    for request, *more in zip(requests, *of, strict=True):
        try:
            do(request, *more)
        except Exception:
            fail_all([request])


def read_each(requests: Iterable[Request], read: Callable[[Request], Any]) -> list[Request]:
    """Let ``read`` make ``given`` of each request; those of which it could.

    What it refuses with an FsmqError goes to aiohttp, which finds the same; and so does a request
    of which it makes None.
    """
    good = []
    for request in requests:
        try:
            request.given = read(request)
        except FsmqError:
            request.hand_over()
        except Exception:
            fail_all([request])
        else:
            if request.given is None:
                request.hand_over()
            else:
                good.append(request)
    return good


def in_turns(
    requests: Sequence[Request],
    number_of: Callable[[Request], int],
    do: Callable[[list[Request]], None],
) -> None:
    """Do requests about few messages together, and the others in the next turns of the loop."""
    number = 0
    for at, request in enumerate(requests):
        number += number_of(request)
        if at and number > MOST_AT_ONCE:
            request.soon(partial(_next_turn, requests[at:], number_of, do))
            requests = requests[:at]
            break
    do(list(requests))


def _next_turn(
    requests: Sequence[Request],
    number_of: Callable[[Request], int],
    do: Callable[[list[Request]], None],
) -> None:
    try:
        in_turns(requests, number_of, do)
    except Exception:
        fail_all(requests)


def shares(things: Iterable[T], numbers: Iterable[int]) -> list[list[T]]:
    """Each request's part of things that stand one behind the other."""
    rest = iter(things)
    return [list(islice(rest, number)) for number in numbers]


def hand_over(requests: Iterable[Request]) -> None:
    """Leave requests to aiohttp."""
    for request in requests:
        request.hand_over()


def fail_all(requests: Sequence[Request]) -> None:
    """Log the exception that is being handled, and let no client wait for ever."""
    log.exception("%d requests failed", len(requests))
    for request in requests:
        request.fail()
