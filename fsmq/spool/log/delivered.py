"""Messages that a channel has handed out, and how callers refer to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ClaimVoid, InvalidValue, NotInFlight
from ..layout.settings import check_number
from ..verbs.remove_if import Acked
from .segment.record import LogMessage

_CLAIM = re.compile(r"[0-9]{1,18}-[0-9]{1,9}")


class Delivered(LogMessage):
    """A message that a channel has handed out, without verbs.

    deliveries: how often, this time included. deadline: when the claim ends, Unix seconds.
    generation: increases with each seek of the channel, and differs if the channel is recreated.
    Together with the deliveries it names the claim; 0 for either: whatever it is now.
    """

    __slots__ = ("_bound_to", "_settled", "deadline", "deliveries", "generation")
    _bound_to: Any
    __eq__, __hash__ = object.__eq__, object.__hash__  # each claim is another object

    def __init__(
        self,
        channel: Any,
        message: LogMessage,
        deliveries: int,
        deadline: float,
        generation: int,
    ) -> None:
        # Not by the constructor of a message: a claim makes a thousand of these.
        self.offset = message.offset
        self.time_us = message.time_us
        self.body = message.body
        self._header = message._header
        self._parsed = message._parsed
        self._bound_to = channel
        self._settled = False
        self.deliveries = deliveries
        self.deadline = deadline
        self.generation = generation

    @property
    def queue(self) -> str:
        """What it was claimed from: LOG/CHANNEL."""
        return f"{self._bound_to.log.name}/{self._bound_to.name}"

    @property
    def claim(self) -> str:
        """The name of the claim: its generation and its deliveries."""
        return f"{self.generation}-{self.deliveries}"


Given = int | str | Delivered
"""A message that was handed out, or its offset, as a number or text."""


def offset_of(given: Given) -> int:
    """Raises InvalidValue."""
    if isinstance(given, Delivered):
        return given.offset
    if isinstance(given, str):
        if not given.isascii() or not given.isdecimal():
            raise InvalidValue("offset", f"{given[:50]!r} is not an offset")
        given = int(given[:20])
    return check_number("offset", given, 0, 10**18)


def in_claims(messages: Iterable[Given], claims: str | Sequence[str | None] | None) -> list[Given]:
    """The messages, each in the claim of this name, if one is given. Raises InvalidValue.

    claims: one for each, or that of a single message.
    """
    given = list(messages)
    if claims is None:
        return given
    names = [claims] if isinstance(claims, str) else claims
    if len(names) != len(given):
        raise InvalidValue("claim", "belongs to one message; ack_each takes one for each")
    return [
        one if name is None else named(offset_of(one), *_parts(name))
        for one, name in zip(given, names, strict=True)
    ]


def named(offset: int, generation: int, deliveries: int) -> Delivered:
    """A message by its offset and its claim; 0 for either part: whatever it is now."""
    return Delivered(None, LogMessage(offset, 0, b"", b""), deliveries, 0.0, generation)


def _parts(claim: str) -> tuple[int, int]:
    if not _CLAIM.fullmatch(claim):
        raise InvalidValue("claim", f"{claim[:50]!r} is no claim's name; expected one like 5-1")
    generation, _, deliveries = claim.partition("-")
    return int(generation), int(deliveries)


def claim_of(given: Given) -> str | None:
    """The name of the claim, if the message object was handed out."""
    return given.claim if isinstance(given, Delivered) else None


def acked_of(found: object) -> Acked:
    """The outcome for a message, by the answer or error for it alone."""
    if isinstance(found, ClaimVoid):
        return "ended"
    return "missing" if isinstance(found, NotInFlight) else "removed"


def generation_of(log: str, channel: str, messages: Iterable[Given]) -> int | None:
    """The generation in which messages were handed out; None for offsets: whatever it is now.

    Raises ClaimVoid if they are of more than one: then some claims are over.
    """
    found = {one.generation for one in messages if isinstance(one, Delivered) and one.generation}
    if len(found) > 1:
        raise ClaimVoid(log, channel)
    return next(iter(found), None)


def claims_of(messages: Iterable[Given]) -> dict[int, int]:
    """Offsets, each with the deliveries of its claim; 0: whatever they are now."""
    return {offset_of(one): one.deliveries if isinstance(one, Delivered) else 0 for one in messages}
