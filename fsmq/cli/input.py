"""What verbs read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

# What one read of a file brings; of a pipe it is what stands in it, so that nothing waits there.
_CHUNK = 1 << 20


def parts_of(source: BinaryIO, separator: bytes, at_most: int) -> Iterator[list[bytes]]:
    """The pieces of what comes, as soon as they have come, ``at_most`` so many at a time."""
    rest = [b""]
    while chunk := os.read(source.fileno(), _CHUNK):
        first, *whole = chunk.split(separator)
        rest.append(first)
        if whole:
            found = [b"".join(rest), *whole[:-1]]
            rest = [whole[-1]]
            yield from (found[at : at + at_most] for at in range(0, len(found), at_most))
    if last := b"".join(rest):
        yield [last]
