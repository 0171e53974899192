"""Checks whether an order of all effects explains every answer and the final state of the spool.

It goes through the log and keeps all possible worlds. An answer that no world explains is a broken
promise: a message was lost, delivered twice or resurrected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from tests.interleave.model import Operation, World

_MOST_WORLDS = 20_000


class Moment(Enum):
    ASKED = "asked"
    ANSWERED = "answered"


@dataclass
class Log:
    """Requests, answers and times (Unix milliseconds) in order."""

    entries: list[tuple[Moment, Operation] | int] = field(default_factory=list)
    trace: list[str] | None = None  # gets the same as text

    def ask(self, op: Operation) -> None:
        self._write(op.text)
        self.entries.append((Moment.ASKED, op))

    def answer(self, op: Operation) -> None:
        self._write(str(op))
        self.entries.append((Moment.ANSWERED, op))

    def time(self, now_ms: int) -> None:
        before = next((e for e in reversed(self.entries) if isinstance(e, int)), now_ms)
        self._write(f"{(now_ms - before) / 1000:g} s pass")
        self.entries.append(now_ms)

    def _write(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(text)

    @property
    def operations(self) -> list[Operation]:
        return [e[1] for e in self.entries if isinstance(e, tuple) and e[0] is Moment.ASKED]


class TooMany(Exception):
    """There are too many possible worlds."""


def judge(log: Log, first: World, always: Iterable[Operation] = ()) -> str | None:
    """The first answer that no order explains, as text; None if an order explains all.

    always: operations that may happen at any time without a request.
    """
    worlds = {first}
    now = 0
    pending = {op.number: op for op in always}
    for op in pending.values():
        worlds = {w.with_state(op.number, op.begin(w)) for w in worlds}
    for entry in log.entries:
        if isinstance(entry, int):
            worlds = _closure(worlds, pending, now)
            now = entry
            for op in pending.values():
                op.clocks.append(now)
            continue
        moment, op = entry
        if moment is Moment.ASKED:
            worlds = _closure(worlds, pending, now)
            worlds = {w.with_state(op.number, op.begin(w)) for w in worlds}
            op.clocks = [now]
            pending[op.number] = op
            continue
        before = worlds
        worlds = _closure(worlds, pending, now)
        if op.lingers:
            continue
        del pending[op.number]
        worlds = {w.without_state(op.number) for w in worlds if op.is_over(w, w.state(op.number))}
        if not worlds:
            return f"nothing explains {op}; before it {_text(before)}"
    return None


def _closure(worlds: set[World], pending: dict[int, Operation], now: int) -> set[World]:
    """These worlds and all worlds that effects can make of them now."""
    found = set(worlds)
    left = list(worlds)
    while left:
        world = left.pop()
        for number, state in world.states:
            for after, done in pending[number].steps(world, state, now):
                if done is not state:
                    after = after.with_state(number, done)
                if after not in found:
                    found.add(after)
                    left.append(after)
        if len(found) > _MOST_WORLDS:
            raise TooMany
    return found


def _text(worlds: set[World]) -> str:
    texts = [f"[{world}]" for world in list(worlds)[:3]]
    return " or ".join(texts) + (f" or {len(worlds) - 3} more" if len(worlds) > 3 else "")
