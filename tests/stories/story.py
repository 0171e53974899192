"""A story: what programs do with one mechanism, and what each answer says of how things stand.

A verb is what a program asks of the library. What it means is a function from how things stood, and
the answer, to how they may stand then: none if the answer cannot be true. Where no answer came, or
an error, it gives all that may have become of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fsmq.spool import Spool
from tests.interleave.model import Effect, Operation


class Unknown:
    """In place of an answer: there was none, or an error."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()
YEAR_S = 365 * 86_400.0


@dataclass(frozen=True)
class World:
    """How things may stand, and what the operations that are under way have still to do."""

    stands: Hashable
    states: tuple[tuple[int, Any], ...] = ()

    def state(self, number: int) -> Any:
        return next(state for of, state in self.states if of == number)

    def with_state(self, number: int, state: Any) -> World:
        others = self.without_state(number).states
        return replace(self, states=tuple(sorted((*others, (number, state)), key=lambda s: s[0])))

    def without_state(self, number: int) -> World:
        return replace(self, states=tuple(s for s in self.states if s[0] != number))

    def __str__(self) -> str:
        return repr(self.stands)


class Asking(Protocol):
    """A program of a story, as its deeds see it."""

    spool: Spool
    name: str

    def ask(self, verb: str, *given: Any) -> Any:
        """Ask for a verb of the story; its answer. Raises FsmqError."""

    def new(self) -> str:
        """A body that no other message has."""


Deed = Callable[[Asking], object]


@dataclass(frozen=True)
class Verb:
    """call: with a spool and what is given. means: with how things stood, the answer, the same.

    lingers: what may have become of it without an answer may still become of it later. apart: each
    thing that is given takes effect by itself.
    """

    call: Callable[..., Any]
    means: Callable[..., Iterable[Any]]
    lingers: bool = True
    apart: bool = False


@dataclass(frozen=True)
class Story:
    """One mechanism.

    first: how it stands when ``lay`` has made what is there at first. deeds: what programs do; one
    that is called "warm" each does before anything else. acts: those that are stopped, fail and die
    at each call. others: what is done meanwhile. behind: what another does before the same is tried
    again. returns: what others do so that a thing goes, is unlinked, and is there again: with the
    number of the file that has gone, where a filesystem uses them again. anew: deletes what the
    story is about, and makes it again. look: what a program that starts last of all finds; nobody
    may be refused then. sync: the call that makes things durable. clocks: the deeds whose promises
    hold for a program whose clock is off by ``off_s``. set_right: those whose promises hold, too,
    if one that was ahead is set right; claims end when it would be. begins_s: how long after it was
    laid the story begins. passes_s: how long it goes on at its end, each time with a mover.
    """

    name: str
    first: Hashable
    verbs: Mapping[str, Verb]
    deeds: Mapping[str, Deed]
    acts: tuple[str, ...]
    others: tuple[str, ...]
    lay: Callable[[Spool], None]
    look: Deed
    behind: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    anew: str | None = None
    sync: str = "fsync"
    clocks: tuple[str, ...] = ()
    set_right: tuple[str, ...] = ()
    off_s: float = YEAR_S
    begins_s: float = 0.0
    passes_s: tuple[float, ...] = (100.0,)


def explain(op: Operation, verb: Verb, given: tuple[Any, ...], answer: Any) -> None:
    """Say of an operation what its answer means."""

    def effect_of(some: tuple[Any, ...]) -> Effect:
        def effect(world: World, now: int) -> Iterable[World]:
            for stands in verb.means(world.stands, answer, *some):
                yield replace(world, stands=stands)

        return effect  # type: ignore[return-value]

    effects = [effect_of((one,)) for one in given] if verb.apart else [effect_of(given)]
    if answer is UNKNOWN:
        op.once, op.lingers = effects, verb.lingers
    else:
        op.must = effects
