"""A request as handlers see it: decoded names, checked parameters, a body within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiohttp import HttpVersion11, hdrs
from aiohttp.web import BaseRequest

from fsmq.spool.checks import check_queue
from fsmq.spool.errors import MessageTooLarge
from fsmq.spool.prepare import LARGE_BYTES

from ..connection.connection import Connection
from ..connection.pieces import FORM_BYTES, JSON_FACTOR
from ..describe import UNKNOWN, Values
from ..guard.access import Access, Identity, bearer
from ..guard.admission import Admission
from ..problems import ExpectationFailed, UnreadableBody
from .body_reader import BodyReader, discard, most_packed, reading
from .encodings import decoder
from .headers import prefers_json
from .json_room import room_of_json

if TYPE_CHECKING:
    from ..running.runner import Runner

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Call:
    """One request. names: the named segments of the path. operation: describes the query."""

    __slots__ = (
        "__weakref__",
        "_access",
        "_admission",
        "_form",
        "_held",
        "_is_let_in",
        "_runner",
        "identity",
        "in_json",
        "names",
        "operation",
        "raw_query",
        "request",
    )

    def __init__(
        self,
        request: BaseRequest,
        names: Mapping[str, str],
        raw_query: str,
        access: Access,
        admission: Admission,
        runner: Runner,
    ) -> None:
        self.request = request
        self.names = names
        self.operation = UNKNOWN
        self.raw_query = raw_query
        self.identity: Identity | None = None
        self._access = access
        self._admission = admission
        self.in_json = True  # whether messages are answered in JSON, and not as raw bytes
        self._runner = runner
        self._held = 0
        self._form = 0  # the part of it for what messages become in JSON
        self._is_let_in = False

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as the server can tell."""
        connection = self.request.protocol
        return isinstance(connection, Connection) and connection.is_gone

    def on_hang_up(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback`` when the client hangs up; None cancels that.

        Only for requests that wait: the rest of the body is thrown away.
        """
        connection = self.request.protocol
        if isinstance(connection, Connection):
            connection.waits(callback)

    def hang_up(self) -> None:
        """Close without an answer, because the client has probably hung up."""
        self.request.protocol.force_close()

    # -- access ----------------------------------------------------------------------------------

    @property
    def needs_keys(self) -> bool:
        """Whether the server has a file of keys."""
        return self._access.needs_keys

    def identify(self, token: str | None) -> Identity:
        """Identify the sender by the key that the dialect found, or None if there is none.

        Raises:
            Unauthorized: there is no such key.
            TooManyRequests: the limit of open requests of this key is reached.
        """
        return self.enter(self._access.identify(token))

    def enter(self, identity: Identity) -> Identity:
        """Count this among the open requests of its sender.

        Raises:
            TooManyRequests
        """
        if self.identity is None:
            self._admission.enter(identity.account)
            self.identity = identity
        return identity

    def identify_bearer(self) -> Identity:
        """Identify the sender by ``Authorization: Bearer``. Raises as :meth:`identify`."""
        if not self._access.needs_keys:
            return self.identify(None)  # the header may be for a proxy in front of us
        return self.identify(bearer(self.request.headers.getall(hdrs.AUTHORIZATION, ())))

    def let_in(self) -> None:
        """Allow its body to be read; the server calls this once the route's need is met."""
        self._is_let_in = True

    @property
    def sender(self) -> Identity:
        """The identity of the sender, which is known before handlers run."""
        assert self.identity is not None, "a route that is open has no sender"
        return self.identity

    # -- names -----------------------------------------------------------------------------------

    @property
    def queue(self) -> str:
        """The queue of the path. Raises InvalidValue."""
        return check_queue(self.names["queue"])

    @property
    def topic(self) -> str:
        """The topic of the path. Raises InvalidValue."""
        return check_queue(self.names["topic"], "topic")

    @property
    def log(self) -> str:
        """The log of the path. Raises InvalidValue."""
        return check_queue(self.names["log"], "log")

    @property
    def channel(self) -> tuple[str, str]:
        """The log and the channel of the path. Raises InvalidValue."""
        return self.log, check_queue(self.names["channel"], "channel")

    @property
    def wants_json(self) -> bool:
        """Whether ``Accept`` asks for JSON, and does not accept a message as it was posted."""
        return prefers_json(self.request.headers.get(hdrs.ACCEPT))

    # -- limits ----------------------------------------------------------------------------------

    @property
    def account(self) -> str | None:
        """The name whose limits apply; None: only those for all requests together."""
        return None if self.identity is None else self.identity.account

    def admit(self) -> None:
        """Check, before messages are claimed, that there is memory for an answer.

        Raises:
            Overloaded, TooManyRequests
        """
        self._admission.check(self.account)

    def hold(self, size: int, *, sure: bool = False) -> None:
        """Count bytes of bodies as held until this is answered; ``sure``: they exist already.

        Raises:
            Overloaded, TooManyRequests
        """
        self._admission.hold(self.account, size, sure=sure)
        self._held += size

    def hold_made(self, size: int) -> None:
        """Hold what is made of the body, as bytes or as text; alone it always fits, as a body does.

        Raises:
            Overloaded, TooManyRequests
        """
        self._admission.hold(self.account, size, part_of=self._held)
        self._held += size

    def take(self, size: int, *, is_first: bool) -> None:
        """Hold bytes of a message for the answer (see :class:`fsmq.spool.views.reading.Room`).

        Includes the memory of their form in JSON, as much of it as exists at a time.

        Raises:
            Overloaded, TooManyRequests
        """
        # `admit` has checked for a small first one.
        sure = is_first and size <= LARGE_BYTES
        form = min((JSON_FACTOR - 1) * size, FORM_BYTES - self._form) if self.in_json else 0
        size += form
        held = self._held if is_first else 0
        self._admission.hold(self.account, size, sure=sure, part_of=held)
        self._held += size
        self._form += form

    def free(self, size: int) -> None:
        """Count ``size`` bytes as no longer held."""
        self._admission.free(self.account, size)
        self._held -= size

    def answer_with(self, size: int) -> None:
        """Hold the body of the answer, except for bytes that are held already."""
        if size > self._held:
            self.hold(size - self._held, sure=True)

    @property
    def held(self) -> int:
        """The number of bytes of bodies that are held until this is answered."""
        return self._held

    def end(self) -> None:
        """Count this as answered, and what it held as no longer held."""
        self._admission.free(self.account, self._held)
        self._held = 0
        if self.identity is not None:
            self._admission.leave(self.identity.account)
            self.identity = None

    # -- parameters ------------------------------------------------------------------------------

    def read(self) -> Values:
        """The values of the query, as the operation describes them.

        A parameter that the operation does not have is refused: a misspelt one must not be ignored.

        Raises:
            InvalidValue
        """
        return self.operation.read(self.raw_query)

    # -- body ------------------------------------------------------------------------------------

    async def body(self, limit: int, timeout: float) -> bytes:
        """Read the body, decompressed; at most ``limit`` bytes within ``timeout`` seconds.

        Raises:
            MessageTooLarge: as early as it is known; no more of the body is read.
            Overloaded, TooManyRequests: there is no memory for it now; as early.
            UnreadableBody, UnsupportedEncoding, SlowBody, ExpectationFailed
            Unauthorized: the sender's key has expired during the read.
        """
        self._check_let_in()
        request = self.request
        headers = request.headers
        decode = decoder(headers.getall(hdrs.CONTENT_ENCODING, ()), limit)
        length = request.content_length
        if length is not None and length > (limit if decode is None else most_packed(limit)):
            raise MessageTooLarge(length if decode is None else None, limit)
        if headers.get(hdrs.TRANSFER_ENCODING, "chunked").lower() != "chunked":
            # A body in "gzip, chunked" would be stored compressed, and nothing would say so.
            raise UnreadableBody("unknown transfer encoding; expected chunked")
        if length is not None and decode is None:
            self.hold(length)
        if hdrs.EXPECT in headers and request.version >= HttpVersion11:
            await self._answer_expect(headers[hdrs.EXPECT])
        size = length if decode is None else None
        reader = BodyReader(request.content, size, limit, self._keep, self._runner.decodings)
        if decode is None and request.content.is_eof() and request.content.exception() is None:
            # The body came together with the head, as most do: there is nothing to wait for.
            return await reader.read(None)
        async with reading(timeout):
            body = await reader.read(decode)
        if self.identity is not None:
            self.identity.check_holds()  # it can expire while a body arrives slowly
        return body

    async def json_body(self, limit: int, timeout: float) -> bytes:
        """Read a body that will be parsed as JSON. Raises as :meth:`body`.

        Its values can take many times the memory of their text (``[{},{},…]`` 25 times), so that
        memory is reserved first; and as much again as the text has, for its strings.
        """
        body = await self.body(limit, timeout)
        # Characters in strings are counted as well: to skip them would cost more than it gains.
        room = await self._runner.beside(len(body), room_of_json, body)
        if room > self._admission.limits.memory:
            raise UnreadableBody("the JSON has more values than there is memory for: send fewer")
        self.hold(room)
        self.hold_made(len(body))
        return body

    def _check_let_in(self) -> None:
        if not self._is_let_in:
            raise RuntimeError("a body is read before rights were checked")

    async def discard_body(self, timeout: float) -> None:
        """Read the body and throw it away, so that the connection can be kept.

        Raises:
            UnreadableBody, SlowBody
        """
        self._check_let_in()
        if not self.request.can_read_body or hdrs.EXPECT in self.request.headers:
            return
        async with reading(timeout):
            await discard(self.request.content)

    def _keep(self, size: int) -> None:
        """Hold the bytes of a body that have arrived, unless its whole length is held already."""
        if size > self._held:
            self.hold(size - self._held)

    async def _answer_expect(self, value: str) -> None:
        if value.lower() != "100-continue":
            raise ExpectationFailed(
                f"unknown expectation; expected 100-continue, not {value[:50]!r}"
            )
        writer = self.request.writer
        await writer.write(_CONTINUE)
        # Otherwise aiohttp would count this as the beginning of the answer.
        writer.output_size = 0


def split_target(target: str) -> tuple[str, str]:
    """Split a request target into path and query; the absolute form (for proxies) is served too."""
    if not target.startswith("/"):
        _, separator, rest = target.partition("://")
        target = "/" + rest.partition("/")[2] if separator else target
    path, _, query = target.partition("?")
    return path.partition("#")[0], query.partition("#")[0]
