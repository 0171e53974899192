"""What is wrong in a copy: what fsck finds, without what recovery does when programs start."""

from __future__ import annotations

from pathlib import Path

from ..errors import Unavailable
from ..fsck import Finding, Kind, Report, Severity, check

# A job that is on its way to new/: a mover brings it there.
_RECOVERED = (Kind.COMMITTED_JOB,)


def errors_of(report: Report) -> list[Finding]:
    """The errors that are left when programs have started."""
    errors = (found for found in report.findings if found.severity is Severity.ERROR)
    return [finding for finding in errors if finding.kind not in _RECOVERED]


def checked(copy: Path, root: Path) -> tuple[Report, list[Finding]]:
    """The check of a copy, and the errors in it that the spool has too.

    Raises Unavailable if it has others, and UnusableSpool.
    """
    report = check(copy, offline=True)
    errors = errors_of(report)
    if errors:
        known = set(map(_key, errors_of(check(root))))
        own = [finding for finding in errors if _key(finding) not in known]
        if own:
            raise Unavailable(f"the copy is not sound: {own[0].path} {own[0].reason}", 60)
    return report, errors


def _key(finding: Finding) -> tuple[Kind, str]:
    # Findings of one kind in a queue have the path of any of them.
    return finding.kind, "" if finding.kind is Kind.UNKNOWN_QUEUE else finding.path
