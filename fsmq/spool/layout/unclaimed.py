"""Messages that nobody has claimed yet: most have times that are no stamps."""

from __future__ import annotations

from .stamps import Stamps
from .tree import Tree


def is_delayed(
    tree: Tree, stamps: Stamps, path: str, message_id: str, mtime_ns: int, now_ms: int
) -> bool:
    """Whether a message that is about to be delivered has a delay that is not over.

    It has never been delivered: a count comes from a foreign time that verifies by chance. It is
    reset to 0 here, because it must not get the message buried.

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
