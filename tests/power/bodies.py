"""Bodies that contain their key, so that torn, mixed and foreign ones are recognised."""

from __future__ import annotations

import random


class BrokenBody(Exception):
    """A body was not made by `make`."""


def make(key: str, size: int) -> bytes:
    """The body of a key: its name, its length, and bytes derived from both."""
    head = b"%s %d\n" % (key.encode(), size)
    return head + random.Random(f"{key} {size}").randbytes(size)


def key_of(body: bytes) -> str:
    """The key of a body. Raises BrokenBody if any byte is wrong."""
    head, _, _ = body[:100].partition(b"\n")
    try:
        key, size = head.decode().split(" ")
        whole = make(key, int(size))
    except ValueError:
        raise BrokenBody(f"{len(body)} bytes, beginning with {body[:40]!r}") from None
    if body != whole:
        raise BrokenBody(f"{len(body)} of {len(whole)} bytes of {key}, or others")
    return key
