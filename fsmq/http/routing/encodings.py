"""Content encodings: bodies that a client has compressed are decompressed before they are stored.

Done here and not by aiohttp, which accepts truncated streams, and takes a body in an unknown
encoding for a plain one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from fsmq.spool.errors import MessageTooLarge

from ..problems import ENCODINGS, UnreadableBody, UnsupportedEncoding

_GZIP, _ZLIB, _DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_PART_BYTES = 256 * 1024
# How many bytes are decompressed at once: at the end of a stream, zlib copies the rest of them.
_PACKED_BYTES = 8 * 1024
# More than the largest body has if each block of 64 KiB is compressed separately.
_MOST_STREAMS = 4096
_METHOD = 0x0F  # the bits of a zlib stream's first byte that say "deflate"
_METHOD_DEFLATE = 0x08
# RFC 9110, section 8.4.1.3: an older name means the same.
_OTHER_NAMES = {"x-gzip": "gzip"}


class Decoder:
    """Decodes one encoding, piece by piece; the result has at most ``limit`` bytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding = encoding
        self._limit = limit
        self._size = 0
        self._streams = 0
        self._stream: zlib._Decompress | None = None

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """Decode these bytes, in parts of at most 256 KiB.

        Raises:
            MessageTooLarge, UnreadableBody
        """
        for at in range(0, len(packed), _PACKED_BYTES):
            yield from self._feed(packed[at : at + _PACKED_BYTES])

    def _feed(self, data: bytes) -> Iterator[bytes]:
        is_cut = False  # whether zlib has more output, even if no data is left
        while data or is_cut:
            if self._stream is None or (self._stream.eof and self._encoding == "gzip"):
                self._stream = self._begin(data[0])  # gzip allows one stream after another
            if self._stream.eof:
                raise UnreadableBody("something follows the end of the compressed body")
            try:
                most = min(_PART_BYTES, self._limit + 1 - self._size)
                part = self._stream.decompress(data, most)
            except zlib.error as error:
                raise UnreadableBody(f"the body is not {self._encoding}: {error}") from None
            self._size += len(part)
            if self._size > self._limit:
                raise MessageTooLarge(None, self._limit)
            yield part
            is_cut = len(part) == most and not self._stream.eof
            data = self._stream.unconsumed_tail or self._stream.unused_data

    def finish(self) -> None:
        """Check that the stream is complete. Raises UnreadableBody."""
        if self._stream is None or not self._stream.eof:
            raise UnreadableBody("the compressed body ends too early")

    def _begin(self, first_byte: int) -> zlib._Decompress:
        self._streams += 1
        if self._streams > _MOST_STREAMS:
            raise UnreadableBody(f"the body has more than {_MOST_STREAMS} compressed streams")
        if self._encoding == "gzip":
            return zlib.decompressobj(_GZIP)
        # "deflate" means zlib's format, but some clients send the bare stream.
        is_zlib = first_byte & _METHOD == _METHOD_DEFLATE
        return zlib.decompressobj(_ZLIB if is_zlib else _DEFLATE)


def decoder(encodings: Sequence[str], limit: int) -> Decoder | None:
    """A decoder for the values of Content-Encoding; None if the body is not encoded.

    Raises:
        UnsupportedEncoding
    """
    named = ", ".join(encodings).strip().lower()
    encoding = _OTHER_NAMES.get(named, named)
    if encoding in ("", "identity"):
        return None
    if encoding not in ENCODINGS:
        raise UnsupportedEncoding(encoding)
    return Decoder(encoding, limit)
