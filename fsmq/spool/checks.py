"""The values that verbs accept: ranges of numbers, forms of names, and checks that raise."""

from __future__ import annotations

from .layout.claim_names import PATTERN as CLAIM_PATTERN
from .layout.claim_names import Renewal, check_claim
from .layout.duty_cycle import MAX_RATE, MIN_RATE, DutyCycle, check_rate
from .layout.messages.dead_letter import MAX_REASON_BYTES, check_reason
from .layout.messages.given_ids import MAX_GIVEN_BYTES
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
from .layout.patterns import compiled, is_pattern
from .layout.settings import (
    MAX_DELAY_S,
    MAX_PARTITIONS,
    MAX_TTL_S,
    MAX_VISIBILITY_S,
    check_number,
    check_seconds,
)
from .layout.stamps import MAX_COUNT as MAX_DELIVERIES

__all__ = [
    "CLAIM_PATTERN",
    "MAX_DEDUP_BYTES",
    "MAX_DELAY_S",
    "MAX_DELIVERIES",
    "MAX_FILE_NAME_BYTES",
    "MAX_GIVEN_BYTES",
    "MAX_GROUP_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_OWN_ID_BYTES",
    "MAX_PARTITIONS",
    "MAX_PRIORITY",
    "MAX_QUEUE_BYTES",
    "MAX_RATE",
    "MAX_REASON_BYTES",
    "MAX_TTL_S",
    "MAX_VISIBILITY_S",
    "MIN_RATE",
    "DutyCycle",
    "Renewal",
    "check_claim",
    "check_id",
    "check_number",
    "check_queue",
    "check_rate",
    "check_reason",
    "check_seconds",
    "compiled",
    "is_attribute_name",
    "is_id",
    "is_pattern",
    "is_queue",
]
