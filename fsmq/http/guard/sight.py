"""Sight: which names a key may see, one rule for answers, errors, lists, streams, metrics, pages.

A key may see that on which it has any right: :meth:`Identity.may_see`. For names in the request
itself, rights are checked before their existence is. All other names in an answer are filtered
here: what a key may not see is treated as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from fsmq.spool import Message, ScheduleState
from fsmq.spool.errors import FsmqError, NoSuchSchedule, Unavailable
from fsmq.spool.inspection import LifeStep, Move
from fsmq.spool.on_disk import SENT_TO

from . import access
from .access import Identity

T = TypeVar("T")
# Seconds until the next try where only a person can solve the problem.
_BY_HAND_S = 60


def ruled_by(state: ScheduleState) -> str:
    """The name whose rights govern a schedule: its queue, or its own if no queue is known."""
    return access.schedule(state.name) if state.settings is None else state.settings.queue


def may_see_schedule(identity: Identity, state: ScheduleState) -> bool:
    """Whether an identity may see a schedule: whether it may see the queue."""
    return identity.may_see(ruled_by(state))


def name_of(identity: Identity, state: ScheduleState) -> str:
    """The name to report when an identity lacks the right to define a schedule of this name.

    Names of schedules are unique, so an identity that may not see the existing schedule learns
    here, and only here, that its name is taken; but not for which queue.
    """
    is_seen = may_see_schedule(identity, state)
    return ruled_by(state) if is_seen else access.schedule(state.name)


def check_replaces(identity: Identity, state: ScheduleState | None) -> None:
    """Make sure that a name is free, or that of a schedule that somebody may replace.

    Raises Unauthorized, Forbidden.
    """
    if state is not None:
        identity.require("admin", name_of(identity, state))


def check_changes(identity: Identity, state: ScheduleState | None) -> None:
    """Make sure that somebody is an admin of the queue of a schedule, if there is one.

    Raises:
        NoSuchSchedule: it is one of which somebody may not know.
        Unauthorized, Forbidden
    """
    if state is not None:
        if not may_see_schedule(identity, state):
            raise NoSuchSchedule(state.name)
        identity.require("admin", ruled_by(state))


def may_see_move(identity: Identity, move: Move) -> bool:
    """Whether an identity may see a move: whether it may see all queues that the move names."""
    return all(identity.may_see(queue) for queue in (move.source, move.target) if queue)


def seen_of(identity: Identity, subscribers: Mapping[str, T]) -> dict[str, T]:
    """The entries of those subscribers of a topic that an identity may see."""
    return {name: of for name, of in subscribers.items() if identity.may_see(name)}


def seen_channels(identity: Identity, log: str, channels: Iterable[str]) -> list[str]:
    """Those channels of a log that an identity may see."""
    return [name for name in channels if identity.may_see(access.channel(log, name))]


def seen_message(identity: Identity, message: Message) -> Message:
    """A message for an identity that may look at it, without queues that it may not see."""
    dead, sent_to = message.dead_letter, message.attributes.get(SENT_TO)
    if dead is not None and not identity.may_see(dead.queue):
        message = replace(message, dead_letter=None)
    if sent_to is not None and not identity.may_see(sent_to):
        left = {name: value for name, value in message.attributes.items() if name != SENT_TO}
        message = replace(message, attributes=left)
    return message


def seen_step(identity: Identity, step: LifeStep) -> LifeStep | None:
    """What an identity may see of a step; None if it may not look into the step's queue."""
    if not identity.may("look", step.queue):
        return None
    source = step.source if step.source and identity.may_see(step.source) else None
    target = step.target if step.target and identity.may_see(step.target) else None
    return step._replace(source=source, target=target)


def require_all(identity: Identity) -> None:
    """Check that an identity may see every queue that can exist.

    Required for what mentions queues in free text. Raises Unauthorized, Forbidden.
    """
    if not identity.sees_all_queues:
        identity.refuse("send, receive, look or admin on '*'")


def seen_error(identity: Identity, subscribers: Iterable[str], error: FsmqError) -> FsmqError:
    """Why subscribers of a topic do not take a message, without names that may not be seen."""
    if all(map(identity.may_see, subscribers)):
        return error
    wait = error.retry_after if isinstance(error, Unavailable) else _BY_HAND_S
    return Unavailable("a subscriber of the topic takes nothing now, so none gets it", wait)


def targets(identity: Identity, to: str | None) -> tuple[str, ...] | None:
    """To which queues an identity may move or redrive: patterns of names; None: to all.

    to: the only target; None for a redrive of each message to the queue it was buried from.

    Raises:
        Unauthorized, Forbidden: it may not put into that queue, or into any.
    """
    if to is not None:
        identity.require("send", to)
        return (to,)
    allowed = identity.granted("send")
    if allowed is not None and not allowed:
        identity.refuse("send on the queues from which they were buried")
    return allowed
