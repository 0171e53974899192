"""renameat2(2), which Python does not have."""

from __future__ import annotations

import ctypes
import errno
import os

NOREPLACE = 1
EXCHANGE = 2
_call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def renameat2(root: int, source: str, target: str, flags: int) -> int:
    """Rename within an open folder; 0, or the number of the error. ENOSYS where there is none."""
    if _call is None:
        return errno.ENOSYS
    failed = _call(root, os.fsencode(source), root, os.fsencode(target), flags)
    return ctypes.get_errno() if failed else 0
