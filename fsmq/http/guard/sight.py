"""Sight: what a key may know of, one rule for every answer, error, list, stream, metric and page.

A key knows of what it has any right on: :meth:`Identity.may_see`, by the names on which rights are
granted. What a request names itself is refused before anybody looks whether it is there. What is
found out on the way goes through here, and what a key may not know of is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from fsmq.spool import Message, ScheduleState
from fsmq.spool.errors import FsmqError, Unavailable
from fsmq.spool.layout.messages.message import SENT_TO
from fsmq.spool.moves.order import Move
from fsmq.spool.records.life import LifeStep

from . import access
from .access import Identity

T = TypeVar("T")
# What only a person can put right is not tried again at once.
_BY_HAND_S = 60


def ruled_by(state: ScheduleState) -> str:
    """On what rights on a schedule are asked for: its queue, or its own name if none is known."""
    return access.schedule(state.name) if state.settings is None else state.settings.queue


def may_see_schedule(identity: Identity, state: ScheduleState) -> bool:
    """Whether somebody may know of a schedule: who may see its queue."""
    return identity.may_see(ruled_by(state))


def name_of(identity: Identity, state: ScheduleState) -> str:
    """By what name somebody is told that a right is lacking who wants the name of a schedule.

    There is one schedule of each name. So who may not know of the one that is there learns here,
    and here alone, that the name is taken; not for which queue.
    """
    is_seen = may_see_schedule(identity, state)
    return ruled_by(state) if is_seen else access.schedule(state.name)


def may_see_move(identity: Identity, move: Move) -> bool:
    """Whether somebody may know of a move: who may see all queues that it names."""
    return all(identity.may_see(queue) for queue in (move.source, move.target) if queue)


def seen_of(identity: Identity, subscribers: Mapping[str, T]) -> dict[str, T]:
    """Those of the subscribers of a topic that somebody may know of, or what they have got."""
    return {name: of for name, of in subscribers.items() if identity.may_see(name)}


def seen_channels(identity: Identity, log: str, channels: Iterable[str]) -> list[str]:
    """Those of the channels of a log that somebody may know of."""
    return [name for name in channels if identity.may_see(access.channel(log, name))]


def seen_message(identity: Identity, message: Message) -> Message:
    """A message as somebody may see it who may look at it: and no queue that is hidden from it."""
    dead, sent_to = message.dead_letter, message.attributes.get(SENT_TO)
    if dead is not None and not identity.may_see(dead.queue):
        message = replace(message, dead_letter=None)
    if sent_to is not None and not identity.may_see(sent_to):
        left = {name: value for name, value in message.attributes.items() if name != SENT_TO}
        message = replace(message, attributes=left)
    return message


def seen_step(identity: Identity, step: LifeStep) -> LifeStep | None:
    """What somebody may see of a step: nothing of queues into which it may not look."""
    if not identity.may("look", step.queue):
        return None
    source = step.source if step.source and identity.may_see(step.source) else None
    target = step.target if step.target and identity.may_see(step.target) else None
    return step._replace(source=source, target=target)


def require_all(identity: Identity) -> None:
    """Make sure that somebody may know of all queues that there can be.

    It is asked before there is a look at what names queues in words of its own. Raises
    Unauthorized, Forbidden.
    """
    if not identity.sees_all_queues:
        identity.refuse("send, receive, look or admin on '*'")


def seen_error(identity: Identity, subscribers: Iterable[str], error: FsmqError) -> FsmqError:
    """Why subscribers of a topic do not take a message: nothing of one that is not known."""
    if all(map(identity.may_see, subscribers)):
        return error
    wait = error.retry_after if isinstance(error, Unavailable) else _BY_HAND_S
    return Unavailable("a subscriber of the topic takes nothing now, so none gets it", wait)


def targets(identity: Identity, to: str | None) -> tuple[str, ...] | None:
    """Where a move or a redrive of somebody may put: the patterns of names of queues; None: to all.

    to: the one queue to which it goes; None for a redrive of each message to where it was buried.

    Raises:
        Unauthorized, Forbidden: it may not put there, or nowhere.
    """
    if to is not None:
        identity.require("send", to)
        return (to,)
    allowed = identity.granted("send")
    if allowed is not None and not allowed:
        identity.refuse("send on the queues from which they were buried")
    return allowed
