"""The reservation of a given id among several queues: no two callers put it in two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..context import Context
from ..durability.locks import patiently, reserve
from ..errors import Unavailable, as_unavailable
from ..layout.given_ids import link_name

_PATIENCE_S = 5.0


@contextmanager
def reserved_among(context: Context, queues: Sequence[str], given_id: str) -> Iterator[None]:
    """Reserve an id under the part that the names of the queues have before their last ``@``.

    Raises Unavailable.
    """
    names = {queue.rpartition("@")[0] or queue for queue in queues}
    with as_unavailable(f"cannot reserve the id {given_id!r}"):
        held = patiently(
            lambda: reserve(context.tree, min(names), link_name(given_id)), _PATIENCE_S
        )
    if held is None:
        raise Unavailable(f"another put of the id {given_id!r} is under way")
    try:
        yield
    finally:
        with as_unavailable("cannot free a reservation"):
            held.free()
