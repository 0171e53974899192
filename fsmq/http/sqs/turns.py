"""Puts of one turn of the event loop that are done together: one verb, and one pass of renames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.steps import FEW, LARGE_BYTES

from ..service.service import Service


class _Put(NamedTuple):
    """Messages of one request, and who waits for their ids."""

    messages: Sequence[NewMessage]
    settings: QueueSettings
    answer: asyncio.Future[list[str] | None]


class Turns:
    """Puts messages for requests that come in the same turn. None of them fails for another."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._turn: dict[str, list[_Put]] = {}

    async def put(
        self, queue: str, messages: Sequence[NewMessage], settings: QueueSettings
    ) -> list[str]:
        """Store messages in a queue of these settings; their ids. Raises as `Service.put`."""
        loop = asyncio.get_running_loop()
        one = _Put(messages, settings, loop.create_future())
        if not self._turn:
            loop.call_soon(self._run)
        self._turn.setdefault(queue, []).append(one)
        ids = await one.answer
        return await self._service.put(queue, messages, settings) if ids is None else ids

    def _run(self) -> None:
        turn, self._turn = self._turn, {}
        for queue, puts in turn.items():
            for some in _portions(puts):
                self._put(queue, some)

    def _put(self, queue: str, puts: list[_Put]) -> None:
        messages = [message for one in puts for message in one.messages]
        if len(puts) == 1 or sum(len(one.body) for one in messages) > LARGE_BYTES:
            _alone(puts)
            return
        try:
            pending = self._service.spool.unsynced.put(queue, messages, puts[-1].settings)
        except FsmqError:
            _alone(puts)  # whose fault it is, each finds out alone
        except Exception as error:
            _fail(puts, error)
        else:
            self._service.then(pending, partial(_give, puts), partial(_fail, puts))


def _portions(puts: list[_Put]) -> list[list[_Put]]:
    parts: list[list[_Put]] = [[]]
    number = 0
    for one in puts:
        number += len(one.messages)
        if parts[-1] and number > FEW:
            parts.append([])
            number = len(one.messages)
        parts[-1].append(one)
    return parts


def _alone(puts: list[_Put]) -> None:
    for one in puts:
        if not one.answer.done():
            one.answer.set_result(None)


def _give(puts: list[_Put], ids: list[str]) -> None:
    at = 0
    for one in puts:
        end = at + len(one.messages)
        if not one.answer.done():
            one.answer.set_result(ids[at:end])
        at = end


def _fail(puts: list[_Put], error: Exception) -> None:
    for one in puts:
        if not one.answer.done():
            one.answer.set_exception(error)
