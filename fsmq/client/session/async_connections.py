"""The connections of a client on an event loop, by aiohttp."""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from ..errors import ConnectionFailed
from ..exchange import Answer, Request
from ..options import Options

_CONNECT_S = 10.0
# Less than the 75 s after which mq closes an idle connection.
_KEEPALIVE_S = 60.0


class AsyncConnections:
    """Connections to a server, made when needed and kept, on one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tls = options.tls()
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Answer:
        """Send a request once. Raises ConnectionFailed."""
        where = self._options.origin
        try:
            async with self._opened().request(
                request.method,
                URL(where + request.path, encoded=True),
                data=request.body or None,
                headers=request.headers,
                allow_redirects=False,
                middlewares=(_Once(),),
                timeout=aiohttp.ClientTimeout(
                    sock_connect=min(_CONNECT_S, request.timeout), sock_read=request.timeout
                ),
            ) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, headers, await response.read())
        except (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError) as error:
            raise ConnectionFailed(f"{where}: {error}", maybe_done=False, lasting=True) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailed(f"{where}: {error}", maybe_done=False) from error
        except TimeoutError as error:
            silence = f"{where}: no answer within {request.timeout:g} seconds"
            raise ConnectionFailed(silence) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(f"{where}: {error}") from error

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._options.connections,
                keepalive_timeout=_KEEPALIVE_S,
                ssl=self._tls if self._tls is not None else True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._options.headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class _Once:
    """Keeps aiohttp from sending a request again by itself.

    It would do so silently with GET and DELETE when a connection breaks; but the meaning of an
    answer depends on whether an earlier try may have been carried out.
    """

    def __init__(self) -> None:
        self._sent = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if self._sent:
            raise aiohttp.ServerDisconnectedError
        self._sent = True
        return await handler(request)
