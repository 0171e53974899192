"""A request that the fast path has taken, from its head to its answer; and what it asks for."""

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
# What is not whole after so many seconds goes to aiohttp, which knows how long it may take.
_PATIENCE_S = 1.0


@dataclass(frozen=True, eq=False, slots=True)
class FastRoute:
    """What the fast path can do. ``do`` reads a request, and asks for what it wants.

    It may raise FsmqError: then aiohttp reads the request, and says what is wrong with it.
    error_answer: how its dialect tells an error.
    """

    operation: Operation
    right: Right
    do: Callable[[Request], None]
    has_body: bool = False
    error_answer: Callable[[FsmqError], Response] = problem


# By method, and by what the path says behind the queue.
FastRoutes: TypeAlias = Mapping[tuple[str, str], FastRoute]


class Line(NamedTuple):
    """A request line: what it asks for.

    queue: its name, or that of a channel as rights are granted on it. message_id: empty where it
    names no message. given: what else its dialect has read of it.
    """

    route: FastRoute
    queue: str
    message_id: str
    values: Values
    given: Any = None


class Signer(NamedTuple):
    """Who sends a request, where a dialect tells that in its own way.

    check: raises an FsmqError if the body is not what was signed; None where nothing was.
    """

    identity: Identity
    check: Callable[[bytes], None] | None


class Fields(NamedTuple):
    """The other lines of a head.

    length: of the body; None where nothing says it. token: the key. in_json: whether messages are
    wanted so. kept: the content type and the attributes that a message keeps. claim: the one that
    it is about, by its name. signer: in the place of a token.
    """

    length: int | None
    token: str | None
    in_json: bool
    kept: tuple[str | None, dict[str, str]]
    claim: str | None
    signer: Signer | None = None


class Owner(Protocol):
    """What a request asks of the fast path that has taken it."""

    is_off: bool

    def complete(self, request: Request) -> None: ...
    def end(self, request: Request) -> None: ...
    def hold(self, request: Request, size: int, sure: bool) -> None: ...
    def observe(self, request: Request, status: int) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Request:
    """A request that the fast path has taken: the protocol of its connection until it is answered.

    route, queue, message_id, values: of its line. fields: of its head. held: the bytes of bodies
    that are counted for it. sender: who sends it. given: what its dialect has read of its line.
    started: when it came.
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
        self._is_parted = False  # into head and body: each of them is here once
        self._missing = missing

    @property
    def body(self) -> bytes:
        """Of a request that has come whole."""
        if not self._is_parted:
            whole = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts = [whole[: self._size], whole[self._size :]]
            self._is_parted = True
        return self._parts[1]

    # -- as the protocol of its connection ---------------------------------------------------------

    def more(self, data: bytes) -> bytes:
        """Bytes have come: of the body, or of what is for later."""
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
        """Whether it goes on where the client sends no more, which may have hung up."""
        return not self._missing and self._on_hang_up is None

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered, here or by aiohttp."""
        return self.connection.protocol is self

    def look_after(self) -> None:
        """Leave it to aiohttp to wait for what takes long to come."""
        if self._missing and time.perf_counter() - self.started > _PATIENCE_S:
            self.fall_back()

    # -- for the engine: see `Party` ---------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Whether what it is given may reach nobody."""
        return self._has_hung_up or self.connection.has_ended

    def on_hang_up(self, callback: Callable[[], None] | None) -> None:
        """Have ``callback`` called when the client hangs up; None takes that back."""
        self._on_hang_up = callback

    def hold(self, size: int, *, sure: bool = False) -> None:
        """Count bytes of bodies that are there, until it is answered.

        Raises Overloaded and TooManyRequests, unless it is sure that they are there.
        """
        self._owner.hold(self, size, sure)

    # -- its end -----------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        self._owner.spawn(work)

    def fall_back(self) -> None:
        """Let aiohttp answer it; nothing must have been done."""
        if not self.is_open:
            return
        self._owner.end(self)
        if not self._has_hung_up:
            self.connection.leave_to_aiohttp(b"".join(self._parts))

    def hang_up(self) -> None:
        """Answer nothing to a client that has hung up, as far as one can tell."""
        if self.is_open:
            self._owner.end(self)
            self.connection.force_close()

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer it, if that is still to be done."""
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
        """Wait until the client has taken the answer: so long it lies in memory."""
        try:
            await StreamWriter(self.connection, asyncio.get_running_loop()).drain()
        except ConnectionError:
            return  # the client has gone
        finally:
            self._finish(closing)

    def respond(self, response: Response) -> None:
        """Answer it with what a handler for aiohttp would return."""
        body = response.body
        if isinstance(body, Pieces):
            self._owner.spawn(self._write(response, body))
        else:
            assert body is None or isinstance(body, bytes)
            self.answer(response.status, response.headers, body or b"")

    def answer_by(self, answer: Callable[[Request, Any], None], outcome: Any) -> None:
        """Answer it by what has become of it: ``answer`` does, but for an error."""
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
            self.fall_back()  # who reads bodies refuses it before it has come
            return
        if isinstance(error, Unavailable) and not isinstance(error, Overloaded):
            log.warning("%s %s: %s", self.route.operation.id, self.queue, error)
        forget_frames(error)
        if self.is_open:
            self.respond(self.route.error_answer(error))

    def fail(self) -> None:
        """Answer it as one whose route has failed in a way that nobody could foresee."""
        if self.is_open:
            self.respond(self.route.error_answer(InternalError()))
        elif not self._has_hung_up:
            self.connection.force_close()  # what it has been told so far nobody knows

    async def _write(self, response: Response, body: Pieces) -> None:
        """Answer it piece by piece, as quickly as the client takes it."""
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
            closing = True  # half an answer is none
            raise
        finally:
            self._finish(closing)

    def _finish(self, closing: bool) -> None:
        self._owner.end(self)
        if not self._has_hung_up:
            self.connection.go_on(closing=closing)
