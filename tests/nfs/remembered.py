"""What a client of NFS remembers of files that its host has open for writing.

Such a client takes what another host has changed for its own writes, and goes on to answer from
its memory. Two processes of host `two` publish to one segment in turn with one of host `one`: each
has to see what all were answered, and to go on behind it when a turn was left by a writer that is
stopped.
"""

from __future__ import annotations

from tests.nfs.rivals import Remote
from tests.power.history import Finding


def check(one: Remote, first: Remote, second: Remote) -> list[Finding]:
    """What was broken. first, second: two processes of the other host."""
    told = _attack(one, first, second)
    print(f"  publishes in turn into one page: {told or 'ok'}", flush=True)
    return [Finding("a page that was remembered", told)] if told else []


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
            if told := missing():
                return told
    publish("first", "first has the segment open")
    publish("one", "one goes on in it")
    # one has said that it is in, and not that it is out: the next one has to find the end.
    if not one("stop_at_call", "pwrite", 2, "append", log, "not answered"):
        return "it made no such call"
    del everyone["one"]
    publish("second", "second seals it")
    told = missing()
    one("go_on")
    return told
