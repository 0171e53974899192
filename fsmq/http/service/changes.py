"""Verbs of the spool on given messages, as values that `Queues.do` carries out.

Each raises, when it is carried out, what the verb of its name raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeAlias, TypeVar

from fsmq.spool import Spool, prepare
from fsmq.spool.checks import Renewal
from fsmq.spool.prepare import (
    FEW,
    Moved,
    Prepared,
    Redriven,
    move_messages,
    redrive_messages,
    remove_ready,
)

T = TypeVar("T")
# Where it runs: on the loop; in a thread, if it takes long; or in a thread that may list folders.
Where: TypeAlias = Literal["loop", "thread", "listing"]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A verb with its arguments. begin: does all of it except making it durable."""

    begin: Callable[[], Prepared[T]]
    where: Where = "loop"


class Changes:
    """Makes the changes of one spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._context = spool.context

    def renew(
        self,
        queue: str,
        message_id: str,
        visibility: float | None,
        claim: str | None = None,
        *,
        though_over: bool = False,
    ) -> Change[Renewal]:
        """Hide a message for some seconds from now; None: for its queue's visibility timeout."""
        renew = partial(prepare.renew, self._context)
        return Change(partial(renew, queue, message_id, visibility, claim, though_over=though_over))

    def release(
        self,
        queue: str,
        message_id: str,
        delay: float = 0.0,
        claim: str | None = None,
        reason: str | None = None,
    ) -> Change[None]:
        """Make a message ready, at once or after ``delay`` seconds, or a dead letter."""
        release = partial(prepare.release, self._context, queue, message_id)
        return Change(partial(release, delay, claim, reason))

    def bury(
        self, queue: str, message_id: str, reason: str | None = None, claim: str | None = None
    ) -> Change[None]:
        """Move a message to the dead-letter queue."""
        return Change(partial(prepare.bury, self._context, queue, message_id, reason, claim))

    def set_priority(self, queue: str, message_id: str, priority: int) -> Change[str]:
        """Give a ready message another priority; returns its new id."""
        return Change(partial(prepare.set_priority, self._context, queue, message_id, priority))

    def renew_at_least(self, queue: str, ids: Sequence[str], seconds: float) -> Change[list[bool]]:
        """Hide messages for at least ``seconds`` from now."""
        begin = partial(prepare.renew_at_least, self._context, queue, ids, seconds)
        return Change(begin, "loop" if len(ids) <= FEW else "thread")

    def release_many(self, queue: str, ids: Sequence[str] | None = None) -> Change[int]:
        """Release the claimed messages with these ids, or all; returns how many."""
        return Change(partial(prepare.release_many, self._context, queue, ids), "listing")

    def remove_ready(self, queue: str, ids: Sequence[str]) -> Change[int]:
        """Remove those messages that are ready; returns how many."""
        return Change(partial(remove_ready, self._spool.context, queue, ids))

    def move(
        self, source: str, target: str, only: Sequence[str], *, in_flight: bool = False
    ) -> Change[Moved]:
        """Move some messages to another queue; in_flight: claimed ones, too."""
        move = partial(move_messages, only=only, in_flight=in_flight)
        return Change(partial(move, self._context, source, target), "listing")

    def redrive(
        self, dead: str, only: Sequence[str], to: str | None, homes: Sequence[str] | None
    ) -> Change[Redriven]:
        """Move dead letters back to the queues they were buried from, or to the queue ``to``.

        homes: patterns of the names of queues to which they may go back; None: all.
        """
        begin = partial(redrive_messages, self._spool.context, dead, only, to, homes=homes)
        return Change(begin, "listing")
