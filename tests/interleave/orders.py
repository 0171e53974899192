"""Compares a verb that is stopped while others act with sequential orders of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Protocol

from fsmq.spool import Spool
from tests.interleave.gate import Actor, Gate

BUSY = "another process holds it"
Outcome = tuple[object, list[object], object]  # its result, those of the others, the final state


class Place(Protocol):
    """A spool that two processes use."""

    one: Spool
    other: Spool

    def act(self, verb: str, spool: Spool) -> object:
        """The result of a verb; BUSY if the other process was stopped while it held a lock."""

    def left(self) -> object:
        """The final state."""


def act_stopped(
    gate: Gate, place: Place, verb: str, others: Sequence[str], stop: int
) -> tuple[object, list[object]] | None:
    """The results of a verb that is stopped before a call, and of the others meanwhile.

    None if the verb ended before that call.
    """
    results: list[object] = []
    other_results: list[object] = []
    one = Actor(gate, lambda: results.append(place.act(verb, place.one)))
    if one.run(stop):
        return None
    other = Actor(gate, lambda: other_results.extend([place.act(o, place.other) for o in others]))
    other.run(None)
    one.run(None)
    assert (one.error, other.error) == (None, None)
    return results[0], other_results


def in_order(place: Place, verb: str, others: Sequence[str], at: int) -> Outcome:
    """The outcome of a verb after the first ``at`` of the others."""
    before = [place.act(other, place.other) for other in others[:at]]
    result = place.act(verb, place.one)
    after = [place.act(other, place.other) for other in others[at:]]
    return result, before + after, place.left()


def check_orders(
    verb: str,
    others: Sequence[str],
    new_place: Callable[[Gate | None], AbstractContextManager[Place]],
) -> int:
    """Stop a verb before each of its calls: each outcome must be that of some order.

    Returns the number of calls.
    """
    orders: dict[tuple[str, ...], list[Outcome]] = {}
    gate = Gate()
    with gate.open():
        for stop in count():
            with new_place(gate) as place:
                results = act_stopped(gate, place, verb, others, stop)
                if results is None:
                    return stop
                # A verb that found a lock has done nothing: this is an order of the others.
                done = [(o, r) for o, r in zip(others, results[1], strict=True) if r != BUSY]
                outcome = results[0], [result for _, result in done], place.left()
            some = tuple(other for other, _ in done)
            if some not in orders:
                orders[some] = []
                for at in range(len(some) + 1):
                    with new_place(None) as place:
                        orders[some].append(in_order(place, verb, some, at))
            assert outcome in orders[some], f"stopped before {stop}"
    raise AssertionError
