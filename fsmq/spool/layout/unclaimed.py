"""Messages that nobody has claimed yet, whose times are most often no stamps at all."""

from __future__ import annotations

from .stamps import Stamps
from .tree import Tree


def is_delayed(
    tree: Tree, stamps: Stamps, path: str, message_id: str, mtime_ns: int, now_ms: int
) -> bool:
    """Whether a delay was asked for a message that is about to be delivered, and is not over.

    It has not been delivered before: a count is that of a foreign time that verifies by chance. It
    is set to 0 here, because it must not bring the message to the dead letters.

    Raises:
        OSError
    """
    stamp = stamps.decode(message_id, mtime_ns)
    if stamp is None:
        return False
    if stamp.deliveries:
        tree.stamp(path, stamps.encode(message_id, now_ms, 0))
        return False
    return stamp.deadline_ms > now_ms
