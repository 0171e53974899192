"""What a client of NFS caches of files that its host has open for writing.

Such a client takes changes by another host for its own writes and continues to answer from its
cache. Two processes of host `two` and one of host `one` publish to one segment in turn: each must
see all acknowledged messages, and append behind them when a stopped writer left its turn open.
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
    everyone = {"one": one, "first": first, "second": second}

    def publish(name: str, *bodies: str) -> None:
        offsets = everyone[name]("append", log, *bodies)
        known.update(zip(map(str, offsets), bodies, strict=True))

    def missing() -> str:
        for name, each in everyone.items():
            if (seen := each("read_log", log)) != known:
                return f"{name} reads {seen}, and was answered {known}"
        return ""

    one("make_log", log)
    for rounds in range(3):
        for name in everyone:
            publish(name, f"{name} {rounds}")
            if fault := missing():
                return fault
    publish("first", "first has the segment open")
    publish("one", "one goes on in it")
    # `one` has marked the start of its turn only: the next writer has to find the end of the log.
    if not one("stop_at_call", "pwrite", 2, "append", log, "not answered"):
        return "it made no such call"
    del everyone["one"]
    publish("second", "second seals it")
    fault = missing()
    one("go_on")
    return fault
