"""The connections of a client for threads, by urllib3."""

from __future__ import annotations

import os
import threading
import time

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from ..errors import ConnectionFailed
from ..exchange import Answer, Request
from ..options import Options

_CONNECT_S = 10.0


class Connections:
    """Connections to a server, made when needed and kept. Safe in threads, and after a fork."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tls = options.tls()
        self._lock = threading.Lock()
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._pid = 0

    def send(self, request: Request) -> Answer:
        """Send a request once. Raises ConnectionFailed."""
        where = self._options.origin
        try:
            response = self._opened().urlopen(
                request.method,
                request.path,
                body=request.body or None,
                headers={**self._options.headers, **request.headers},
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT_S, request.timeout), read=request.timeout
                ),
            )
        except SSLError as error:
            raise ConnectionFailed(f"{where}: {error}", maybe_done=False, lasting=True) from error
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise ConnectionFailed(f"{where}: {_reason(error)}", maybe_done=False) from error
        except ReadTimeoutError as error:
            silence = f"{where}: no answer within {request.timeout:g} seconds"
            raise ConnectionFailed(silence) from error
        except (HTTPError, OSError) as error:
            raise ConnectionFailed(f"{where}: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, headers, response.data)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.close()
            self._pool = None

    def _opened(self) -> urllib3.HTTPConnectionPool:
        with self._lock:
            # A child that shared its parent's connections would read the parent's answers.
            if self._pool is None or self._pid != os.getpid():
                self._pool = self._new_pool()
                self._pid = os.getpid()
            return self._pool

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        options = self._options
        if self._tls is None:
            return urllib3.HTTPConnectionPool(
                options.host, options.port, maxsize=options.connections
            )
        return urllib3.HTTPSConnectionPool(
            options.host, options.port, maxsize=options.connections, ssl_context=self._tls
        )


def _reason(error: HTTPError) -> str:
    """The operating system's reason, because urllib3's text is about its own objects."""
    cause = error.__cause__
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)
