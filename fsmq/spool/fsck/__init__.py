"""fsck: checks a tree of any size against the rules of the format, and repairs it.

It can run beside the daemons. After a pause it checks each suspicious entry again, and repeats that
as long as some turn out to be right, since then processes are at work. It reports only what stays
wrong. A repair never deletes a message, and changes nothing that may be in use.
"""

from .check import check
from .report import Fault, Finding, Kind, Progress, Report, Severity, printable
from .suspects import grouped

__all__ = [
    "Fault",
    "Finding",
    "Kind",
    "Progress",
    "Report",
    "Severity",
    "check",
    "grouped",
    "printable",
]
