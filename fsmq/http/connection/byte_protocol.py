"""What a connection gives its bytes to, in the place of aiohttp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .connection import Connection


class ByteProtocol(Protocol):
    """What a connection's bytes and its end go to, in the place of aiohttp."""

    def more(self, data: bytes) -> bytes:
        """Bytes have come; those that are not for it."""

    def gone(self) -> None:
        """The client has hung up."""

    def look_after(self) -> None:
        """See to it that nothing takes too long; called now and then."""

    def outlives_sending(self) -> bool:
        """Whether it goes on where the client sends no more, which may have hung up."""


class FastPath(Protocol):
    """What may take a request before aiohttp sees it: `fsmq.http.fast_path`."""

    def take(self, connection: Connection, data: bytes) -> bool:
        """Become the protocol of a connection for the request in ``data``; False to leave it."""
