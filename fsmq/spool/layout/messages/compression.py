"""Compression of bodies on disk by zlib or Zstandard; the first bytes show which.

A compressed body is marked by the flag ``.z`` in the id. Code that reads one must not trust it: a
small file can be made to fill the memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Literal, get_args

import zstandard

from ..steps import LARGE_BYTES, Steps, finish

Method = Literal["zlib", "zstd"]
METHODS: tuple[Method, ...] = get_args(Method)

# What a zstd frame begins with (RFC 8878); no zlib stream does (RFC 1950: FCHECK).
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# No body is unpacked to more than this, or than the server's own limit if that is larger.
MAX_PLAIN_BYTES = 64 * 1024 * 1024
_MAX_WINDOW = 1 << 27
_STEP_BYTES = 1024 * 1024


def compress(body: bytes, method: Method) -> bytes:
    """The compressed body."""
    if method == "zstd":
        return zstandard.ZstdCompressor().compress(body)
    return zlib.compress(body)


def decompress(packed: bytes, limit: int = MAX_PLAIN_BYTES) -> bytes | None:
    """The plain body; None if it is not compressed, is cut off, or would be larger than ``limit``.

    Never takes much more memory than ``limit``.
    """
    return finish(decompress_in(packed, limit, lambda size: None))


def decompress_in(packed: bytes, limit: int, need: Callable[[int], None]) -> Steps[bytes | None]:
    """The same in steps. ``need`` is called with the total size before memory is allocated."""
    try:
        if packed.startswith(ZSTD_MAGIC):
            return (yield from _from_zstd(packed, limit, need))
        return (yield from _from_zlib(packed, limit, need))
    except (zlib.error, zstandard.ZstdError):
        return None


def _from_zlib(packed: bytes, limit: int, need: Callable[[int], None]) -> Steps[bytes | None]:
    # Piece by piece, since zlib copies what it has not read yet; and into one place, since parts
    # would have to be joined.
    stream, plain = zlib.decompressobj(), BytesIO()
    size, step, at, data = 0, LARGE_BYTES, 0, b""
    while True:
        if not data:
            data = packed[at : at + LARGE_BYTES]
            at += len(data)
        most = min(size + step, limit + 1)
        need(most)
        size += plain.write(stream.decompress(data, most - size))
        if size > limit:
            return None
        if stream.eof:
            return plain.getvalue()
        if size < most and at == len(packed):
            return None  # it is truncated
        data = stream.unconsumed_tail
        step = _STEP_BYTES
        yield


def _from_zstd(packed: bytes, limit: int, need: Callable[[int], None]) -> Steps[bytes | None]:
    size = zstandard.get_frame_parameters(packed).content_size
    if size == 0:
        return b""
    if size == zstandard.CONTENTSIZE_UNKNOWN:
        size = limit
    elif size > limit:
        return None
    # The library allocates the size that the frame states.
    need(size)
    if size > LARGE_BYTES:
        yield
    reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    return reader.decompress(packed, max_output_size=size)
