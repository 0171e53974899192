"""The on-disk format, for code that reads the tree itself: names, stamps, folders, bodies."""

from __future__ import annotations

from .durability.sync import sync_filesystem
from .layout.filesystem import is_network, kind_of, looks_coarse
from .layout.messages.compression import MAX_PLAIN_BYTES
from .layout.messages.message import OWN, SENT_TO, is_own, public, unpack
from .layout.names import (
    MAX_EXPIRY_S,
    PLAIN,
    UUID7,
    Facts,
    entry,
    facts,
    renewed,
    sequence_of,
    split_entry,
    split_shard,
)
from .layout.of_queues import OfQueues
from .layout.stamps import Stamp, Stamps, hidden_state
from .layout.transitions import DELAY, JOURNAL, MESSAGE_FOLDERS, NEW, QUEUES
from .layout.tree import STRAY, Tree
from .layout.uuids import created_ms, uuid7
from .records.journal_files import created_ms as segment_created_ms
from .records.secret import shared_secret

__all__ = [
    "DELAY",
    "JOURNAL",
    "MAX_EXPIRY_S",
    "MAX_PLAIN_BYTES",
    "MESSAGE_FOLDERS",
    "NEW",
    "OWN",
    "PLAIN",
    "QUEUES",
    "SENT_TO",
    "STRAY",
    "UUID7",
    "Facts",
    "OfQueues",
    "Stamp",
    "Stamps",
    "Tree",
    "created_ms",
    "entry",
    "facts",
    "hidden_state",
    "is_network",
    "is_own",
    "kind_of",
    "looks_coarse",
    "public",
    "renewed",
    "segment_created_ms",
    "sequence_of",
    "shared_secret",
    "split_entry",
    "split_shard",
    "sync_filesystem",
    "unpack",
    "uuid7",
]
