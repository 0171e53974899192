"""Which threads may list a folder: all but those that must not be blocked for seconds.

A listing takes as long as there are messages, whatever is asked for. A thread behind which others
wait forbids itself to begin one: there a claim finds what has been listed before, and a put that
would have to count is refused with Uncounted.
"""

from __future__ import annotations

import threading

_here = threading.local()


def forbid() -> None:
    """Let this thread list no folder."""
    _here.forbidden = True


def allow() -> None:
    """Let this thread list folders again."""
    _here.forbidden = False


def are_allowed() -> bool:
    """Whether this thread may list a folder."""
    return not getattr(_here, "forbidden", False)
