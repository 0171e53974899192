"""A listening socket, from which connections are accepted while file descriptors are left.

When none is left, the servers of event loops drop connections, or retry without a pause. Here
connections wait in the kernel until a descriptor is free.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from .connection import Connection
from .serving import ProblemServer
from .tls_wire import TlsWire

log = logging.getLogger(__name__)
# After an accept that found no free descriptor.
_PAUSE_S = 0.25
# How many are accepted before other work has its turn.
_BATCH = 64
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts connections on one socket for a server.

    Each counts as open from the moment it is accepted: a client that is silent before its handshake
    uses as much as one that is silent after it.

    tls: for HTTPS, the context of each new connection, with ``handshake`` and ``shutdown``, the
        seconds that each may take.
    """

    def __init__(
        self,
        listening: socket.socket,
        server: ProblemServer,
        tls: Callable[[], ssl.SSLContext] | None = None,
        *,
        handshake: float | None = None,
        shutdown: float | None = None,
    ) -> None:
        self._socket = listening
        self._server = server
        self._tls = tls
        self._handshake, self._shutdown = handshake, shutdown
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[None]] = set()
        self._is_told = False

    def start(self, backlog: int) -> None:
        """Begin to listen."""
        self._socket.setblocking(False)
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more; clients that wait in the kernel are left to other processes, if any."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    async def begun(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until all accepted connections have their protocol."""
        if self._beginning:
            await asyncio.wait(self._beginning, timeout=timeout)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._wait(error)
                return
            self._is_told = False
            accepted.setblocking(False)
            beginning = self._loop.create_task(self._begin(accepted))
            self._beginning.add(beginning)
            beginning.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        # In the loop's next turn, when connections whose requests have arrived are no longer idle.
        connection = self._server()
        has_place = self._server.open_connections.take_in(connection)
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            elif has_place:
                await self._secure(connection, accepted, self._tls())
            else:
                accepted.close()  # to say why would take a handshake, for which there is no room
        except (OSError, asyncio.CancelledError):
            accepted.close()  # it has gone, its handshake failed, or another got its place
            self._server.open_connections.forget(connection)

    async def _secure(
        self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext
    ) -> None:
        connection.beginning = asyncio.current_task()
        turns = self._server.open_connections.handshakes
        wire = TlsWire(connection, tls, turns, handshake=self._handshake, shutdown=self._shutdown)
        try:
            await self._loop.connect_accepted_socket(lambda: wire, accepted)
            if not await wire.begun:
                raise ConnectionAbortedError("the handshake failed")
        except asyncio.CancelledError:
            wire.abort()
            raise
        finally:
            connection.beginning = None

    def _wait(self, error: OSError) -> None:
        if not self._is_told:
            log.warning("connections have to wait: %s", error.strerror)
            self._is_told = True
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._accept)
