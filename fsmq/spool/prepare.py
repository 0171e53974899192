"""The verbs in two steps: each changes the tree, and returns what is still to be made durable.

For programs that group their syncs. Each takes the context of a spool (``spool.context``) first.
Nothing is durable when it returns: give the `Prepared` that it returns to ``Spool.complete``, or to
a group commit of your own. `Steps` are verbs that may take long: an event loop hands them to a
thread, or does them portion by portion.
"""

from __future__ import annotations

from .context import Prepared, join
from .layout.steps import (
    FEW,
    LARGE_BYTES,
    MOST_AT_ONCE,
    Steps,
    finish,
    giving_way,
    in_order,
    portions,
)
from .verbs.by_id.by_id import ack_ids, claim_id, remove_ids, renew_id
from .verbs.by_id.postpone import postpone
from .verbs.by_id.upsert import ensure, upsert, upsert_each
from .verbs.dedup import send as dedup_send
from .verbs.publish import publish, publish_copies
from .verbs.put import MAX_BATCH, Batch, put
from .verbs.receive import MAX_CLAIMS, claim, claim_in
from .verbs.release import bury_now as bury
from .verbs.release import release, release_many, release_unseen
from .verbs.removal import remove
from .verbs.remove_if import Acked, remove_if
from .verbs.renew import renew
from .verbs.renew_at_least import renew_at_least
from .verbs.reprioritize import reprioritize as set_priority

__all__ = [
    "FEW",
    "LARGE_BYTES",
    "MAX_BATCH",
    "MAX_CLAIMS",
    "MOST_AT_ONCE",
    "Acked",
    "Batch",
    "Prepared",
    "Steps",
    "ack_ids",
    "bury",
    "claim",
    "claim_id",
    "claim_in",
    "dedup_send",
    "ensure",
    "finish",
    "giving_way",
    "in_order",
    "join",
    "portions",
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
