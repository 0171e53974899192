"""The limits of one process of mq; needs no HTTP library, so command lines start quickly."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one process; those ``per_key`` apply if there is a file of keys.

    Attributes:
        connections: that may be open; beyond that, the oldest idle one is closed.
        idle_timeout: seconds that a connection is kept without a request.
        header_timeout: seconds from the first byte of a request's head to its last.
        write_timeout: seconds that a client may take to read a part of an answer.
        header_bytes: of the whole head of a request.
        headers: fields of a request.
        memory: bytes of the bodies of all requests and answers that are held.
        requests_per_key: that may be open.
        waiters_per_key: requests that may wait for a message.
        memory_per_key: as ``memory``.
    """

    connections: int = 10_000
    idle_timeout: float = 75.0
    header_timeout: float = 10.0
    write_timeout: float = 30.0
    header_bytes: int = 128 * 1024
    headers: int = 128
    memory: int = 256 * _MIB
    requests_per_key: int = 8192
    waiters_per_key: int = 5000
    memory_per_key: int = 128 * _MIB
