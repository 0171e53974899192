"""How much memory the values of a JSON text may take, found out before it is parsed."""

from __future__ import annotations

from collections.abc import Iterable

from fsmq.spool.prepare import LARGE_BYTES

# What a small value takes in Python, and its place in the list that it stands in.
_BYTES_A_VALUE = 72
# At most once in so many bytes a sign is rare: to go from one to the next is quicker than to count.
_RARE_BYTES = 1024
_FEW_BYTES = 4096


def room_of_parts(parts: Iterable[bytes]) -> int:
    """The same as `room_of_json` for a text in parts."""
    return sum(map(room_of_json, parts))


def room_of_json(body: bytes) -> int:
    """How many bytes the values of a text may take: by the signs behind which one may follow."""
    if len(body) <= _FEW_BYTES:
        return (body.count(b",") + body.count(b"[") + body.count(b"{")) * _BYTES_A_VALUE
    # Part by part: what C does with a whole body nothing can interrupt.
    starts = range(0, len(body), LARGE_BYTES)
    return sum(_times(sign, body, at) for at in starts for sign in b",[{") * _BYTES_A_VALUE


def _times(sign: int, body: bytes, start: int) -> int:
    """How often a sign stands in one part of a body."""
    end = min(start + LARGE_BYTES, len(body))
    rare = (end - start) // _RARE_BYTES
    for number in range(rare):
        start = body.find(sign, start, end) + 1
        if not start:
            return number
    return rare + body.count(sign, start, end)
