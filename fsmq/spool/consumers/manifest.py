"""Manifests: the batches of consumers, as files ``consumers/<name>/<batch>.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..layout import documents
from ..layout.names import UUID7, check_id, is_queue
from ..layout.stamps import MAX_COUNT
from ..layout.transitions import CONSUMERS
from ..layout.tree import Tree
from .claims import Claimed, Renewals
from .identity import Identity, identify

LOCK, OPEN, DONE = ".lock", ".json", ".done"
NAME = rf"{UUID7}(?:\{OPEN}|\{DONE})"
_MOST_RENEWALS = 100
# A million claims with the longest ids take half of it.
_MAX_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that were claimed at once.

    name: a UUIDv7, the same each time the batch is given out. stream, number: its place in a
    program's numbering. claims: by queue, in order. renewals: further deadlines that renewals of
    the claims may have set.
    """

    name: str
    stream: str
    number: int
    claims: Mapping[str, list[Claimed]]
    renewals: Renewals = field(default=(), compare=False)

    def __len__(self) -> int:
        return sum(map(len, self.claims.values()))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(claim.size for claims in self.claims.values() for claim in claims)

    @property
    def ids(self) -> dict[str, list[str]]:
        """The messages of each queue."""
        return {queue: [claim.id for claim in claims] for queue, claims in self.claims.items()}

    @property
    def counts(self) -> list[int]:
        """The deliveries of all claims."""
        return [claim.deliveries for claims in self.claims.values() for claim in claims]

    def parts(self, size: int) -> Iterator[tuple[str, list[Claimed]]]:
        """Claims of one queue each, at most ``size`` of them."""
        for queue, claims in self.claims.items():
            for start in range(0, len(claims), size):
                yield queue, claims[start : start + size]

    def with_claims(self, queue: str, claims: list[Claimed]) -> Batch:
        """The same with other claims for one queue."""
        return replace(self, claims={**self.claims, queue: claims})

    def with_renewals(self, renewals: Iterable[int]) -> Batch:
        """The same with more deadlines that renewals may have set.

        Very old ones are forgotten: claims that were not renewed for so long are over.
        """
        return replace(self, renewals=[*self.renewals[-_MOST_RENEWALS:], *renewals])


def by_queue(pairs: Iterable[tuple[str, Claimed]]) -> dict[str, list[Claimed]]:
    """Claims with their queues, by queue."""
    found: dict[str, list[Claimed]] = {}
    for queue, claim in pairs:
        found.setdefault(queue, []).append(claim)
    return found


def folder_of(tree: Tree, consumer: str) -> str:
    return tree.folder(CONSUMERS, consumer)


def path_of(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> str:
    return f"{folder_of(tree, consumer)}/{name}{suffix}"


def save(tree: Tree, consumer: str, batch: Batch) -> None:
    """Store a batch durably, replacing its earlier version. Raises OSError."""
    document = {
        "stream": batch.stream,
        "number": batch.number,
        "home": _home(tree, consumer),
        "renewals": batch.renewals,
        "claims": batch.claims,
    }
    content = json.dumps(document, separators=(",", ":")) + "\n"
    tree.replace(path_of(tree, consumer, batch.name), content.encode())


def batches(tree: Tree, consumer: str, suffix: str = OPEN) -> Iterator[Batch]:
    """A consumer's batches, oldest first; skips files that are not batches. Raises OSError."""
    for name in names_of(tree, consumer, suffix):
        batch = load(tree, consumer, name, suffix)
        if batch is not None:
            yield batch


def names_of(tree: Tree, consumer: str, suffix: str = OPEN) -> list[str]:
    """The names of a consumer's batch files, oldest first. Raises OSError."""
    names = [n for n in tree.names(folder_of(tree, consumer)) if n.endswith(suffix) and n[0] != "."]
    return sorted(name.removesuffix(suffix) for name in names)


def load(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> Batch | None:
    """One batch; None if it is not there or does not parse. Raises OSError."""
    try:
        return parse(tree, consumer, name, suffix)
    except (FileNotFoundError, ValueError):
        return None


def parse(tree: Tree, consumer: str, name: str, suffix: str = OPEN) -> Batch:
    """The same, but raises ValueError if the file is not a batch, FileNotFoundError, OSError."""
    document = documents.read(tree, path_of(tree, consumer, name, suffix), _MAX_BYTES)
    members = "stream", "number", "claims", "renewals"
    stream, number, claims, renewals = (document.get(key) for key in members)
    if not isinstance(stream, str) or type(number) is not int or not isinstance(claims, dict):
        raise ValueError("a batch has a stream, a number and claims")
    if not isinstance(renewals, list) or any(type(one) is not int for one in renewals):
        raise ValueError("renewals is not a list of deadlines")
    # In a copied tree all files have other identities.
    is_copied = document.get("home") != list(_home(tree, consumer))
    found = {queue: _claims(queue, of, is_copied) for queue, of in claims.items()}
    return Batch(name, stream, number, found, renewals)


def _claims(queue: str, stored: object, is_copied: bool) -> list[Claimed]:
    if not is_queue(queue) or not isinstance(stored, list):
        raise ValueError(f"{queue[:200]!r} is not a queue with a list of claims")
    return [_claim(queue, claim, is_copied) for claim in stored]


def _claim(queue: str, stored: object, is_copied: bool) -> Claimed:
    match stored:
        case [str(message_id), int(size), int(deliveries), int(deadline_ms), *identity] if (
            0 <= deliveries <= MAX_COUNT
        ):
            claim = Claimed(check_id(queue, message_id), size, deliveries, deadline_ms)
            match [] if is_copied else identity:
                case []:
                    return claim
                case [int(inode), int(generation)]:
                    return claim._replace(inode=inode, generation=generation)
    raise ValueError(f"{str(stored)[:200]} is not a claim in queue {queue!r}")


def _home(tree: Tree, consumer: str) -> Identity:
    """The identity of a consumer's folder."""
    fd = tree.open_folder(folder_of(tree, consumer))
    try:
        return identify(fd)
    finally:
        os.close(fd)
