"""What values the verbs take: the ranges of numbers, the forms of names, and checks that raise."""

from __future__ import annotations

from .layout.claim_names import check_claim
from .layout.messages.message import (
    MAX_DEDUP_BYTES,
    MAX_GROUP_BYTES,
    MAX_HEADER_BYTES,
    is_attribute_name,
)
from .layout.names import (
    MAX_FILE_NAME_BYTES,
    MAX_OWN_ID_BYTES,
    MAX_PRIORITY,
    MAX_QUEUE_BYTES,
    check_id,
    check_queue,
    is_id,
    is_queue,
)
from .layout.settings import (
    MAX_DELAY_S,
    MAX_PARTITIONS,
    MAX_TTL_S,
    MAX_VISIBILITY_S,
    check_number,
    check_seconds,
)

__all__ = [
    "MAX_DEDUP_BYTES",
    "MAX_DELAY_S",
    "MAX_FILE_NAME_BYTES",
    "MAX_GROUP_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_OWN_ID_BYTES",
    "MAX_PARTITIONS",
    "MAX_PRIORITY",
    "MAX_QUEUE_BYTES",
    "MAX_TTL_S",
    "MAX_VISIBILITY_S",
    "check_claim",
    "check_id",
    "check_number",
    "check_queue",
    "check_seconds",
    "is_attribute_name",
    "is_id",
    "is_queue",
]
