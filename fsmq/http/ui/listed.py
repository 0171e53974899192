"""Messages as lists show them: with the beginning of their bodies."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fsmq.spool import Message

from ..service.monitoring.inspector import Search
from ..service.wanted import ClaimRoom
from .page_request import PageRequest

# How much of a body lists show at most.
_BEGINNING = 512


class Listed(NamedTuple):
    """A message of a list, with the beginning of its body, and the size of the whole body."""

    message: Message
    size: int


async def peek(request: PageRequest, search: Search) -> tuple[list[Listed], str | None]:
    """Messages for a list, and the id after which it continues.

    Raises what `Inspector.peek` raises, Overloaded, TooManyRequests.
    """
    service, identity = request.service, request.identity
    room = ClaimRoom(service.admission, identity.account, 0)
    try:
        found = await service.inspector.peek(identity, search, room, reads_much=True)
        return [
            Listed(replace(one, body=one.body[:_BEGINNING]), len(one.body))
            for one in found.messages
        ], found.next
    finally:
        room.close()  # the whole bodies are gone by then
