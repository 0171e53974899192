"""Helpers of the tests of dyno-queues."""

from __future__ import annotations

from fsmq.dyno import DynoQueue, Message

HOUR_MS = 3_600_000


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def push(queue: DynoQueue, *given: str, **more: int) -> None:
    """Push messages with these ids."""
    assert queue.push([Message(one, f"payload of {one}", **more) for one in given]) == [*given]
