"""fsck: checks a tree of any size against the rules of the format, and repairs what it may.

It may run beside the daemons. It checks each entry that seems wrong again after a pause, and again
as long as some of them change, because then a process works on them. It reports only entries that
do not change. A repair never deletes a message, and changes nothing that may be in use.
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
