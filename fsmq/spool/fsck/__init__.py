"""fsck: checks a tree of any size against the rules of the format, and repairs what it may.

It is right while the daemons run. It looks again, after a pause, at each entry that seems wrong, as
long as some of them change: then a process is at work on them. Only entries that do not change are
reported. A repair never deletes a message, and touches nothing that may be in use.
"""

from .check import check
from .duplicates import Links
from .parts import Part, check_part, links_of
from .report import Fault, Finding, Kind, Progress, Report, Severity, printable
from .suspects import Share, grouped

__all__ = [
    "Fault",
    "Finding",
    "Kind",
    "Links",
    "Part",
    "Progress",
    "Report",
    "Severity",
    "Share",
    "check",
    "check_part",
    "grouped",
    "links_of",
    "printable",
]
