"""The verbs in two steps: each changes the tree, and returns what is still to be made durable.

For programs that group their syncs. Each takes the context of a spool (``spool.context``) first.
Nothing is durable when it returns: give what it returns to ``Spool.complete``, or to a group commit
of your own.
"""

from __future__ import annotations

from .verbs.by_id.by_id import ack_ids, claim_id, remove_ids, renew_id
from .verbs.by_id.postpone import postpone
from .verbs.by_id.upsert import ensure, upsert, upsert_each
from .verbs.dedup import send as dedup_send
from .verbs.publish import publish, publish_copies
from .verbs.put import put
from .verbs.receive import claim, claim_in
from .verbs.release import bury_now as bury
from .verbs.release import release, release_many, release_unseen
from .verbs.removal import remove
from .verbs.remove_if import remove_if
from .verbs.renew import renew
from .verbs.renew_at_least import renew_at_least
from .verbs.reprioritize import reprioritize as set_priority

__all__ = [
    "ack_ids",
    "bury",
    "claim",
    "claim_id",
    "claim_in",
    "dedup_send",
    "ensure",
    "postpone",
    "publish",
    "publish_copies",
    "put",
    "release",
    "release_many",
    "release_unseen",
    "remove",
    "remove_ids",
    "remove_if",
    "renew",
    "renew_at_least",
    "renew_id",
    "set_priority",
    "upsert",
    "upsert_each",
]
