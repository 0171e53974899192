"""Backup: a consistent copy of a spool in use, and its way back.

docs/decisions/0037-a-copy-of-a-spool-in-use.md says what is promised, and why it holds.
"""

from .restoring import Restored, restore
from .taking import Snapshot, backup

__all__ = ["Restored", "Snapshot", "backup", "restore"]
