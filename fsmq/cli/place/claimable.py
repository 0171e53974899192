"""What commands claim from and settle in: a queue, several queues, or a channel of a log."""

from __future__ import annotations

from typing import Any

from fsmq.cli.place.place import Place
from fsmq.spool import Message
from fsmq.spool.log.delivered import Delivered


def open_claimable(place: Place, name: str) -> Any:
    """The queue of a name; of ``LOG/CHANNEL`` the channel; of several queues, as ``high,low``, what
    one claims from together. Raises NoSuchQueue, InvalidValue.

    All have one API; a channel's ids are offsets.
    """
    if is_several(name):
        return place.select(name)
    log, slash, channel = name.partition("/")
    return place.log(log).channel(channel) if slash else place.queue(name)


def is_several(name: str) -> bool:
    """Whether it stands for several queues: by a comma or a pattern, which no name has in it."""
    return not set(name).isdisjoint(",*?")


def as_message(claimed: Message | Delivered) -> Message:
    """What was claimed, as people are shown it: of a channel the id is the offset."""
    if isinstance(claimed, Message):
        return claimed
    return Message(
        queue=claimed.queue,
        id=str(claimed.offset),
        body=claimed.body,
        deliveries=claimed.deliveries,
        content_type=claimed.content_type,
        attributes=dict(claimed.attributes),
        priority=0,
        state="in_flight",
        deadline=claimed.deadline,
        created_at=claimed.published_at,
        expires_at=None,
        claim=claimed.claim,
    )
