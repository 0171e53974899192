"""Whether a checkpoint is the one under which its consumer committed last.

An offset has the consumer, the stream, which is a UUID that each new checkpoint gets, and a number.
Spark's file sink skips a batch whose number it has: if a query with another checkpoint, or an older
one, claimed messages for such a batch, they would be acknowledged and in no sink.
"""

from __future__ import annotations

from typing import Any

from fsmq.spool import InvalidValue
from fsmq.spool.shared_jobs import Consumer

Offset = dict[str, Any]

_NEW = "take a new checkpoint and a new, empty sink, with the option otherCheckpoint=accept"


def is_of_other(consumer: Consumer, offset: Offset) -> bool:
    """Whether an offset was made for another consumer."""
    return offset.get("consumer") not in (None, consumer.name)


def problem_of(consumer: Consumer, offset: Offset, number: int) -> str | None:
    """Why a query cannot go on behind batch ``number`` of an offset's stream; None if it can."""
    known = consumer.committed()
    if is_of_other(consumer, offset):
        return f"this checkpoint is of consumer {offset['consumer']!r}: use that name again"
    if known is None:
        if number == 0:
            return None
        return (
            f"it does not know this checkpoint, which ends with batch {number}: it was forgotten,"
            " or the root is another spool"
        )
    if known.stream != offset["stream"]:
        return (
            f"it works with another checkpoint, and has committed batch {known.number} of it: that"
            " was removed or moved, or is another query's; bring it back"
        )
    if known.number <= number:
        return None
    return (
        f"it has committed batch {known.number}, and this checkpoint ends with batch {number}:"
        " it is an older copy, or a power cut took its end; bring the newer one back"
    )


def refused(consumer: Consumer, problem: str) -> InvalidValue:
    """The error of a query that cannot go on."""
    return InvalidValue(f"consumer {consumer.name!r}", f"{problem}, or {_NEW}")
