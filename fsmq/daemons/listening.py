"""The sockets that mq listens on: for requests, and for a dialect's admin port."""

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable

from fsmq.daemons.process import logs
from fsmq.daemons.process.notify import received_from_us
from fsmq.daemons.settings.options import MqOptions

log = logs.get_logger(__name__)
_LAST_PORT = 65_535
_MOST_PROCESSES = 256
# Only Linux tells who sent a datagram, and has sockets with names but no files.
CAN_YIELD = hasattr(socket, "SO_PASSCRED")
# How long to wait for a port that may soon be free.
_PATIENCE_S, _LOOK_S = 5.0, 0.02


def handed_down(options: MqOptions) -> list[socket.socket]:
    """The sockets from the service manager, which the supervisor shares with all processes."""
    numbers = options.listening.split(",") if options.listening else []
    return [socket.socket(fileno=int(number)) for number in numbers]


def listen_admin(
    options: MqOptions, asked: int | None, listening: list[socket.socket]
) -> socket.socket | None:
    """The socket of a dialect's admin port; None if there is to be none, or the default is in use.

    asked: the port that the operator named; 0: none; None: the default.

    Raises OSError.
    """
    port = _next_port(options, listening) if asked is None else asked
    if not port:
        return None
    try:
        return bind(options.address, port, shared=options.processes > 1)
    except OSError as error:
        if asked is not None:
            raise
        log.warning("the admin port is not served", port=port, error=error.strerror)
        return None


def _next_port(options: MqOptions, listening: list[socket.socket]) -> int:
    """The port after that of requests; 0 if there is none."""
    if not options.port:
        return 0
    ports = [s.getsockname()[1] for s in listening if s.family != socket.AF_UNIX]
    return ports[0] + 1 if ports and ports[0] < _LAST_PORT else 0


def listen(options: MqOptions) -> socket.socket:
    """The socket of requests. Waits for the port if it is in use: a killed mq may still be ending,
    and another may have it as its default admin port, which it gives up.

    Raises OSError.
    """
    end = time.monotonic() + _PATIENCE_S
    is_logged = False
    while True:
        # Before binding, because processes that share a port would share it with the other mq.
        is_heard = _ask_for(options.port)
        is_over = time.monotonic() >= end
        try:
            if is_over or not is_heard:
                return bind(options.address, options.port, shared=options.processes > 1)
        except OSError as error:
            if is_over or error.errno != errno.EADDRINUSE:
                raise
        if not is_logged:
            log.info("waiting for the port", port=options.port, seconds=_PATIENCE_S)
            is_logged = True
        time.sleep(_LOOK_S)  # no event tells that a port is free


class Yielding:
    """Gives up a default admin port to another mq that was told to listen there.

    The other mq asks for it with a datagram. stop: stops serving the port.
    """

    def __init__(self, port: int, process: int, stop: Callable[[], Awaitable[None]]) -> None:
        self._port = port
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._asked.setblocking(False)
        self._asked.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self._asked.bind(_yields(port, process))
        except OSError:
            return  # another process on this port has the name, and answers for itself
        self._loop.add_reader(self._asked, self._hear)

    def close(self) -> None:
        if self._asked.fileno() >= 0:
            self._loop.remove_reader(self._asked)
            self._asked.close()

    def _hear(self) -> None:
        if received_from_us(self._asked) and self._ending is None:
            log.warning(
                "the admin port is given to another mq, which listens there", port=self._port
            )
            self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        await self._stop()
        self.close()


def _yields(port: int, process: int) -> str:
    return f"\0fsmq-admin-{port}-{process}"


def _ask_for(port: int) -> bool:
    """Ask for a port where it is a default admin port; whether any process still has it so."""
    if not CAN_YIELD:
        return False
    is_heard = False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        for process in range(_MOST_PROCESSES):
            try:
                asking.sendto(b"YIELD=1", _yields(port, process))
                is_heard = True
            except BlockingIOError:
                is_heard = True
            except OSError:
                continue  # there is no such process
    return is_heard


def bind(address: str, port: int, shared: bool = True) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(where)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def url(listening: socket.socket, tls: bool = False) -> str:
    name = listening.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[0], name[1]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
