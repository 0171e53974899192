"""fsck: checks a tree of any size against the rules of the format, and repairs what it may.

It may run beside the daemons. It checks each entry that seems wrong again after a pause, and again
as long as some of them change, because then a process works on them. It reports only entries that
do not change. A repair never deletes a message, and changes nothing that may be in use.
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
