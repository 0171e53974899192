"""Two hosts that put, claim and delete the same ids at once, and lock the same reservation.

Each id comes again and again: put by both, with different bodies, claimed by both, deleted by one
of them, in turn. While a message stands, its id is one message: the one whose put was acknowledged.
"""

from __future__ import annotations

from collections import Counter

from tests.nfs.rivals import Remote, at_once
from tests.power.history import Finding

_IDS = 3


class SameIds:
    """What two hosts were told of so many rounds; ``counts`` is by the pairs of answers."""

    def __init__(self, one: Remote, two: Remote) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self._hosts = (one, two)

    def run(self, rounds: int) -> None:
        for host in self._hosts:
            host("make", "same")
        for number in range(rounds):
            self._live(f"id-{number % _IDS}", number)
        self._exclude(rounds)

    def _live(self, id: str, number: int) -> None:
        """The life of one message."""
        stored = self._put(id, number)
        if not stored:
            return
        mover, remover = self._hosts[number % 2], self._hosts[number // 2 % 2]
        mover("deliver")
        bodies, again = self._claim(), self._claim(tries=2)
        self.counts[f"claimed by {len(bodies)}"] += 1
        if bodies != stored or again:
            story = f"{stored} was acknowledged, {bodies} and then {again} was claimed"
            self._tell("claimed", f"{id}: {story}")
        if remover("remove", "same", id) is not True:
            self._tell("removed", f"{id}: a message that is claimed was not there to be removed")

    def _put(self, id: str, number: int) -> list[str]:
        """Both put it; the body whose put was acknowledged."""
        bodies = [f"{number} of {name}" for name in ("one", "two")]
        for host, body in zip(self._hosts, bodies, strict=True):
            host.begin("put", "same", id, body)
        told = [host.end() for host in self._hosts]
        self.counts["put: " + ", ".join(sorted("stored" if t == id else t for t in told))] += 1
        stored = [body for body, answer in zip(bodies, told, strict=True) if answer == id]
        # Who is told that the id stands must be told so of the other's; both may be told 503.
        if len(stored) > 1 or (not stored and "DuplicateMessage" in told):
            self._tell("put", f"{id}: {told}")
        return stored

    def _claim(self, tries: int = 60) -> list[str]:
        """Both claim, until one of them gets something; what both have got."""
        for _ in range(tries):
            got = at_once(*self._hosts, "claim", "same", 0.3)
            bodies = [body for told in got if isinstance(told, list) for _, body in told]
            if bodies:
                return bodies
        return []

    def _exclude(self, times: int) -> None:
        told = at_once(*self._hosts, "exclude", "same-id", times)
        self.counts["held a reservation"] += sum(held for held, _ in told)
        broken = sum(alone for _, alone in told)
        if broken:
            self._tell("held twice", f"a reservation was held by both hosts, {broken} times")

    def _tell(self, kind: str, text: str) -> None:
        self.findings.append(Finding(kind, text))


def check(one: Remote, two: Remote, rounds: int) -> list[Finding]:
    """So many rounds; what was broken."""
    both = SameIds(one, two)
    both.run(rounds)
    print(f"  same ids: {dict(both.counts)}", flush=True)
    return both.findings
