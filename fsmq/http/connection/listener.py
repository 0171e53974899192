"""A listening socket, from which connections are taken as long as there are descriptors for them.

The event loop's own server throws connections away when the last descriptor is used up, or asks for
them again and again without a pause. Here they wait in the kernel until there is one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl

from .connection import Connection
from .serving import ProblemServer
from .tls_wire import TlsWire

log = logging.getLogger(__name__)
# After an accept without a descriptor for it.
_PAUSE_S = 0.25
# So many are taken before others have their turn.
_BATCH = 64
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Takes connections from one socket for a server.

    Each has its place among the server's connections from the moment that it is accepted: who
    says nothing in place of a handshake takes up as much as who says nothing behind one.

    tls: for HTTPS, with ``handshake`` and ``shutdown``, seconds that those may take.
    """

    def __init__(
        self,
        listening: socket.socket,
        server: ProblemServer,
        tls: ssl.SSLContext | None = None,
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
        """Take no more; whoever waits in the kernel is another process's, or nobody's."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    async def begun(self, timeout: float) -> None:
        """Wait, for so many seconds, until what was taken is with its protocol."""
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
        # Not before this turn of the loop: a request that had come before is no idle connection's.
        connection = self._server()
        has_place = self._server.take_in(connection)
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            elif has_place:
                await self._secure(connection, accepted, self._tls)
            else:
                accepted.close()  # to say why would take a handshake: there is no place for one
        except (OSError, asyncio.CancelledError):
            accepted.close()  # it has gone, its handshake was none, or another got its place
            self._server.forget(connection)

    async def _secure(
        self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext
    ) -> None:
        connection.beginning = asyncio.current_task()
        wire = TlsWire(connection, tls, handshake=self._handshake, shutdown=self._shutdown)
        try:
            await self._loop.connect_accepted_socket(lambda: wire, accepted)
            if not await wire.begun:
                raise ConnectionAbortedError("the handshake was none")
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
