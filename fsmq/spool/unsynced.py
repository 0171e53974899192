"""The verbs of a spool in two steps: each changes the tree, and is then to be made durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .context import Context, Pending
from .layout.claim_names import Renewal, check_claim
from .layout.message import Message, NewMessage
from .layout.settings import QueueSettings
from .layout.steps import finish
from .verbs import (
    by_id,
    dedup,
    postpone,
    put,
    receive,
    release,
    removal,
    remove_if,
    reprioritize,
    upsert,
)
from .verbs import publish as publishing
from .verbs import renew as renewal
from .verbs import renew_at_least as renewals
from .verbs.publish import Copy, ToLog
from .verbs.put import Batch
from .verbs.remove_if import Acked
from .verbs.upsert import Stored
from .views.counts import Depths


class Unsynced:
    """The attribute ``unsynced`` of a spool, for those who group their syncs.

    Nothing is durable when one of these returns. Give what it returns to ``Spool.complete``, or to
    a group commit of your own. Each raises what the function of its name raises, see the modules
    of the verbs.
    """

    def __init__(self, context: Context, depths: Depths) -> None:
        self.context = context
        self.depths = depths
        self.to_log: ToLog | None = None  # logs stand on a higher floor

    def put(
        self,
        queue: str,
        messages: Iterable[NewMessage],
        settings: QueueSettings | None = None,
        batch: Batch | None = None,
    ) -> Pending[list[str]]:
        return put.put(self.context, self.depths, queue, messages, settings, batch=batch)

    def publish(self, topic: str, message: NewMessage) -> Pending[dict[str, str]]:
        topics = self.context.topics
        to = topics.subscribed(topic)
        return self.publish_copies(publishing.copies_of(topics, topic, message, to))

    def publish_copies(
        self,
        copies: Iterable[Copy],
        settings: Mapping[str, QueueSettings] | None = None,
        batch: Batch | None = None,
    ) -> Pending[dict[str, str]]:
        return publishing.publish(self.context, self.depths, copies, settings, self.to_log, batch)

    def dedup_send(
        self, name: str, bodies: Sequence[bytes], batch: Batch | None = None
    ) -> Pending[list[str]]:
        return dedup.send(self.context, self.depths, name, bodies, batch)

    def claim(
        self,
        queue: str,
        count: int = 1,
        visibility: float | None = None,
        whole_groups: bool = False,
    ) -> Pending[list[Message]]:
        return finish(
            receive.claim_in(self.context, queue, count, visibility, whole_groups=whole_groups)
        )

    def renew(
        self,
        queue: str,
        message_id: str,
        visibility: float | None,
        claim: str | None = None,
        *,
        though_over: bool = False,
    ) -> Pending[Renewal]:
        return renewal.renew(
            self.context, queue, message_id, visibility, _checked(claim), though_over=though_over
        )

    def renew_at_least(
        self, queue: str, message_ids: Sequence[str], visibility: float
    ) -> Pending[list[bool]]:
        return renewals.renew_at_least(self.context, queue, message_ids, visibility)

    def release(
        self, queue: str, message_id: str, delay: float = 0.0, claim: str | None = None
    ) -> Pending[None]:
        return release.release(self.context, queue, message_id, delay, _checked(claim))

    def release_many(self, queue: str, message_ids: Sequence[str] | None = None) -> Pending[int]:
        return release.release_many(self.context, queue, message_ids)

    def release_unseen(self, message: Message) -> Pending[None]:
        return release.release_unseen(self.context, message)

    def bury(
        self,
        queue: str,
        message_id: str,
        reason: str | None = None,
        claim: str | None = None,
    ) -> Pending[None]:
        named = _checked(claim)
        return release.bury_now(self.context, queue, message_id, reason, claim=named)

    def set_priority(self, queue: str, message_id: str, priority: int) -> Pending[str]:
        return reprioritize.reprioritize(self.context, queue, message_id, priority)

    def upsert(self, queue: str, messages: Sequence[NewMessage]) -> Pending[Stored]:
        return upsert.upsert(self.context, self.depths, queue, messages)

    def upsert_each(self, messages: Mapping[str, Sequence[NewMessage]]) -> list[Pending[Stored]]:
        return upsert.upsert_each(self.context, self.depths, messages)

    def postpone(
        self, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
    ) -> Pending[Stored] | None:
        return postpone.postpone(self.context, queue, given_id, delay, attributes)

    def ensure(
        self, queue: str, messages: Sequence[NewMessage], among: Sequence[str] = ()
    ) -> Pending[list[bool]]:
        others = [name for name in among if name != queue]
        return upsert.ensure(self.context, self.depths, queue, messages, others)

    def claim_id(
        self, queue: str, given_id: str, visibility: float | None
    ) -> Pending[Message | None]:
        return by_id.claim_id(self.context, queue, given_id, visibility)

    def ack_ids(
        self, queue: str, given_ids: Sequence[str], names: Mapping[str, str] | None = None
    ) -> Pending[list[bool]]:
        return by_id.ack_ids(self.context, queue, given_ids, names)

    def remove_ids(self, queue: str, given_ids: Sequence[str]) -> Pending[list[bool]]:
        return by_id.remove_ids(self.context, queue, given_ids)

    def renew_id(self, queue: str, given_id: str, visibility: float) -> Pending[bool]:
        return by_id.renew_id(self.context, queue, given_id, visibility)

    def remove(self, queue: str, message_ids: Sequence[str]) -> Pending[list[bool]]:
        return removal.remove(self.context, queue, message_ids)

    def remove_if(
        self, queue: str, message_ids: Sequence[str], claims: Sequence[str | None]
    ) -> Pending[list[Acked]]:
        return remove_if.remove_if(self.context, queue, message_ids, claims)


def _checked(claim: str | None) -> str | None:
    return None if claim is None else check_claim(claim)
