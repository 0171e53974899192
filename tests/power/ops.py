"""Operations of a load as its clients recorded them, and findings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DONE = (200, 201, 202, 204)
ENDED = 409  # for an operation in a claim that had ended
NEVER = float("inf")
ACCURACY_S = 0.0011  # deadlines are kept in whole milliseconds


@dataclass
class Op:
    """An operation. Times are of time.monotonic(), and Unix seconds if their names end in wall."""

    verb: str
    queue: str
    client: str
    called: float
    called_wall: float
    keys: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    own: str = ""  # the own id of a post
    claim: str = ""  # the name of its claim
    attempt: int = 0  # the value of its attribute; 0: no attribute
    delay: float | None = None
    visibility: float = 0.0
    answered: float = NEVER
    answered_wall: float = NEVER
    status: int = 0
    over: float = NEVER  # without an answer: when no program could act on it any more
    deadline: float = 0.0
    reason: str = ""  # of a burial
    priority: int = 0
    moved: int = 0  # the number of messages that a redrive moved
    to: list[str] = field(default_factory=list)  # the target queues of a publish or a move
    copies: dict[str, str] = field(default_factory=dict)  # ids of a publish, by queue
    got: list[list[Any]] = field(default_factory=list)  # id, content, deadline, fault, claim

    @property
    def content(self) -> str:
        """The content by which the message of a post is recognised."""
        return content(self.keys[0], self.attempt)


def content(key: str, attempt: int) -> str:
    """A text for the body and the attribute of a message."""
    return f"{key}#{attempt}" if attempt else key


class Finding(NamedTuple):
    """A broken promise: its kind and its story."""

    kind: str
    text: str


def read(files: Iterable[Path]) -> list[Op]:
    """The operations of all clients in the order of their requests."""
    ops: dict[tuple[str, int], Op] = {}
    for file in files:
        if not file.exists():
            continue  # its client had no time to begin
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # a killed client may leave an incomplete line
                _take(ops, json.loads(line))
    return sorted(ops.values(), key=lambda op: op.called)


def acknowledged(files: Iterable[Path]) -> int:
    """The number of operations of all clients that have been acknowledged."""
    return sum(op.status in DONE for op in read(files))


def _take(ops: dict[tuple[str, int], Op], line: dict[str, Any]) -> None:
    number = (line["client"], line.pop("n"))
    if "called" in line:
        ops[number] = Op(**line)
        return
    for name, value in line.items():
        if name != "client":
            setattr(ops[number], name, value)
