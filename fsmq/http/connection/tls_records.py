"""The records in which TLS arrives: how many there are, and whether a hello fits into one.

OpenSSL tells nothing of records without content, each of which can cost as much as a small request:
64 KiB of updates of keys hold up the loop for 0.1 s. And it allocates a message of the handshake as
soon as its length is known: 128 KiB for a hello of which nine bytes have come.
"""

from __future__ import annotations

# How much goes through the BIOs of TLS at once: one record. They never shrink.
PART_BYTES = 16 * 1024
_PART_RECORDS = 32
# How many records of a connection may have no content: those of its handshake, and updates of keys,
# which clients make every few gigabytes.
MOST_EMPTY = 256
_HEADER, _LENGTH = 5, 3  # bytes, and where in them the length is
_HANDSHAKE = 22
# What a hello in a record begins with: the header, its type, and its length.
_HELLO = 9


class Records:
    """The records that a client sends.

    number: how many have begun. expects_hello: whether the next message of the handshake is a
    hello, which is not encrypted. is_bad: whether a hello does not fit into its record. No client
    sends such a one, though it would be valid.
    """

    __slots__ = ("_beginning", "_left", "_size", "expects_hello", "is_bad", "number")

    def __init__(self) -> None:
        self.number = 0
        self.expects_hello = True
        self.is_bad = False
        self._beginning = b""  # of the next record, as far as it has come
        self._size = 0  # how long that will be
        self._left = 0  # of the current one

    def end_of_next(self, data: memoryview, at: int) -> int:
        """Where the part of ``data`` ends that begins at ``at``: few records, and few bytes."""
        end = min(len(data), at + PART_BYTES)
        most = self.number + _PART_RECORDS
        while at < end and self.number < most and not self.is_bad:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
            else:
                at = self._begin(data, at, end)
        return at

    def _begin(self, data: memoryview, at: int, end: int) -> int:
        """Read the beginning of a record; where it ends, or the data."""
        if not self._beginning:
            is_hello = self.expects_hello and data[at] == _HANDSHAKE
            self._size = _HELLO if is_hello else _HEADER
        taken = min(self._size - len(self._beginning), end - at)
        self._beginning += data[at : at + taken]
        if len(self._beginning) == self._size:
            header, message = self._beginning[:_HEADER], self._beginning[_HEADER:]
            length = int.from_bytes(header[_LENGTH:], "big")
            if message:
                self.is_bad = len(message) + int.from_bytes(message[1:], "big") > length
            self.number += 1
            self._left = max(0, length - len(message))
            self._beginning = b""
        return at + taken
