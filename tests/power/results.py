"""Results of rounds of crashes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.power.ops import Finding


@dataclass
class Results:
    rounds: int = 0
    operations: int = 0
    acknowledged: int = 0
    uncertain: int = 0
    delivered: int = 0
    hidden: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Results) -> None:
        for name in ("rounds", "operations", "acknowledged", "uncertain", "delivered", "hidden"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings += other.findings

    @property
    def kinds(self) -> Counter[str]:
        return Counter(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        kinds = self.kinds
        return (
            f"{self.rounds} rounds, {self.operations} operations, {self.acknowledged} acknowledged,"
            f" {self.delivered} delivered, {self.hidden} stayed hidden;"
            f" {kinds['lost']} lost, {kinds['duplicated'] + kinds['held twice']} duplicated,"
            f" {kinds['torn'] + kinds['mixed'] + kinds['foreign']} torn or foreign,"
            f" {kinds['resurrected']} resurrected,"
            f" {sum(kinds.values())} findings in all"
        )
