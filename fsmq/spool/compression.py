"""Compression of bodies on disk: zlib, or Zstandard; the bytes themselves tell which.

A compressed body is marked by the flag ``.z`` in the id. Whoever reads one must not trust it: what
is small on disk may be meant to fill the memory.
"""

from __future__ import annotations

import zlib
from typing import Literal, get_args

import zstandard

Method = Literal["zlib", "zstd"]
METHODS: tuple[Method, ...] = get_args(Method)

# What a zstd frame begins with (RFC 8878); no zlib stream does (RFC 1950: FCHECK).
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# No body is unpacked to more than this, or than the server's own limit if that is larger.
MAX_PLAIN_BYTES = 64 * 1024 * 1024
_MAX_WINDOW = 1 << 27


def compress(body: bytes, method: Method) -> bytes:
    """The body in the compressed form."""
    if method == "zstd":
        return zstandard.ZstdCompressor().compress(body)
    return zlib.compress(body)


def decompress(packed: bytes, limit: int = MAX_PLAIN_BYTES) -> bytes | None:
    """The plain body; None for what is not compressed, is cut off, or would be above ``limit``.

    Never takes more memory than ``limit`` and a little.
    """
    try:
        if packed.startswith(ZSTD_MAGIC):
            return _from_zstd(packed, limit)
        stream = zlib.decompressobj()
        plain = stream.decompress(packed, limit + 1)
        return plain if stream.eof and len(plain) <= limit else None
    except (zlib.error, zstandard.ZstdError):
        return None


def _from_zstd(packed: bytes, limit: int) -> bytes | None:
    size = zstandard.get_frame_parameters(packed).content_size
    reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    if size == 0:
        return b""
    if size != zstandard.CONTENTSIZE_UNKNOWN:
        # What the frame promises is what gets allocated.
        return reader.decompress(packed) if size <= limit else None
    return reader.decompress(packed, max_output_size=limit)
