"""The errors that fsck finds, for tests that end with a whole spool."""

from __future__ import annotations

from pathlib import Path

from fsmq.spool.fsck import Finding, Severity, check


def errors_in(root: Path) -> list[Finding]:
    """The errors in a spool that no program uses."""
    return [f for f in check(root, offline=True).findings if f.severity is Severity.ERROR]
