"""The client for event loops: aiohttp carries the requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from fsmq.spool.claimed import AsyncClaimed, AsyncClaimsOne, id_of
from fsmq.spool.given import (
    JSON_TYPE,
    Body,
    Delay,
    as_new_message,
    json_of,
    new_message,
    seconds_of,
)
from fsmq.spool.layout.message import Message, NewMessage
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.transitions import State
from fsmq.spool.views.counts import Counts

from .errors import ConnectionFailed
from .exchange import Answer, Pause, Request, Verb
from .handlers import Claim, Pace, on_loop
from .options import Options
from .topics import AsyncClientTopic, TopicVerbs
from .verbs import Verbs
from .worker import AsyncWorker

T = TypeVar("T")
_CONNECT_S = 10.0
# Less than the 75 s after which mq closes an idle connection.
_KEEPALIVE_S = 60.0


class AsyncClient:
    """The queues of a server, for coroutines; otherwise as :class:`fsmq.Client`.

    >>> async with AsyncClient("http://127.0.0.1:8080") as client:
    ...     await client.queue("jobs").put(b"hello")

    Use it on one event loop, and close it there.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: str | Path | ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        connections: int = 100,
    ) -> None:
        self._begin(Options(url, key, ca, timeout, retry_for, connections))

    @classmethod
    def of(cls, options: Options) -> AsyncClient:
        """A client with the options of another."""
        client = cls.__new__(cls)
        client._begin(options)
        return client

    def _begin(self, options: Options) -> None:
        self.options = options
        self.verbs = Verbs(options)
        self._tls = options.tls()
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.options.origin}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; another request would open one again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- queues ----------------------------------------------------------------------------------

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name. Asks the server nothing, and creates nothing."""
        return AsyncQueue(self, name)

    async def queues(self) -> list[str]:
        """See :meth:`fsmq.Client.queues`."""
        return await self.run(self.verbs.queues())

    async def has_queue(self, name: str) -> bool:
        return await self.run(self.verbs.has_queue(name))

    async def create_queue(self, name: str) -> bool:
        """See :meth:`fsmq.Client.create_queue`."""
        return await self.run(self.verbs.create_queue(name))

    async def delete_queue(self, name: str) -> None:
        """See :meth:`fsmq.Client.delete_queue`."""
        await self.run(self.verbs.delete_queue(name))

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, name: str) -> AsyncClientTopic:
        """See :meth:`fsmq.Client.topic`."""
        return AsyncClientTopic(self, name)

    async def topics(self) -> list[str]:
        """See :meth:`fsmq.Client.topics`."""
        return await self.run(TopicVerbs(self.verbs).topics())

    # -- transport -------------------------------------------------------------------------------

    async def run(self, verb: Verb[T]) -> T:
        """Drive a verb to its result."""
        answer: Answer | None = None
        failed: ConnectionFailed | None = None
        while True:
            try:
                asked = verb.send(answer) if failed is None else verb.throw(failed)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = failed = None
            if isinstance(asked, Pause):
                await asyncio.sleep(asked.seconds)
                continue
            try:
                answer = await self._send(asked)
            except ConnectionFailed as error:
                failed = error

    async def _send(self, request: Request) -> Answer:
        where = self.options.origin
        try:
            async with self._connected().request(
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

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self.options.connections,
                keepalive_timeout=_KEEPALIVE_S,
                ssl=self._tls if self._tls is not None else True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self.options.headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class _Once:
    """Keeps aiohttp from sending a request again by itself.

    It would do so with GET and DELETE when a connection breaks, and tell nobody; but whether an
    earlier try may have been carried out is what the meaning of the next answer hangs on.
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


class AsyncQueue(AsyncClaimsOne):
    """One queue of a server, for coroutines; otherwise as :class:`~fsmq.client.ClientQueue`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = client.verbs

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name!r} of {self.client.options.origin}>"

    async def settings(self) -> QueueSettings:
        return await self._run(self._verbs.settings(self.name))

    async def configure(self, **changes: Any) -> QueueSettings:
        """Change settings, e.g. ``configure(visibility_timeout=60)``."""
        return await self._run(self._verbs.configure(self.name, changes))

    async def put(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str:
        """Put one message; its id. See :class:`~fsmq.NewMessage` for the arguments."""
        message = new_message(body, delay, priority, ttl, id, content_type, attributes)
        return await self._run(self._verbs.put(self.name, message))

    async def put_json(
        self,
        value: Any,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str:
        """Put one message whose body is the JSON of ``value``; its id.

        Its content type is ``application/json``. Otherwise as ``put``.
        """
        return await self.put(
            json_of(value),
            delay=delay,
            priority=priority,
            ttl=ttl,
            id=id,
            content_type=JSON_TYPE,
            attributes=attributes,
        )

    async def put_many(self, messages: Iterable[Body | NewMessage]) -> list[str]:
        """Put many messages; their ids in the same order. Durable in parts of at most 250."""
        return await self._run(self._verbs.put_many(self.name, map(as_new_message, messages)))

    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[AsyncClaimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        Cancelled while it waits, it takes no message with it (in rare moments one, which comes back
        at its deadline).
        """
        messages = await self._run(self._verbs.claim(self.name, count, visibility, wait))
        return AsyncClaimed.all(self, messages)

    async def renew(self, message: Message | str, visibility: float | None = None) -> float:
        """Hold a message for ``visibility`` seconds from now; the new deadline in Unix seconds."""
        return await self._run(self._verbs.renew(self.name, id_of(message), visibility))

    async def release(self, message: Message | str, delay: Delay = 0.0) -> None:
        """Give a message back, at once or after ``delay`` seconds. Raises NoSuchMessage."""
        await self._run(self._verbs.release(self.name, id_of(message), seconds_of(delay)))

    async def bury(self, message: Message | str) -> None:
        """Send a claimed message to the dead-letter queue now, with its count started again."""
        await self._run(self._verbs.bury(self.name, id_of(message)))

    async def ack(self, *messages: Message | str) -> int:
        """Acknowledge claimed messages, or ids of them: the work is done; how many were there."""
        return await self.remove(*messages)

    async def remove(self, *messages: Message | str) -> int:
        """Remove messages, or ids of them, in whatever state they are; how many were there."""
        return sum(await self.remove_each(messages))

    async def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages, or ids of them; for each whether it was there."""
        ids = [id_of(message) for message in messages]
        return await self._run(self._verbs.remove_each(self.name, ids))

    async def purge(self) -> None:
        """Remove all messages."""
        await self._run(self._verbs.purge(self.name))

    async def peek(
        self, limit: int = 10, *, state: State | str = State.READY, after: str = ""
    ) -> list[Message]:
        """Look at up to ``limit`` messages in one state, without claiming them."""
        return await self._run(self._verbs.peek(self.name, limit, state, after))

    async def find(self, message_id: str) -> Message | None:
        """Look at one message in whatever state; None if there is none."""
        return await self._run(self._verbs.find(self.name, message_id))

    async def counts(self) -> Counts:
        """How many messages are new, ready, in flight and delayed."""
        return await self._run(self._verbs.counts(self.name))

    async def delete(self) -> None:
        """Delete the queue and all its messages."""
        await self.client.delete_queue(self.name)

    def worker(
        self,
        handler: Callable[[Message, Claim], Awaitable[object]],
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        back_off: float = 1.0,
        max_back_off: float = 300.0,
        stop_timeout: float = 30.0,
    ) -> AsyncWorker:
        """A worker that awaits ``handler(message, claim)`` for each message.

        See :class:`~fsmq.client.worker.AsyncWorker`.
        """
        pace = Pace(concurrency, visibility, back_off, max_back_off, stop_timeout)
        return AsyncWorker(self, on_loop(handler), pace)
