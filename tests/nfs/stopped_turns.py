"""A writer of a log is stopped in its turn for longer than others wait.

Two hosts publish to one log. `two` is stopped before a call of its publish; `one` waits for the
lock, takes the turn and publishes in new segments. Then `two` continues.
"""

from __future__ import annotations

import time

from tests.nfs.rivals import Remote
from tests.power.history import Finding

# The longest time for which a client of NFS answers from its cache.
CACHE_S = 60.0
_MANY = [f"of one {number} {'x' * 1000}" for number in range(12)]
# The mark of the turn's start, the append, its sync, the mark of the turn's end.
_CALLS = (("pwrite", 1), ("pwrite", 2), ("fdatasync", 1), ("pwrite", 3))


def check(one: Remote, two: Remote) -> list[Finding]:
    """The broken promises."""
    findings = []
    for call, number in _CALLS:
        fault = _attack(one, two, f"stopped-{call}-{number}", call, number)
        print(f"  stopped before {call} {number}: {fault or 'ok'}")
        if fault:
            findings.append(Finding("a stopped turn", fault))
    return findings


def _attack(one: Remote, two: Remote, log: str, call: str, number: int) -> str:
    one("create_log", log, 4096)
    one("append", log, "a", "b")
    before = one("read_log", log)
    two("append", log, "c")
    known = {**before, "2": "c"}
    if not two("stop_at_call", call, number, "append", log, "of two"):
        return "the call was not made"
    offsets = one("append", log, *_MANY)
    known.update(zip(map(str, offsets), _MANY, strict=True))
    found = one("read_log", log)
    if known.items() - found.items():
        return f"before two continues, one reads {found}, but {known} were acknowledged"
    answer = two("resume")
    if isinstance(answer, list):
        known[str(answer[0])] = "of two"
    elif answer != "Unavailable":
        return f"two was answered {answer}"
    offsets = one("append", log, "last")
    known[str(offsets[0])] = "last"
    for name, host in (("one", one), ("two", two)):
        found = _read(host, log, known)
        rest = {offset: body for offset, body in found.items() if offset not in known}
        if known.items() - found.items() or (rest and list(rest.values()) != ["of two"]):
            return f"{name} reads {found}, but {known} were acknowledged"
    return ""


def _read(host: Remote, log: str, known: dict[str, str]) -> dict[str, str]:
    """The messages that a host reads, at the latest when its cache of attributes has expired."""
    end = time.monotonic() + CACHE_S
    while True:
        found: dict[str, str] = host("read_log", log)
        if known.items() <= found.items() or time.monotonic() > end:
            return found
        time.sleep(0.5)  # no event crosses the network
