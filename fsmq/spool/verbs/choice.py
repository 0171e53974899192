"""The queues of a claim from several: a text of names, patterns and weights.

See docs/decisions/0027-one-claim-from-several-queues.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from ..context import Context
from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from ..layout.names import check_queue, is_queue
from ..layout.patterns import compiled, is_pattern
from ..layout.steps import giving_way
from ..layout.tree import Tree

MAX_PARTS = 100
MAX_QUEUES = 1000
MAX_WEIGHT = 1000
_WEIGHTED = re.compile(r"(.*):([0-9]*)", re.S)

# The queues of each part of a choice at one moment.
Found: TypeAlias = Sequence[Sequence[str]]


class Part(NamedTuple):
    """One part of a choice: a queue, or those that a pattern matches."""

    name: str
    weight: int
    is_pattern: bool


class Choice:
    """Which queues to claim from, and how much from each.

    queues: names and patterns, each perhaps with ``:`` and a weight, such as ``"high:3"``; or all
        of them in one text, with commas between them.

    Without any weight, earlier queues are served first. Otherwise the claimed messages are shared
    out in proportion to the weights, which default to 1.

    Raises:
        InvalidValue
    """

    def __init__(self, queues: str | Iterable[str]) -> None:
        given = queues.split(",") if isinstance(queues, str) else list(queues)
        if not 1 <= len(given) <= MAX_PARTS:
            raise InvalidValue("queues", f"has {len(given)} parts; expected 1 to {MAX_PARTS}")
        self.parts: list[Part] = []
        self.is_weighted = False
        for text in given:
            self.parts.append(self._part(text))
        self.names = tuple(part.name for part in self.parts if not part.is_pattern)
        self.has_patterns = len(self.names) < len(self.parts)
        self._own = frozenset(self.names)

    def __str__(self) -> str:
        """The text from which it can be made again."""
        return ",".join(map(self._text, self.parts))

    def _text(self, part: Part) -> str:
        if self.is_weighted:
            return f"{part.name}:{part.weight}"
        return f"{part.name}:" if _WEIGHTED.fullmatch(part.name) else part.name

    def _part(self, text: object) -> Part:
        if not isinstance(text, str):
            raise InvalidValue("queues", f"{text!r} is not NAME, PATTERN or NAME:WEIGHT")
        name, weight = text, 1
        if (match := _WEIGHTED.fullmatch(text)) is not None:
            name = match[1]
            if match[2]:
                weight = int(match[2][:9])  # more digits are out of range anyway
                self.is_weighted = True
        if not 1 <= weight <= MAX_WEIGHT:
            raise InvalidValue(
                "queues", f"{text[-50:]!r}: a weight is a whole number from 1 to {MAX_WEIGHT}"
            )
        if any(part.name == name for part in self.parts):
            raise InvalidValue("queues", f"names {name[:200]!r} twice")
        if not set(name) & set("*?"):
            return Part(check_queue(name, "queues"), weight, is_pattern=False)
        if not is_pattern(name) or "/" in name:
            raise InvalidValue("queues", f"{name[:200]!r} is no pattern of names of queues")
        return Part(name, weight, is_pattern=True)

    @cached_property
    def _patterns(self) -> Sequence[re.Pattern[str] | None]:
        # Compiled by the first search, which can run in a thread: many long ones take 0.1 s.
        return [compiled([part.name]) if part.is_pattern else None for part in self.parts]

    def part_of(self, queue: str) -> int | None:
        """Which part a queue belongs to: that of its name, else the first pattern that matches."""
        for at, pattern in enumerate(self._patterns):
            if pattern is None:
                if self.parts[at].name == queue:
                    return at
            elif queue not in self._own and pattern.fullmatch(queue):
                return at
        return None

    def find(
        self,
        context: Context,
        may: Callable[[str], bool] = lambda queue: True,
        there: Iterable[str] | None = None,
    ) -> Found:
        """The queues of each part, as they are now.

        may: whether a queue may be chosen by a pattern. there: the names of all queues; None: list
        them if there are patterns.

        Raises:
            NoSuchQueue: a named queue is missing. InvalidValue: there are too many. Unavailable.
        """
        tree = context.tree
        found: list[list[str]] = [[] if part.is_pattern else [part.name] for part in self.parts]
        with as_unavailable("cannot look for the queues"):
            for name in self.names:
                if _has_gone(tree, name):
                    raise NoSuchQueue(name)
            if there is None:
                there = tree.queues() if self.has_patterns else ()
        for queue in giving_way(there):
            if queue not in self._own and (at := self.part_of(queue)) is not None and may(queue):
                found[at].append(queue)
        number = sum(map(len, found))
        if number > MAX_QUEUES:
            raise InvalidValue(
                "queues", f"stands for {number} queues; at most {MAX_QUEUES} in one claim"
            )
        return found

    def fits(self, queue: str) -> bool:
        """Whether a new queue matches one of the patterns."""
        return self.has_patterns and is_queue(queue) and self.part_of(queue) is not None


def _has_gone(tree: Tree, queue: str) -> bool:
    try:
        return not tree.has_queue(queue)
    except OSError:
        return False  # the queue with this error is left out when it is listed


def flat(found: Found) -> Iterator[str]:
    """All queues of a choice, in its order."""
    for queues in found:
        yield from queues
