"""Bodies that tell who they are: a torn, mixed or foreign one is recognised by itself."""

from __future__ import annotations

import random


class BrokenBody(Exception):
    """What came out is no body that was made here."""


def make(key: str, size: int) -> bytes:
    """The body of a key: its name, its length, and bytes that follow from both."""
    head = b"%s %d\n" % (key.encode(), size)
    return head + random.Random(f"{key} {size}").randbytes(size)


def key_of(body: bytes) -> str:
    """Whose body it is. Raises BrokenBody if one byte is not as it was made."""
    head, _, _ = body[:100].partition(b"\n")
    try:
        key, size = head.decode().split(" ")
        whole = make(key, int(size))
    except ValueError:
        raise BrokenBody(f"{len(body)} bytes, beginning with {body[:40]!r}") from None
    if body != whole:
        raise BrokenBody(f"{len(body)} of {len(whole)} bytes of {key}, or others")
    return key
