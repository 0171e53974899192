"""Operations of a load, as its clients wrote them down, and what is found wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DONE = (200, 201, 202, 204)
ENDED = 409  # of what was to be done in a claim: it had ended, and nothing was done
NEVER = float("inf")
ACCURACY_S = 0.0011  # deadlines are kept in whole milliseconds


@dataclass
class Op:
    """One operation; times are time.monotonic(), the same for all processes, and Unix seconds."""

    verb: str
    queue: str
    client: str
    called: float
    called_wall: float
    keys: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    own: str = ""  # the id that a post asked for
    claim: str = ""  # the name of the claim in which it was to be done
    attempt: int = 0  # what its attribute says; 0: it has none
    delay: float | None = None
    visibility: float = 0.0
    answered: float = NEVER
    answered_wall: float = NEVER
    status: int = 0
    over: float = NEVER  # without an answer, when no program was at it any more
    deadline: float = 0.0
    reason: str = ""  # of a burial
    priority: int = 0
    moved: int = 0  # how many messages a redrive brought back
    to: list[str] = field(default_factory=list)  # the queues of a publish, or of a move
    copies: dict[str, str] = field(default_factory=dict)  # its ids by queue
    got: list[list[Any]] = field(default_factory=list)  # id, content, deadline, fault, claim

    @property
    def content(self) -> str:
        """By what the message of a post is known when it comes out."""
        return content(self.keys[0], self.attempt)


def content(key: str, attempt: int) -> str:
    """A message's body, by its key, and what its attribute says."""
    return f"{key}#{attempt}" if attempt else key


class Finding(NamedTuple):
    """A promise that was broken: its kind and the story."""

    kind: str
    text: str


def read(files: Iterable[Path]) -> list[Op]:
    """The operations of all clients, in the order in which they were asked for."""
    ops: dict[tuple[str, int], Op] = {}
    for file in files:
        if not file.exists():
            continue  # its client was not given the time to begin
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # a killed client may leave half a line
                _take(ops, json.loads(line))
    return sorted(ops.values(), key=lambda op: op.called)


def acknowledged(files: Iterable[Path]) -> int:
    """How many operations of all clients have been done, as far as they were told by now."""
    return sum(op.status in DONE for op in read(files))


def _take(ops: dict[tuple[str, int], Op], line: dict[str, Any]) -> None:
    number = (line["client"], line.pop("n"))
    if "called" in line:
        ops[number] = Op(**line)
        return
    for name, value in line.items():
        if name != "client":
            setattr(ops[number], name, value)
