"""Rebalancing: how many messages go from which shard to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

# By source and target: how many messages moved.
Moves: TypeAlias = dict[tuple[str, str], int]


def plan(sizes: Mapping[str, int], targets: Sequence[str]) -> list[tuple[str, str, int]]:
    """Moves (source, target, count) that spread all messages evenly over the targets.

    No shard is both source and target, so no message moves twice.
    """
    total = sum(sizes.values())
    order = sorted(targets, key=lambda shard: (-sizes.get(shard, 0), shard))
    share, more = divmod(total, len(order))
    # The remainder stays on the fullest ones.
    wanted = {shard: share + (number < more) for number, shard in enumerate(order)}
    surplus = {
        shard: size - wanted.get(shard, 0)
        for shard, size in sorted(sizes.items())
        if size > wanted.get(shard, 0)
    }
    moves = []
    for target in order:
        missing = wanted[target] - sizes.get(target, 0)
        for source in list(surplus):
            count = min(missing, surplus[source])
            if count <= 0:
                continue
            moves.append((source, target, count))
            surplus[source] -= count
            missing -= count
    return moves
