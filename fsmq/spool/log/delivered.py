"""Messages that a channel has handed out, and how callers name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ClaimVoid
from ..layout.settings import check_number
from .segment.record import LogMessage


class Delivered(LogMessage):
    """A message that a channel has handed out, whatever may be done with it.

    deliveries: how often, this time included. deadline: when the claim ends, Unix seconds.
    channel: settles it; None where something else does. generation: one more with each seek of it,
    and another where a channel is made anew. With its deliveries it names the claim; 0, of either:
    whatever it is now.
    """

    __slots__ = ("_channel", "_settled", "deadline", "deliveries", "generation")
    _channel: Any
    __eq__, __hash__ = object.__eq__, object.__hash__  # another claim of it is another thing

    def __init__(
        self,
        channel: object,
        message: LogMessage,
        deliveries: int,
        deadline: float,
        generation: int,
    ) -> None:
        super().__init__(message.offset, message.time_us, message.header, message.body)
        self._parsed = message._parsed
        self._channel = channel
        self._settled = False
        self.deliveries = deliveries
        self.deadline = deadline
        self.generation = generation


Given = int | Delivered
"""A message that was handed out, or its offset."""


def offset_of(given: Given) -> int:
    if isinstance(given, Delivered):
        return given.offset
    return check_number("offset", given, 0, 10**18)


def generation_of(log: str, channel: str, messages: Iterable[Given]) -> int | None:
    """The generation that messages were handed out in; offsets are of whatever it is now.

    Raises ClaimVoid if they are of more than one: it is over for some of them.
    """
    found = {one.generation for one in messages if isinstance(one, Delivered) and one.generation}
    if len(found) > 1:
        raise ClaimVoid(log, channel)
    return next(iter(found), None)


def claims_of(messages: Iterable[Given]) -> dict[int, int]:
    """Offsets, each with the deliveries of its claim; 0: whatever they are now."""
    return {offset_of(one): one.deliveries if isinstance(one, Delivered) else 0 for one in messages}
