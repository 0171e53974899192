"""The cache of an NFS client for files that its host has open for writing.

Such a client takes changes by another host for its own writes and continues to answer from its
cache. Two processes of host `two` and one of host `one` publish to one segment in turn: each must
see all acknowledged messages, and append after them when a stopped writer left its turn open.
"""

from __future__ import annotations

from tests.nfs.rivals import Remote
from tests.power.history import Finding


def check(one: Remote, first: Remote, second: Remote) -> list[Finding]:
    """The broken promises. first, second: two processes of the other host."""
    fault = _attack(one, first, second)
    print(f"  publishes in turn into one page: {fault or 'ok'}", flush=True)
    return [Finding("a cached page", fault)] if fault else []


def _attack(one: Remote, first: Remote, second: Remote) -> str:
    log, known = "in-turn", dict[str, str]()
    writers = {"one": one, "first": first, "second": second}

    def publish(name: str, *bodies: str) -> None:
        offsets = writers[name]("append", log, *bodies)
        known.update(zip(map(str, offsets), bodies, strict=True))

    def find_fault() -> str:
        for name, writer in writers.items():
            if (found := writer("read_log", log)) != known:
                return f"{name} reads {found}, but {known} were acknowledged"
        return ""

    one("create_log", log)
    for number in range(3):
        for name in writers:
            publish(name, f"{name} {number}")
            if fault := find_fault():
                return fault
    publish("first", "first has the segment open")
    publish("one", "one continues in it")
    # `one` has only marked the start of its turn: the next writer has to find the end of the log.
    if not one("stop_at_call", "pwrite", 2, "append", log, "not answered"):
        return "the call was not made"
    del writers["one"]
    publish("second", "second seals it")
    fault = find_fault()
    one("resume")
    return fault
