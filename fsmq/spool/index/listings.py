"""Which threads may list folders: all except those that must not be blocked for seconds.

The time of a listing grows with the number of messages, whatever it is for. A thread for which
others wait forbids itself to list: there a claim uses earlier listings, and a put that would have
to count messages raises Unlisted.
"""

from __future__ import annotations

import threading

from ..errors import Unavailable

_here = threading.local()


class Unlisted(Unavailable):
    """The messages of a queue have to be counted first, in a thread that may list folders.

    Nothing was done.
    """

    def __init__(self, queue: str) -> None:
        super().__init__(f"the messages of queue {queue!r} have to be counted", 1)
        self.queue = queue


def forbid() -> None:
    """Forbid this thread to list folders."""
    _here.forbidden = True


def allow() -> None:
    """Let this thread list folders again."""
    _here.forbidden = False


def are_allowed() -> bool:
    """Whether this thread may list a folder."""
    return not getattr(_here, "forbidden", False)


def check(queue: str) -> None:
    """Make sure that this thread may list a folder. Raises Unlisted."""
    if not are_allowed():
        raise Unlisted(queue)
