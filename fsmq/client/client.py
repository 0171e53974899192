"""The client for threads: urllib3 carries the requests, and sleeping is sleeping."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from fsmq.spool.claimed import Claimed, ClaimsOne, id_of
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
from .options import Options
from .verbs import Verbs

if TYPE_CHECKING:
    from .blocking_worker import Worker
    from .handlers import Claim
    from .topics import ClientTopic

T = TypeVar("T")
_CONNECT_S = 10.0


class Client:
    """The queues of a server, with the words of the embedded library.

    >>> with Client("http://127.0.0.1:8080") as client:
    ...     jobs = client.queue("jobs")
    ...     jobs.put(b"hello")

    url: the server, such as ``http://host:8080``; a path in it stands before all paths.
    key: sent as a bearer token; None takes that of the environment variable FSMQ_KEY, if any.
    ca: a file of the authorities that may have signed the server's certificate, or an SSLContext;
        None takes those of the system.
    timeout: seconds of silence after which an answer is given up (a claim's wait comes on top).
    retry_for: seconds for which a request is tried again while the server cannot be reached or
        says 503; longer pauses between tries each time, and as long as the server asks for.
    connections: how many are kept open at most.

    Connections are made when needed and kept. Safe in threads, and after a fork.
    All methods raise :class:`~fsmq.FsmqError`: the errors of the library, and ConnectionFailed when
    no answer came, AccessDenied, UnexpectedAnswer.
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
        self.options = Options(url, key, ca, timeout, retry_for, connections)
        self.verbs = Verbs(self.options)
        self._lock = threading.Lock()
        self._tls = self.options.tls()
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._pid = 0

    def __repr__(self) -> str:
        return f"<Client of {self.options.origin}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; another request would open one again."""
        with self._lock:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.close()
            self._pool = None

    # -- queues ----------------------------------------------------------------------------------

    def queue(self, name: str) -> ClientQueue:
        """A queue by its name. Asks the server nothing, and creates nothing."""
        return ClientQueue(self, name)

    def queues(self) -> list[str]:
        """The names of all queues that this client may see, sorted."""
        return self.run(self.verbs.queues())

    def has_queue(self, name: str) -> bool:
        return self.run(self.verbs.has_queue(name))

    def create_queue(self, name: str) -> bool:
        """Create a queue durably; False if it was there."""
        return self.run(self.verbs.create_queue(name))

    def delete_queue(self, name: str) -> None:
        """Delete a queue and all its messages. Raises NoSuchQueue."""
        self.run(self.verbs.delete_queue(name))

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, name: str) -> ClientTopic:
        """A topic by its name. Asks the server nothing, and creates nothing."""
        from .topics import ClientTopic

        return ClientTopic(self, name)

    def topics(self) -> list[str]:
        """The names of all topics that this client may see, sorted."""
        from .topics import TopicVerbs

        return self.run(TopicVerbs(self.verbs).topics())

    # -- transport -------------------------------------------------------------------------------

    def run(self, verb: Verb[T]) -> T:
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
                time.sleep(asked.seconds)
                continue
            try:
                answer = self._send(asked)
            except ConnectionFailed as error:
                failed = error

    def _send(self, request: Request) -> Answer:
        where = self.options.origin
        try:
            response = self._connections().urlopen(
                request.method,
                request.path,
                body=request.body or None,
                headers={**self.options.headers, **request.headers},
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

    def _connections(self) -> urllib3.HTTPConnectionPool:
        with self._lock:
            # A child that shared its parent's connections would read the parent's answers.
            if self._pool is None or self._pid != os.getpid():
                self._pool = self._new_pool()
                self._pid = os.getpid()
            return self._pool

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        options = self.options
        if self._tls is None:
            return urllib3.HTTPConnectionPool(
                options.host, options.port, maxsize=options.connections
            )
        return urllib3.HTTPSConnectionPool(
            options.host, options.port, maxsize=options.connections, ssl_context=self._tls
        )


def _reason(error: HTTPError) -> str:
    """What the system said; the library's own words are about its objects."""
    cause = error.__cause__
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(error)


class ClientQueue(ClaimsOne):
    """One queue of a server; every verb is durable when it returns."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = client.verbs

    def __repr__(self) -> str:
        return f"<ClientQueue {self.name!r} of {self.client.options.origin}>"

    @property
    def settings(self) -> QueueSettings:
        return self._run(self._verbs.settings(self.name))

    def configure(self, **changes: Any) -> QueueSettings:
        """Change settings, e.g. ``configure(visibility_timeout=60)``."""
        return self._run(self._verbs.configure(self.name, changes))

    def put(
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
        """Put one message; its id. See :class:`~fsmq.NewMessage` for the arguments.

        A ``str`` is written in UTF-8; ``delay`` is in seconds, or a timedelta, or a datetime.
        Without ``id`` the client makes one, and all tries carry it: a retry is no duplicate.
        Raises DuplicateMessage if the first try finds the id, MessageTooLarge, QueueFull.
        """
        message = new_message(body, delay, priority, ttl, id, content_type, attributes)
        return self._run(self._verbs.put(self.name, message))

    def put_json(
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
        return self.put(
            json_of(value),
            delay=delay,
            priority=priority,
            ttl=ttl,
            id=id,
            content_type=JSON_TYPE,
            attributes=attributes,
        )

    def put_many(self, messages: Iterable[Body | NewMessage]) -> list[str]:
        """Put many messages; their ids in the same order. Durable in parts of at most 250.

        Within a part it is all or none: when it raises, the parts before are stored.
        """
        return self._run(self._verbs.put_many(self.name, map(as_new_message, messages)))

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim up to ``count`` (1 to 1000) messages; an empty list if there are none.

        visibility: seconds until an unacknowledged message comes back; None: the queue's setting.
        wait: seconds to wait for a first message.
        """
        messages = self._run(self._verbs.claim(self.name, count, visibility, wait))
        return Claimed.all(self, messages)

    def renew(self, message: Message | str, visibility: float | None = None) -> float:
        """Hold a message for ``visibility`` seconds from now; the new deadline in Unix seconds.

        Raises NoSuchMessage.
        """
        return self._run(self._verbs.renew(self.name, id_of(message), visibility))

    def release(self, message: Message | str, delay: Delay = 0.0) -> None:
        """Give a message back, at once or after ``delay`` seconds. Raises NoSuchMessage."""
        self._run(self._verbs.release(self.name, id_of(message), seconds_of(delay)))

    def bury(self, message: Message | str) -> None:
        """Send a claimed message to the dead-letter queue now, with its count started again.

        Raises NoSuchMessage if it is not in flight, InvalidValue if the queue has no dead letters.
        """
        self._run(self._verbs.bury(self.name, id_of(message)))

    def ack(self, *messages: Message | str) -> int:
        """Acknowledge claimed messages, or ids of them: the work is done; how many were there."""
        return self.remove(*messages)

    def remove(self, *messages: Message | str) -> int:
        """Remove messages, or ids of them, in whatever state they are; how many were there."""
        return sum(self.remove_each(messages))

    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages, or ids of them; for each whether it was there."""
        ids = [id_of(message) for message in messages]
        return self._run(self._verbs.remove_each(self.name, ids))

    def purge(self) -> None:
        """Remove all messages."""
        self._run(self._verbs.purge(self.name))

    def peek(
        self, limit: int = 10, *, state: State | str = State.READY, after: str = ""
    ) -> list[Message]:
        """Look at up to ``limit`` messages in one state, without claiming them.

        state: a State (not State.REMOVE), "in_flight" or "delayed".
        after: an id; what stands behind it is shown.
        """
        return self._run(self._verbs.peek(self.name, limit, state, after))

    def find(self, message_id: str) -> Message | None:
        """Look at one message in whatever state; None if there is none."""
        return self._run(self._verbs.find(self.name, message_id))

    def counts(self) -> Counts:
        """How many messages are new, ready, in flight and delayed."""
        return self._run(self._verbs.counts(self.name))

    def delete(self) -> None:
        """Delete the queue and all its messages."""
        self.client.delete_queue(self.name)

    def worker(
        self,
        handler: Callable[[Message, Claim], object],
        *,
        concurrency: int = 4,
        visibility: float = 60.0,
        back_off: float = 1.0,
        max_back_off: float = 300.0,
        stop_timeout: float = 30.0,
    ) -> Worker:
        """A worker that calls ``handler(message, claim)`` for each message, in a thread of its own.

        See :class:`~fsmq.client.blocking_worker.Worker`.
        """
        # It brings asyncio and aiohttp along, which who only puts and claims can do without.
        from .blocking_worker import Worker
        from .handlers import Pace

        pace = Pace(concurrency, visibility, back_off, max_back_off, stop_timeout)
        return Worker(self.client.options, self.name, handler, pace)
