"""Names of the files of ``config/`` that the processes which use a queue share."""

from __future__ import annotations

import re

_dedup_name = re.compile(r"\.(?P<queue>.+)\.dedup")


def sends_name(queue: str) -> str:
    """The file of ``config/`` that senders into a fifo queue share."""
    return f".{queue}.sends"


def dedup_name(queue: str) -> str:
    """The folder of ``config/`` with the deduplication ids of a fifo queue."""
    return f".{queue}.dedup"


def queue_of_dedup(name: str) -> str | None:
    """The queue of such a folder; None for any other name."""
    match = _dedup_name.fullmatch(name)
    return None if match is None else match["queue"]


def claims_name(queue: str) -> str:
    """The file of ``config/`` that claimers of a fifo queue share."""
    return f".{queue}.claims"


def limits_name(queue: str) -> str:
    """The file of ``config/`` with which processes share a queue's limits."""
    return f".{queue}.limits"
