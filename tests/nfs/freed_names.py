"""A writer of a log that is stopped for so long that the name for which it will try is free again.

Two hosts publish to one log. `two` has seen where it ends and written its group; then it is stopped
before its link, or behind it. Meanwhile `one` publishes on, and a merger frees the names.
"""

from __future__ import annotations

from tests.nfs.rivals import Remote
from tests.power.history import Finding

_MANY = [f"of one {number}" for number in range(12)]
_TRUST_S = 0.2  # much less than what the steps of `one` take


def check(one: Remote, two: Remote) -> list[Finding]:
    """What was broken."""
    findings = []
    for merges in (0, 1, 2):
        for seconds in (_TRUST_S, 60.0):
            if merges and seconds > _TRUST_S:
                continue  # no merger frees a name so soon
            told = _attack(one, two, f"freed-{merges}-{seconds:g}", merges, seconds)
            print(f"  stopped before a link, {merges} merges, {seconds:g} s: {told or 'ok'}")
            if told:
                findings.append(Finding("a freed name", told))
    return findings


def _attack(one: Remote, two: Remote, log: str, merges: int, trust_s: float) -> str:
    """merges: 0: the name is taken; 1: it is free; 2: and so are those behind it."""
    one("make_log", log)
    one("append", log, "a", "b")
    before = one("read_log", log)
    two("append", log, "c")
    known = {**before, "2": "c"}
    if not two("stop_at_link", trust_s, "append", log, "of two"):
        return "it made no link"
    offsets = one("append", log, *_MANY)
    known.update(zip(map(str, offsets), _MANY, strict=True))
    if merges and not one("merge", log, 1 if merges == 2 else 4):
        return "nothing was merged"
    seen = one("read_log", log)
    if seen != known:
        return f"before it went on one saw {seen}"
    found = two("go_on")
    if not isinstance(found, list):
        return f"two was answered {found}"
    known[str(found[0])] = "of two"
    offsets = one("append", log, "last")
    known[str(offsets[0])] = "last"
    for name, host in (("one", one), ("two", two)):
        got = host("read_log", log)
        if got != known or len(known) != len(_MANY) + 5:
            return f"{name} sees {got}, and was answered {known}"
    return ""
