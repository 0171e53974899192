"""Manifests: the batches of consumers, as files ``consumers/<name>/<batch>.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .names import UUID7, is_id, is_queue
from .transitions import CONSUMERS
from .tree import Tree
from .unread import Claimed

LOCK, OPEN, DONE = ".lock", ".json", ".done"
NAME = rf"{UUID7}(?:\{OPEN}|\{DONE})"
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """What was claimed at once.

    name: a UUIDv7, the same whenever the batch is given. stream, number: its place in somebody's
    count. claims: by queue, in order.
    """

    name: str
    stream: str
    number: int
    claims: Mapping[str, list[Claimed]]

    def __len__(self) -> int:
        return sum(map(len, self.claims.values()))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(claim.size for claims in self.claims.values() for claim in claims)

    def with_claims(self, queue: str, claims: list[Claimed]) -> Batch:
        """The same with other claims of one queue."""
        return replace(self, claims={**self.claims, queue: claims})


def folder_of(tree: Tree, consumer: str) -> str:
    return tree.folder(CONSUMERS, consumer)


def path_of(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> str:
    return f"{folder_of(tree, consumer)}/{name}{suffix}"


def save(tree: Tree, consumer: str, batch: Batch) -> None:
    """Store a batch durably, in the place of what it was. Raises OSError."""
    document = {"stream": batch.stream, "number": batch.number, "claims": batch.claims}
    content = json.dumps(document, separators=(",", ":")) + "\n"
    tree.replace(path_of(tree, consumer, batch.name), content.encode())


def batches(tree: Tree, consumer: str, suffix: str = OPEN) -> Iterator[Batch]:
    """A consumer's batches, the first one first; what is none is passed over. Raises OSError."""
    names = [n for n in tree.names(folder_of(tree, consumer)) if n.endswith(suffix) and n[0] != "."]
    for name in sorted(names):
        batch = load(tree, consumer, name.removesuffix(suffix), suffix)
        if batch is not None:
            yield batch


def load(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> Batch | None:
    """One batch; None if it is not there or cannot be understood. Raises OSError."""
    try:
        return parse(tree, consumer, name, suffix)
    except (FileNotFoundError, ValueError):
        return None


def parse(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> Batch:
    """The same, but raises ValueError for what is no batch, FileNotFoundError, OSError."""
    document = json.loads(_read(tree, path_of(tree, consumer, name, suffix)))
    if not isinstance(document, dict):
        raise ValueError("a batch is a JSON object")
    stream, number, claims = (document.get(key) for key in ("stream", "number", "claims"))
    if not isinstance(stream, str) or type(number) is not int or not isinstance(claims, dict):
        raise ValueError("a batch has a stream, a number and claims")
    return Batch(name, stream, number, {q: [_claim(q, c) for c in of] for q, of in claims.items()})


def _claim(queue: str, stored: object) -> Claimed:
    match stored:
        case [str(message_id), int(size), int(deliveries)] if is_queue(queue) and is_id(message_id):
            return Claimed(message_id, size, deliveries)
    raise ValueError(f"{stored!r} is no claim in queue {queue!r}")


def _read(tree: Tree, path: str) -> bytes:
    fd = tree.open(path)
    try:
        parts = []
        while part := os.read(fd, _CHUNK_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
