"""What is done with chosen messages: verbs of the spool as values, which `Queues.do` carries out.

Each raises, when it is done, what the verb of its name raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeAlias, TypeVar

from fsmq.spool import Spool, prepare
from fsmq.spool.layout.claim_names import Renewal
from fsmq.spool.prepare import FEW, Prepared
from fsmq.spool.verbs.moves.redrive import Redriven, redrive_messages
from fsmq.spool.verbs.removal import remove_ready

T = TypeVar("T")
# Where it is done: on the loop; beside it, since it is much; or where folders may be listed.
Where: TypeAlias = Literal["loop", "thread", "listing"]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A verb with all that it is about. begin: does it, but for making it durable."""

    begin: Callable[[], Prepared[T]]
    where: Where = "loop"


class Changes:
    """Makes them, for one spool."""

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
        """Hold a message for so many seconds from now; None: as its queue has it."""
        renew = partial(prepare.renew, self._context)
        return Change(partial(renew, queue, message_id, visibility, claim, though_over=though_over))

    def release(
        self, queue: str, message_id: str, delay: float = 0.0, claim: str | None = None
    ) -> Change[None]:
        """Let a message be ready, at once or after so many seconds."""
        return Change(partial(prepare.release, self._context, queue, message_id, delay, claim))

    def bury(
        self, queue: str, message_id: str, reason: str | None = None, claim: str | None = None
    ) -> Change[None]:
        """Bring a message to the dead-letter queue."""
        return Change(partial(prepare.bury, self._context, queue, message_id, reason, claim))

    def set_priority(self, queue: str, message_id: str, priority: int) -> Change[str]:
        """Give a message that is ready another priority; its id then."""
        return Change(partial(prepare.set_priority, self._context, queue, message_id, priority))

    def renew_at_least(self, queue: str, ids: Sequence[str], seconds: float) -> Change[list[bool]]:
        """Hold messages for so many seconds, or longer where they are held for longer."""
        begin = partial(prepare.renew_at_least, self._context, queue, ids, seconds)
        return Change(begin, "loop" if len(ids) <= FEW else "thread")

    def release_many(self, queue: str, ids: Sequence[str] | None = None) -> Change[int]:
        """Release claimed messages of some ids, or all; how many."""
        return Change(partial(prepare.release_many, self._context, queue, ids), "listing")

    def remove_ready(self, queue: str, ids: Sequence[str]) -> Change[int]:
        """Remove those of some messages that are ready; how many."""
        return Change(partial(remove_ready, self._spool.context, queue, ids))

    def redrive(
        self, dead: str, only: Sequence[str], to: str | None, homes: Sequence[str] | None
    ) -> Change[Redriven]:
        """Bring some dead letters home, or all to one queue.

        homes: the patterns of names of the queues to which they may go home; None is all.
        """
        begin = partial(redrive_messages, self._spool.context, dead, only, to, homes=homes)
        return Change(begin, "listing")
