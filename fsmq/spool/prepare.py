"""The verbs in two steps: each changes the tree, and returns what must still be made durable.

For programs that group their syncs. The first argument is the context of a spool
(``spool.context``). Nothing is durable when a verb returns: pass the `Prepared` that it returns to
``Spool.complete``, or to your own group commit. `Steps` are verbs that can take long: an event loop
hands them to a thread, or runs them in portions.
"""

from __future__ import annotations

from .context import Prepared, join
from .durability.dedup_records import KEPT_MS
from .durability.ids import PATIENCE_S as IDS_PATIENCE_S
from .durability.locks import without_waiting
from .durability.prepared import Key as SendKey
from .durability.prepared import end_all, key_of
from .durability.send_lines import PATIENCE_S as SENDS_PATIENCE_S
from .durability.settings_lock import PATIENCE_S as SETTINGS_PATIENCE_S
from .durability.sync import IN_FLIGHT, Dirty, Group, Syncer
from .index import listings
from .index.listings import Unlisted
from .index.ready import EVERYONE
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
from .limits.sequencer import Group as SendGroup
from .limits.sequencer import Sequencer, Unrecovered, Unsent
from .verbs import dedup
from .verbs.by_id.by_id import ack_ids, check_free, claim_id, remove_ids, renew_id
from .verbs.by_id.postpone import postpone
from .verbs.by_id.upsert import ensure, upsert, upsert_each
from .verbs.choice import MAX_PARTS, MAX_QUEUES, MAX_WEIGHT, Choice, Found, flat
from .verbs.dedup import read_side, write_side
from .verbs.dedup import send as dedup_send
from .verbs.moves.move import Moved, move_messages
from .verbs.moves.redrive import Redriven, redrive_messages
from .verbs.publish import Copy, copies_of, copy_of, publish, publish_copies
from .verbs.put import MAX_BATCH, Batch, put
from .verbs.receive import MAX_CLAIMS, claim, claim_in
from .verbs.release import bury_now as bury
from .verbs.release import release, release_many, release_unseen
from .verbs.removal import remove, remove_ready
from .verbs.remove_if import Acked, remove_if
from .verbs.renew import renew
from .verbs.renew_at_least import renew_at_least
from .verbs.reprioritize import reprioritize as set_priority
from .verbs.several import Turns, claim_several_in, has_more
from .views.reading import Room

__all__ = [
    "EVERYONE",
    "FEW",
    "IDS_PATIENCE_S",
    "IN_FLIGHT",
    "KEPT_MS",
    "LARGE_BYTES",
    "MAX_BATCH",
    "MAX_CLAIMS",
    "MAX_PARTS",
    "MAX_QUEUES",
    "MAX_WEIGHT",
    "MOST_AT_ONCE",
    "SENDS_PATIENCE_S",
    "SETTINGS_PATIENCE_S",
    "Acked",
    "Batch",
    "Choice",
    "Copy",
    "Dirty",
    "Found",
    "Group",
    "Moved",
    "Prepared",
    "Redriven",
    "Room",
    "SendGroup",
    "SendKey",
    "Sequencer",
    "Steps",
    "Syncer",
    "Turns",
    "Unlisted",
    "Unrecovered",
    "Unsent",
    "ack_ids",
    "bury",
    "check_free",
    "claim",
    "claim_id",
    "claim_in",
    "claim_several_in",
    "copies_of",
    "copy_of",
    "dedup",
    "dedup_send",
    "end_all",
    "ensure",
    "finish",
    "flat",
    "giving_way",
    "has_more",
    "in_order",
    "join",
    "key_of",
    "listings",
    "move_messages",
    "portions",
    "postpone",
    "publish",
    "publish_copies",
    "put",
    "read_side",
    "redrive_messages",
    "release",
    "release_many",
    "release_unseen",
    "remove",
    "remove_ids",
    "remove_if",
    "remove_ready",
    "renew",
    "renew_at_least",
    "renew_id",
    "set_priority",
    "upsert",
    "upsert_each",
    "without_waiting",
    "write_side",
]
