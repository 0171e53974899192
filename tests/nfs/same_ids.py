"""Two hosts that put, claim and delete the same ids at once, and lock the same reservation.

Each id is reused: both hosts put it with different bodies, both claim it, and one of them deletes
it. While the message exists, it is the one whose put was acknowledged.
"""

from __future__ import annotations

from collections import Counter

from tests.nfs.rivals import Remote, at_once
from tests.power.history import Finding

_IDS = 3


class SameIds:
    """The answers of two hosts. counts: by pairs of answers."""

    def __init__(self, one: Remote, two: Remote) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self._hosts = (one, two)

    def run(self, rounds: int) -> None:
        for host in self._hosts:
            host("create", "same")
        for number in range(rounds):
            self._live(f"id-{number % _IDS}", number)
        self._reserve(rounds)

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
            self._add_finding("claimed", f"{id}: {story}")
        if remover("remove", "same", id) is not True:
            self._add_finding("removed", f"{id}: the claimed message was not found")

    def _put(self, id: str, number: int) -> list[str]:
        """Put the id on both hosts; the body whose put was acknowledged."""
        bodies = [f"{number} of {name}" for name in ("one", "two")]
        for host, body in zip(self._hosts, bodies, strict=True):
            host.begin("put", "same", id, body)
        answers = [host.end() for host in self._hosts]
        kinds = sorted("stored" if answer == id else answer for answer in answers)
        self.counts["put: " + ", ".join(kinds)] += 1
        stored = [body for body, answer in zip(bodies, answers, strict=True) if answer == id]
        # A duplicate implies an acknowledged put; both may be answered 503.
        if len(stored) > 1 or (not stored and "DuplicateMessage" in answers):
            self._add_finding("put", f"{id}: {answers}")
        return stored

    def _claim(self, tries: int = 60) -> list[str]:
        """Claim on both hosts until one gets a message; the bodies of both."""
        for _ in range(tries):
            answers = at_once(*self._hosts, "claim", "same", 0.3)
            bodies = [body for found in answers if isinstance(found, list) for _, body in found]
            if bodies:
                return bodies
        return []

    def _reserve(self, times: int) -> None:
        counts = at_once(*self._hosts, "reserve_repeatedly", "same-id", times)
        self.counts["held a reservation"] += sum(held for held, _ in counts)
        shared = sum(number for _, number in counts)
        if shared:
            self._add_finding("held twice", f"both hosts held a reservation, {shared} times")

    def _add_finding(self, kind: str, text: str) -> None:
        self.findings.append(Finding(kind, text))


def check(one: Remote, two: Remote, rounds: int) -> list[Finding]:
    """Run the rounds; the broken promises."""
    both = SameIds(one, two)
    both.run(rounds)
    print(f"  same ids: {dict(both.counts)}", flush=True)
    return both.findings
