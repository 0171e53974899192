"""Batches: checks of all entries together, and the results of failed ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..ask import Ask, Result
from ..errors import SqsError, StaleReceipt

_MAX_ENTRIES = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def entries_of(ask: Ask, element: str) -> Sequence[Mapping[str, Any]]:
    """The entries of a batch. Raises SqsError."""
    entries: Sequence[Mapping[str, Any]] = ask.get("Entries", [])
    if not entries:
        words = f"There should be at least one {element} in the request."
        raise SqsError("EmptyBatchRequest", words)
    if len(entries) > _MAX_ENTRIES:
        words = (
            f"Maximum number of entries per request are {_MAX_ENTRIES}."
            f" You have sent {len(entries)}."
        )
        raise SqsError("TooManyEntriesInBatchRequest", words)
    seen = set()
    for entry in entries:
        name = entry["Id"]
        if not _ID.fullmatch(name):
            words = (
                "A batch entry id can only contain alphanumeric characters, hyphens and"
                " underscores. It can be at most 80 letters long."
            )
            raise SqsError("InvalidBatchEntryId", words)
        if name in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {name} repeated.")
        seen.add(name)
    return entries


def failure(entry: Mapping[str, Any], error: SqsError) -> Result:
    """The result of an entry that failed."""
    error = error.in_batch if isinstance(error, StaleReceipt) else error
    return {
        "Id": entry["Id"],
        "SenderFault": not error.is_ours,
        "Code": error.kind.legacy,
        "Message": error.words,
    }


def outcome(successful: Sequence[Result], failed: Sequence[Result]) -> Result:
    """The result of a batch, without empty lists."""
    result: Result = {}
    if successful:
        result["Successful"] = successful
    if failed:
        result["Failed"] = failed
    return result
