"""Who may use mq: keys, TLS, and the addresses on which it listens without keys."""

import asyncio
import ipaddress
import resource
import socket
from collections.abc import Sequence
from pathlib import Path

from fsmq.daemons.process.filewatch import Version, version_of
from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.settings.options import MqOptions
from fsmq.daemons.tls import Certificate
from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import KeysError, load
from fsmq.http.guard.limits import Limits
from fsmq.http.service.service import Service

log = get_logger(__name__)
# Kept for messages that are being written or read, and for the process itself.
_SPARE_FILES = 256


class Protection:
    """The files that protect one process of mq: read at the start, on SIGHUP, when they change.

    access: who may do what.
    certificate: of the server, if it serves HTTPS.
    host_names: names that clients may use for mq besides localhost and IP addresses; None: any.
    """

    def __init__(self, options: MqOptions, listening: Sequence[socket.socket]) -> None:
        """Read the files. Raises KeysError: the message says what to do about it."""
        self._keys = options.keys
        self._tls = [f for f in (options.tls_cert, options.tls_key) if f is not None]
        # The versions that were read last, usable or not; taken before the reading, so that a file
        # that is replaced during it is read again.
        self._read = self._versions()
        self._unusable: set[str] = set()
        self._reloading = asyncio.Lock()  # so that what was read last counts
        if options.keys is None and options.let_anyone_in == "no":
            _refuse_strangers(listening)
        self.access = Access(None if options.keys is None else load(options.keys))
        self.host_names = _host_names(options, listening)
        self.certificate: Certificate | None = None
        if options.tls_cert is not None and options.tls_key is not None:
            self.certificate = Certificate(options.tls_cert, options.tls_key)
        elif options.keys is not None and not all(map(_is_private, listening)):
            log.warning("keys and messages cross the network in clear: see --tls-cert")

    @property
    def files(self) -> list[Path]:
        """All of the files."""
        return [*([self._keys] if self._keys is not None else []), *self._tls]

    async def reload(self, service: Service) -> None:
        """Read the files again; one that cannot be used changes nothing."""
        async with self._reloading:
            self._read = self._versions()
            await self._reload_keys(service)
            self._reload_certificate()

    async def reload_changed(self, service: Service) -> bool:
        """Read the files again that have changed; whether all files can be used."""
        async with self._reloading:
            before, self._read = self._read, self._versions()
            if self._keys is not None and self._read[self._keys] != before[self._keys]:
                await self._reload_keys(service)
            if any(self._read[file] != before[file] for file in self._tls):
                self._reload_certificate()
            return not self._unusable

    def _versions(self) -> dict[Path, Version]:
        return {file: version_of(file) for file in self.files}

    async def _reload_keys(self, service: Service) -> None:
        if self._keys is None:
            return
        try:
            # In a thread of its own: thousands of keys take half a second, and no work that fills
            # the other threads may delay the end of a key.
            service.take_keys(await asyncio.to_thread(load, self._keys))
        except KeysError as error:
            self._unusable.add("keys")
            log.error("the keys stay as they were", error=error)
        else:
            self._unusable.discard("keys")
            log.info("keys loaded", file=self._keys)

    def _reload_certificate(self) -> None:
        if self.certificate is None:
            return
        try:
            self.certificate.reload()
        except KeysError as error:
            self._unusable.add("certificate")
            log.error("the certificate stays as it was", error=error)
        else:
            self._unusable.discard("certificate")
            log.info("certificate loaded")


def _refuse_strangers(listening: Sequence[socket.socket]) -> None:
    for place in listening:
        if not _is_private(place):
            host, port = place.getsockname()[:2]
            raise KeysError(
                f"without keys everybody who reaches {host} port {port} could read and delete all"
                " messages: give --keys FILE, or --address=127.0.0.1 for this host alone, or let"
                " them with --let-anyone-in=yes"
            )


def limits_of(options: MqOptions) -> Limits:
    """The limits that the options set; fewer connections if fewer files may be open."""
    connections = min(options.max_connections, _files() - _SPARE_FILES)
    if connections < options.max_connections:
        log.warning("fewer connections than --max-connections", files=_files(), held=connections)
    return Limits(
        connections=connections,
        idle_timeout=options.idle_timeout,
        header_timeout=options.header_timeout,
        write_timeout=options.write_timeout,
        header_bytes=options.max_header_bytes,
        headers=options.max_headers,
        memory=options.max_body_memory,
        requests_per_key=options.max_requests_per_key,
        waiters_per_key=options.max_waiters_per_key,
        memory_per_key=options.max_body_memory_per_key,
    )


def _files() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def _host_names(options: MqOptions, listening: Sequence[socket.socket]) -> list[str] | None:
    # Checked against pages in browsers, which have no key to send and cannot reach a Unix socket.
    if options.keys is not None or all(place.family == socket.AF_UNIX for place in listening):
        return None
    names = options.host_names.split(",") if options.host_names else []
    return [*names, options.address]


def _is_private(place: socket.socket) -> bool:
    """Whether only this host can connect, as far as the address tells."""
    if place.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(place.getsockname()[0].partition("%")[0]).is_loopback
