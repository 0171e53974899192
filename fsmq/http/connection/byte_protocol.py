"""The interface of what receives a connection's bytes instead of aiohttp."""

from __future__ import annotations

from typing import Protocol


class ByteProtocol(Protocol):
    """Receives a connection's bytes, and its end, instead of aiohttp."""

    def more(self, data: bytes) -> bytes:
        """Take bytes that have arrived; returns those that it does not want."""

    def gone(self) -> None:
        """The client has hung up."""

    def enforce_timeouts(self) -> None:
        """End what takes too long; called periodically."""

    def outlives_sending(self) -> bool:
        """Whether it goes on after the client's end of file, which can mean that it hung up."""
