"""What commands claim from: a queue, several queues, or a channel of a log."""

from __future__ import annotations

from typing import Any

from fsmq.cli.place.place import Place
from fsmq.spool import Message, NoSuchMessage, prepare
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.delivered import Delivered
from fsmq.spool.queue import Queue


def open_claimable(place: Place, name: str) -> Any:
    """A queue, the channel of ``LOG/CHANNEL``, or several queues, as ``high,low``, to claim from.

    All have one API; a channel's ids are offsets. Raises NoSuchQueue, InvalidValue.
    """
    if is_several(name):
        return place.select(name)
    log, slash, channel = name.partition("/")
    return place.log(log).channel(channel) if slash else place.queue(name)


def give_back(of: Any, message: Any) -> None:
    """Release a message that reached nobody; where the folder can be used, its delivery does not
    count.

    of: what it was claimed from.
    """
    if isinstance(of, Channel):
        of.release_unseen([message])
        return
    if isinstance(of, Queue):
        try:
            of.spool.complete(prepare.release_unseen(of.spool.context, message))
            return
        except NoSuchMessage:
            pass  # its claim was renewed meanwhile
    message.release()


def is_several(name: str) -> bool:
    """Whether it stands for several queues: names of queues have no comma and no wildcard."""
    return not set(name).isdisjoint(",*?")


def as_message(claimed: Message | Delivered) -> Message:
    """What was claimed, as a message to show; from a channel its id is the offset."""
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
