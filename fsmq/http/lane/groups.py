"""Requests of the lane that are done together: one that fails must not spoil the others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .request import Request

log = logging.getLogger(__name__)


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


def hand_over(requests: Iterable[Request]) -> None:
    """Leave requests to aiohttp."""
    for request in requests:
        request.hand_over()


def fail_all(requests: Sequence[Request]) -> None:
    """Log the exception that is being handled, and let no client wait for ever."""
    log.exception("%d requests failed", len(requests))
    for request in requests:
        request.fail()
