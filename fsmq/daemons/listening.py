"""The sockets that mq listens on: for requests, and for a dialect's admin port."""

import errno
import socket
import time

from fsmq.daemons.process import logs
from fsmq.daemons.settings.options import MqOptions

log = logs.get_logger(__name__)
# How long to wait for a port that may soon be free.
_PATIENCE_S, _LOOK_S = 5.0, 0.02


def handed_down(options: MqOptions) -> list[socket.socket]:
    """The sockets from the service manager, which the supervisor shares with all processes."""
    numbers = options.listening.split(",") if options.listening else []
    return [socket.socket(fileno=int(number)) for number in numbers]


def listen(options: MqOptions) -> socket.socket:
    """The socket of requests. Waits for the port if it is in use: a killed mq may still be ending.

    Raises OSError.
    """
    end = time.monotonic() + _PATIENCE_S
    is_logged = False
    while True:
        try:
            return bind(options.address, options.port, shared=options.processes > 1)
        except OSError as error:
            if time.monotonic() >= end or error.errno != errno.EADDRINUSE:
                raise
        if not is_logged:
            log.info("waiting for the port", port=options.port, seconds=_PATIENCE_S)
            is_logged = True
        time.sleep(_LOOK_S)  # no event tells that a port is free


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
