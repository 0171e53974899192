"""What stands between mq and those who may not use it: keys, and where it listens without them."""

import ipaddress
import socket
from collections.abc import Sequence

from fsmq.daemons.logs import get_logger
from fsmq.daemons.options import MqOptions
from fsmq.http.access import Access
from fsmq.http.keys import KeysError, load
from fsmq.http.service import Service

log = get_logger(__name__)


class Protection:
    """The files that protect one process of mq, read at the start and again on SIGHUP."""

    def __init__(self, options: MqOptions, listening: Sequence[socket.socket]) -> None:
        """Read the files. Raises KeysError: the message says what to do about it."""
        self._keys = options.keys
        if options.keys is None and options.let_anyone_in == "no":
            _refuse_strangers(listening)
        self.access = Access(None if options.keys is None else load(options.keys))

    def reload(self, service: Service) -> None:
        """Read the files again; one that cannot be used changes nothing."""
        if self._keys is None:
            return
        try:
            service.take_keys(load(self._keys))
        except KeysError as error:
            log.error("the keys stay as they were", error=error)
        else:
            log.info("keys loaded", file=self._keys)


def _refuse_strangers(listening: Sequence[socket.socket]) -> None:
    for place in listening:
        if not _is_private(place):
            host, port = place.getsockname()[:2]
            raise KeysError(
                f"without keys everybody who reaches {host} port {port} could read and delete all"
                " messages: give --keys FILE, or --address=127.0.0.1 for this host alone, or let"
                " them with --let-anyone-in=yes"
            )


def _is_private(place: socket.socket) -> bool:
    """Whether only this host can connect, as far as the address tells."""
    if place.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(place.getsockname()[0].partition("%")[0]).is_loopback
