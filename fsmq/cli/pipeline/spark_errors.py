"""Turns the errors of Spark into a sentence for people."""

from __future__ import annotations

import re

from fsmq.cli.failures import Exit, Failure

# An error of fsmq in Spark's text: the last line of a traceback, or after Spark's own words.
_of_fsmq = re.compile(
    r"(?:^|: )fsmq\.[\w.]*\.(?P<kind>[A-Z]\w+): (?P<text>.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_of_disk = re.compile(r"\bjava\.(?:io|nio)\.[\w.]*Exception: (?P<text>.+)")
_of_query = re.compile(r"\[(?P<kind>[A-Z][A-Z_.]{3,})\] (?P<text>.+)")
# Errors that only wrap another one: of a stream, a write, a Python function.
_AROUND = ("STREAM_FAILED", "FOREACH_", "PYTHON_", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF")
_BUG = "INTERNAL_ERROR"
_CODES = {
    "NoSuchQueue": Exit.NOT_FOUND,
    "QueueIsGone": Exit.NOT_FOUND,
    "QueueFull": Exit.UNAVAILABLE,
    "Unavailable": Exit.UNAVAILABLE,
    "ConsumerInUse": Exit.UNAVAILABLE,
    "UnusableSpool": Exit.UNUSABLE,
}
AGAIN = "run it again: it continues where it stopped"


def failure_of(text: str) -> Failure | None:
    """The failure for the text of an error in a task or a query; None: it is a bug."""
    if ours := _of_fsmq.search(text):
        code = _CODES.get(ours["kind"], Exit.USAGE)
        advice = AGAIN if code is Exit.UNAVAILABLE else ""
        if ours["text"].startswith("option maxBodyBytes"):
            advice = "archive takes --max-body-bytes; it then finishes what it has claimed"
        return Failure(ours["text"], code, advice)
    if _BUG in text:
        return None
    if disk := list(_of_disk.finditer(text)):
        return Failure(disk[-1]["text"].strip(), Exit.UNAVAILABLE, AGAIN)
    for wrong in _of_query.finditer(text):
        if not wrong["kind"].startswith(_AROUND):
            return Failure(wrong["text"].strip(), Exit.USAGE)
    return None
