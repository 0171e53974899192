"""A request that the fast path has taken, from its head to its answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from aiohttp.http import StreamWriter
from aiohttp.web import Response

from fsmq.spool.errors import FsmqError, MessageTooLarge, Unavailable

from ..connection.connection import Connection
from ..connection.leftovers import forget_frames
from ..connection.pieces import Pieces
from ..connection.render import head
from ..describe import Operation, Values
from ..guard.access import Identity
from ..guard.keys import Right
from ..problems import InternalError, Overloaded, problem

log = logging.getLogger(__name__)
# A request that is incomplete after this time goes to aiohttp, which enforces its time limit.
_PATIENCE_S = 1.0


@dataclass(frozen=True, eq=False, slots=True)
class FastRoute:
    """A route of the fast path. ``do`` reads a request and begins to carry it out.

    It can raise FsmqError: then the request goes to aiohttp, whose handler answers the error.
    error_answer: how its dialect answers an error.
    """

    operation: Operation
    right: Right
    do: Callable[[Request], None]
    has_body: bool = False
    error_answer: Callable[[FsmqError], Response] = problem


# By the method, and the part of the path after the queue.
FastRoutes: TypeAlias = Mapping[tuple[str, str], FastRoute]


class Line(NamedTuple):
    """A request line: what it asks for.

    queue: the name on which rights are granted, of a queue or channel. message_id: empty if it
    names no message. given: what else its dialect has read in it.
    """

    route: FastRoute
    queue: str
    message_id: str
    values: Values
    given: Any = None


class Signer(NamedTuple):
    """The sender of a request, in a dialect with its own way to identify it.

    check: raises an FsmqError if the body is not the one that was signed; None if none was signed.
    """

    identity: Identity
    check: Callable[[bytes], None] | None


class Fields(NamedTuple):
    """The other lines of a head.

    length: of the body; None if not given. token: the key. in_json: whether the answer should have
    messages as JSON. kept: the content type and the attributes that are stored with a message.
    claim: the name of the claim that the request is for. signer: instead of a token. key: that of a
    message of a log.
    """

    length: int | None
    token: str | None
    in_json: bool
    kept: tuple[str | None, dict[str, str]]
    claim: str | None
    signer: Signer | None = None
    key: str | None = None


class Owner(Protocol):
    """The fast path that has taken a request, as the request uses it."""

    is_off: bool

    def complete(self, request: Request) -> None: ...
    def end(self, request: Request) -> None: ...
    def hold(self, request: Request, size: int, sure: bool) -> None: ...
    def observe(self, request: Request, status: int) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Request:
    """A request that the fast path has taken: the protocol of its connection until it is answered.

    route, queue, message_id, values, given: of its line. fields: of its head. held: the bytes of
    bodies that are counted for it. sender: its identity. started: when it came.
    """

    __slots__ = (
        "_has_hung_up",
        "_is_parted",
        "_missing",
        "_on_hang_up",
        "_owner",
        "_parts",
        "_size",
        "account",
        "connection",
        "fields",
        "given",
        "held",
        "message_id",
        "queue",
        "route",
        "sender",
        "started",
        "values",
    )

    def __init__(
        self,
        owner: Owner,
        connection: Connection,
        head: tuple[Line, Fields, int],
        identity: Identity,
        data: bytes,
        missing: int,
    ) -> None:
        line, self.fields, self._size = head
        self.route, self.queue, self.message_id, self.values, self.given = line
        self.connection = connection
        self.account = identity.account
        self.held = self.fields.length or 0
        self.sender = identity
        self._has_hung_up = False
        self._on_hang_up: Callable[[], None] | None = None
        self._owner = owner
        self.started = time.perf_counter()
        self._parts = [data]
        self._is_parted = False  # into head and body, without a second copy of either
        self._missing = missing

    @property
    def body(self) -> bytes:
        """The body of a complete request."""
        if not self._is_parted:
            whole = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts = [whole[: self._size], whole[self._size :]]
            self._is_parted = True
        return self._parts[1]

    # -- as the protocol of its connection ---------------------------------------------------------

    def more(self, data: bytes) -> bytes:
        """Take bytes of the body; returns those that follow the request."""
        if not self._missing:
            return data
        mine = data[: self._missing]
        self._parts.append(mine)
        self._missing -= len(mine)
        if not self._missing:
            self._owner.complete(self)
        return data[len(mine) :]

    def gone(self) -> None:
        """The client has hung up."""
        self._has_hung_up = True
        if self._missing:
            self._owner.end(self)
        if self._on_hang_up is not None:
            self._on_hang_up()

    def outlives_sending(self) -> bool:
        """Whether it goes on after the client's end of file, which can mean that it hung up."""
        return not self._missing and self._on_hang_up is None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered, here or by aiohttp."""
        return self.connection.protocol is self

    def enforce_timeouts(self) -> None:
        """Leave a request to aiohttp if it takes long to arrive."""
        if self._missing and time.perf_counter() - self.started > _PATIENCE_S:
            self.fall_back()

    # -- for the engine: see `Party` ---------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, or may have: messages must not be claimed for it."""
        return self._has_hung_up or self.connection.has_ended

    def on_hang_up(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` when the client hangs up; None cancels that."""
        self._on_hang_up = callback

    def hold(self, size: int, *, sure: bool = False) -> None:
        """Count bytes of bodies as held until it is answered.

        Raises Overloaded and TooManyRequests, unless ``sure``: they are in memory already.
        """
        self._owner.hold(self, size, sure)

    # -- its end -----------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        self._owner.spawn(work)

    def fall_back(self) -> None:
        """Leave it to aiohttp; nothing may have been done for it yet."""
        if not self.is_open:
            return
        self._owner.end(self)
        if not self._has_hung_up:
            self.connection.leave_to_aiohttp(b"".join(self._parts))

    def hang_up(self) -> None:
        """Close without an answer, because the client has probably hung up."""
        if self.is_open:
            self._owner.end(self)
            self.connection.force_close()

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer it, unless that is done already."""
        connection = self.connection
        if connection.protocol is not self:
            return
        owner = self._owner
        closing = owner.is_off or connection.is_last_answer
        owner.observe(self, status)
        if not self._has_hung_up:
            connection.write(head(status, headers, len(body), closing=closing) + body)
            if connection.writing_paused:
                self.hold(max(0, len(body) - self.held), sure=True)
                owner.spawn(self._drain(closing))
                return
        self._finish(closing)

    async def _drain(self, closing: bool) -> None:
        """Wait until the client has taken the answer, which is in memory until then."""
        try:
            await StreamWriter(self.connection, asyncio.get_running_loop()).drain()
        except ConnectionError:
            return  # the client has gone
        finally:
            self._finish(closing)

    def respond(self, response: Response) -> None:
        """Answer it with a response as handlers for aiohttp return it."""
        body = response.body
        if isinstance(body, Pieces):
            self._owner.spawn(self._write(response, body))
        else:
            assert body is None or isinstance(body, bytes)
            self.answer(response.status, response.headers, body or b"")

    def answer_by(self, answer: Callable[[Request, Any], None], outcome: Any) -> None:
        """Answer it by its outcome: ``answer`` gets a result; an error is answered here."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            answer(self, outcome)
        except FsmqError as error:
            self.refuse(error)
        except Exception:
            log.exception("a request failed")
            self.fail()

    def refuse(self, error: FsmqError) -> None:
        """Answer it with an error of its route."""
        if isinstance(error, MessageTooLarge):
            self.fall_back()  # the handler for aiohttp refuses it
            return
        if isinstance(error, Unavailable) and not isinstance(error, Overloaded):
            log.warning("%s %s: %s", self.route.operation.id, self.queue, error)
        forget_frames(error)
        if self.is_open:
            self.respond(self.route.error_answer(error))

    def fail(self) -> None:
        """Answer it with an internal error, because its route has failed unexpectedly."""
        if self.is_open:
            self.respond(self.route.error_answer(InternalError()))
        elif not self._has_hung_up:
            self.connection.force_close()  # it is unknown how much of an answer was sent

    async def _write(self, response: Response, body: Pieces) -> None:
        """Answer it piece by piece, as fast as the client reads."""
        closing = self._owner.is_off or self.connection.is_last_answer
        self._owner.observe(self, response.status)
        writer = StreamWriter(self.connection, asyncio.get_running_loop())
        if body.size is None:
            writer.enable_chunking()
        try:
            if not self._has_hung_up:
                self.connection.write(
                    head(response.status, response.headers, body.size, closing=closing)
                )
                await body.write(writer)
                await writer.write_eof()
        except ConnectionError:
            return  # the client has gone
        except BaseException:
            closing = True  # the answer is incomplete
            raise
        finally:
            self._finish(closing)

    def _finish(self, closing: bool) -> None:
        self._owner.end(self)
        if not self._has_hung_up:
            self.connection.go_on(closing=closing)
