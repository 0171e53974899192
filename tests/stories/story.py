"""A story: the actions of programs with one mechanism, and a model of it.

A verb is a call of the library. Its meaning is a function from a state and the answer to the
possible states after it: none if the answer is wrong. Without an answer, or after an error, these
are all states that it may have led to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fsmq.spool import Spool
from tests.interleave.model import Effect, Operation


class Unknown:
    """The value of a missing answer, or of an error."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()
YEAR_S = 365 * 86_400.0


@dataclass(frozen=True)
class World:
    """A possible state, and the states of the operations that are under way."""

    content: Hashable
    states: tuple[tuple[int, Any], ...] = ()

    def state(self, number: int) -> Any:
        return next(state for of, state in self.states if of == number)

    def with_state(self, number: int, state: Any) -> World:
        others = self.without_state(number).states
        return replace(self, states=tuple(sorted((*others, (number, state)), key=lambda s: s[0])))

    def without_state(self, number: int) -> World:
        return replace(self, states=tuple(s for s in self.states if s[0] != number))

    def __str__(self) -> str:
        return repr(self.content)


class Actor(Protocol):
    """A program of a story, as its actions see it."""

    spool: Spool
    name: str

    def ask(self, verb: str, *given: Any) -> Any:
        """Call a verb of the story; its answer. Raises FsmqError."""

    def new(self) -> str:
        """A new body."""


Action = Callable[[Actor], object]


@dataclass(frozen=True)
class Verb:
    """call: gets a spool and the arguments. means: gets the state, the answer, the arguments.

    lingers: without an answer, it may also take effect later. apart: each argument takes effect
    separately.
    """

    call: Callable[..., Any]
    means: Callable[..., Iterable[Any]]
    lingers: bool = True
    apart: bool = False


@dataclass(frozen=True)
class Story:
    """A mechanism.

    first: the state after ``set_up``. actions: the actions; each program begins with "warm", if it
    exists. acts: the actions that are stopped, fail or are killed at each call. others: actions
    meanwhile. behind: actions before a retry. returns: actions that remove a thing and create it
    again, with the same inode number where a filesystem reuses them. anew: deletes the thing of the
    story and creates it again. inspect: the last action, by a new program, which must not be
    refused. sync: the call that makes changes durable. clocks: the actions whose promises hold for
    a program whose clock is off by ``off_s``. set_right: those whose promises also hold if a clock
    that was ahead is set right; claims end at the time that it had. begins_s: the time between
    ``set_up`` and the story. passes_s: the times that pass at the end, each with a run of a mover.
    """

    name: str
    first: Hashable
    verbs: Mapping[str, Verb]
    actions: Mapping[str, Action]
    acts: tuple[str, ...]
    others: tuple[str, ...]
    set_up: Callable[[Spool], None]
    inspect: Action
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
    """Set the effects of an operation."""

    def effect_of(some: tuple[Any, ...]) -> Effect:
        def effect(world: World, now: int) -> Iterable[World]:
            for state in verb.means(world.content, answer, *some):
                yield replace(world, content=state)

        return effect  # type: ignore[return-value]

    effects = [effect_of((one,)) for one in given] if verb.apart else [effect_of(given)]
    if answer is UNKNOWN:
        op.once, op.lingers = effects, verb.lingers
    else:
        op.must = effects
