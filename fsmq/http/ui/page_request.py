"""One request for a page: who makes it, and the page that comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import hdrs
from aiohttp.web import Response

from fsmq.spool import Message, QueueSettings
from fsmq.spool.errors import InvalidValue
from fsmq.wire import unquote_id

from ..guard import access
from ..guard.access import Identity
from ..guard.keys import Right
from ..problems import Forbidden, UnreadableBody
from ..routing.call import Call
from ..routing.form_reader import pairs, work_of
from ..service.monitoring.inspector import Search
from ..service.service import Service
from .forms import PLAIN, WITH_FILES, Fields, plain, with_files
from .rendering import Rendering

FORM_BYTES = 1024 * 1024
# More of a body no list shows.
_BEGINNING = 512
_MOST_PARAMETERS = 100
_PREFIX = "/_ui/"
# What the page says at its top after something was done; the address can say no other.
NOTICES: Mapping[str, str] = {
    "buried": "Buried: {n}.",
    "configured": "Settings changed: {n}.",
    "created": "The queue was created.",
    "deleted": "The queue was deleted.",
    "held": "Held longer: {n}.",
    "hidden": "Hidden again: {n}.",
    "move_stopped": "The move was stopped; {n} had moved.",
    "moved": "Moved: {n}.",
    "moving": "The move goes on in the background.",
    "redriven": "Redriven: {n}.",
    "redriving": "The redrive goes on in the background.",
    "paused": "Paused: nothing is claimed from the queue.",
    "purged": "Purged: about {n}.",
    "released": "Released: {n}.",
    "removed": "Deleted: {n}.",
    "resumed": "Resumed.",
    "sent": "Sent: {n}.",
    "published": "Published to {n}.",
    "schedule_deleted": "The schedule was deleted.",
    "scheduled": "The schedule is defined.",
    "started": "The schedule puts messages again.",
    "stopped": "The schedule puts nothing until it is resumed.",
    "subscribed": "Subscribed.",
    "topic_created": "The topic is there.",
    "topic_deleted": "The topic was deleted.",
    "unsubscribed": "The subscription has ended.",
    "there": "There was such a queue already.",
}

# What takes it back again: the right, and the fields of a form; {of} is what the address says.
UNDO: Mapping[str, tuple[Right, Mapping[str, str]]] = {
    "held": ("receive", {"do": "hide", "until": "{of}"}),
    "paused": ("admin", {"do": "resume"}),
    "released": ("receive", {"do": "hide", "until": "{of}"}),
    "resumed": ("admin", {"do": "pause", "until": "{of}"}),
    "sent": ("receive", {"do": "remove"}),
    "subscribed": ("admin", {"do": "unsubscribe", "queue": "{of}"}),
}

# What there is no undo for without knowing of what.
_OF_SOME = ("held", "released", "sent", "subscribed")

_OPEN = "There are no keys, and mq listens on more than this host: all who reach it may do all."


class Listed(NamedTuple):
    """A message of a list, with the beginning of its body, and how many bytes that has in all."""

    message: Message
    size: int


@dataclass(frozen=True)
class UiOptions:
    """What the pages may show and do.

    may_act: whether they have buttons. bodies: whether they show what is in messages.
    """

    may_act: bool = True
    bodies: bool = True


class PageRequest:
    """What handlers of pages are given.

    query: the parameters of the address; of one that is given twice the last.
    may_act, bodies: as the options have them.
    places: the pages in the head of each page: their address, and what they are called.
    """

    places = (
        ((), "Queues"),
        (("dead",), "Dead letters"),
        (("topics",), "Topics"),
        (("schedules",), "Schedules"),
        (("work",), "Work"),
        (("cluster",), "Cluster"),
    )

    def __init__(
        self,
        call: Call,
        identity: Identity,
        service: Service,
        rendering: Rendering,
        options: UiOptions,
    ) -> None:
        self.call = call
        self.identity = identity
        self.service = service
        self.spool = service.spool
        self.query = dict(_parameters(call.raw_query))
        self.may_act = options.may_act
        self.bodies = options.bodies
        self.warnings: list[str] = []
        self._rendering = rendering
        self._fields: Fields | None = None
        path = call.request.raw_path.partition("?")[0]
        # All links are relative: the pages work wherever a proxy puts them.
        self._up = "../" * (path.count("/") - _PREFIX.count("/")) or "./"

    @property
    def now(self) -> float:
        """What the clock says here, in Unix seconds."""
        return self.spool.context.clock()

    def is_at(self, *segments: str) -> bool:
        """Whether this page is that one."""
        return self.call.request.raw_path.partition("?")[0] == _PREFIX + "/".join(segments)

    @property
    def notice(self) -> str:
        """What was done just now, as the address says it with a word and a number."""
        number = self.query.get("n", "")
        text = NOTICES.get(self.query.get("did", ""), "")
        return text.format(n=number if number.isascii() and number.isdecimal() else "0")

    @property
    def undo(self) -> Sequence[tuple[str, str]]:
        """The fields of a form that takes back what was done just now; none where nothing does."""
        did, of = self.query.get("did", ""), self.query.get("of", "")
        right, fields = UNDO.get(did, ("look", {}))
        names = self.call.names
        on = names.get("queue") or ("topic" in names and access.topic(names["topic"]))
        if not on or not self.may(right, on) or (not of and did in _OF_SOME):
            return ()
        ids = [("message", one) for one in self._sent]
        return [*((name, value.format(of=of)) for name, value in fields.items()), *ids]

    @property
    def _sent(self) -> Sequence[str]:
        """The ids that were sent just now, as addresses have them."""
        return self.query.get("of", "").split(",") if self.query.get("did") == "sent" else ()

    @property
    def sent(self) -> Sequence[str]:
        """The ids of several messages that were sent just now; none where one has its own page."""
        ids = [unquote_id(one) for one in self._sent]
        return ids if "id" not in self.call.names and "queue" in self.call.names else ()

    @property
    def form_url(self) -> str:
        """Where forms about the queue or the topic of this page go."""
        names = self.call.names
        kind = "queue" if "queue" in names else "topic"
        return self.url("q" if kind == "queue" else "topics", names[kind])

    @property
    def rights(self) -> str:
        """What the key may do, in words."""
        key = self.identity.key
        if key is None:
            return "without a key"
        named = key.grants.names.items()
        return "; ".join(f"{right} {', '.join(names)}" for right, names in named)

    async def look_for_warnings(self) -> None:
        """Find out what each page says at its top, where something is wrong."""
        self.warnings = [
            *await self.service.inspector.warnings(),
            *(
                f"{queue} has been paused for more than a day, and nothing but a resume ends it."
                for queue in await self.service.inspector.long_paused()
                if self.identity.may_see(queue)
            ),
        ]
        if not self.call.needs_keys and not self.is_near:
            self.warnings = [*self.warnings, _OPEN]

    @cached_property
    def is_near(self) -> bool:
        """Whether the visitor came by an address that only this host reaches."""
        transport = self.call.request.transport
        name = transport.get_extra_info("sockname") if transport is not None else None
        # A Unix socket's name is a path.
        return not isinstance(name, tuple) or ip_address(name[0].partition("%")[0]).is_loopback

    # -- who may do what -------------------------------------------------------------------------

    def may(self, right: Right, queue: str) -> bool:
        """Whether a button for this is shown."""
        return self.may_act and self.identity.may(right, queue)

    @property
    def may_create(self) -> bool:
        """Whether there is any queue that it might create."""
        key = self.identity.key
        granted = key is None and self.identity.account is None
        return self.may_act and (granted or (key is not None and "admin" in key.grants.names))

    def require(self, right: Right, queue: str) -> None:
        """Make sure of a right before something is done.

        Raises:
            Unauthorized, Forbidden
        """
        if not self.may_act:
            raise Forbidden("these pages only look: mq was started with --ui read-only")
        self.identity.require(right, queue)

    def settings_of(self, queues: Iterable[str]) -> dict[str, QueueSettings]:
        """The settings of those of some queues that the visitor may see."""
        found = {}
        for name in self.identity.visible(queues):
            with suppress(OSError):  # fsck names it; it must not hide the others
                found[name] = self.spool.context.settings.get(name)
        return found

    # -- addresses -------------------------------------------------------------------------------

    def url(self, *segments: str, **query: object) -> str:
        """The address of a page from this one; ``query`` without what is None or empty."""
        path = "/".join(_quoted(segment) for segment in segments)
        given = {name: value for name, value in query.items() if value not in (None, "")}
        tail = "?" + urlencode(given, errors="surrogateescape") if given else ""
        return f"{self._up}{path}{tail}"

    @property
    def here(self) -> str:
        """The address of this page without its parameters: no name in it is taken for a scheme."""
        return "./" + self.call.request.raw_path.partition("?")[0].rpartition("/")[2]

    @staticmethod
    def with_notice(address: str, word: str, number: int, of: str = "") -> str:
        """An address whose page says what was done, with a word of `NOTICES` and a number.

        of: what has to be known to undo it.
        """
        done = f"{address}{'&' if '?' in address else '?'}did={word}&n={number}"
        return f"{done}&of={quote(of, safe='')}" if of else done

    def again(self, **changes: object) -> str:
        """The address of this page with some parameters changed, or taken away (None)."""
        query = {n: v for n, v in self.query.items() if n not in ("did", "n", "of")}
        given = {n: v for n, v in {**query, **changes}.items() if v not in (None, "")}
        return self.here + ("?" + urlencode(given, errors="surrogateescape") if given else "")

    def api(self, *segments: str) -> str:
        """The address of something of the API, from this page."""
        return self._up + "../" + "/".join(_quoted(segment) for segment in segments)

    # -- messages --------------------------------------------------------------------------------

    async def peek(self, search: Search) -> tuple[list[Listed], str | None]:
        """Messages for a list, and the id behind which it goes on; nobody made room for bodies."""
        found = await self.service.inspector.peek(self.identity, search)
        listed = [
            Listed(replace(one, body=one.body[:_BEGINNING]), len(one.body))
            for one in found.messages
        ]
        return listed, found.next

    # -- what comes in ---------------------------------------------------------------------------

    async def form(self) -> dict[str, list[str]]:
        """The fields of the form that was sent. Raises as :meth:`fields`."""
        return (await self.fields()).texts

    async def fields(self) -> Fields:
        """The fields and the files of the form that was sent.

        Raises:
            UnreadableBody, MessageTooLarge, SlowBody
        """
        if self._fields is None:
            given = self.call.request.headers.get(hdrs.CONTENT_TYPE, "")
            kind = given.partition(";")[0].strip().lower()
            if kind not in (PLAIN, WITH_FILES):
                raise UnreadableBody(f"expected a form, {PLAIN}")
            files = kind == WITH_FILES
            limit = FORM_BYTES + (self.spool.context.max_message_bytes if files else 0)
            body = await self.call.body(limit, self.service.read_timeout)
            read = partial(with_files, body, given) if files else partial(plain, body)
            work = len(body) if files else work_of(body)
            self._fields = await self.service.beside(work, read)
        return self._fields

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the address, from 0 to ``most``. Raises InvalidValue."""
        given = self.query.get(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal() and len(given) < 16 and int(given) <= most):
            raise InvalidValue(name, f"must be a whole number from 0 to {most}")
        return int(given)

    # -- what goes out ---------------------------------------------------------------------------

    async def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """A whole page."""
        text = await self.service.in_thread(self.render, template, values)
        return self._rendering.answer(text, status)

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The text of a template; it takes milliseconds."""
        return self._rendering.render(template, self, values)

    def go(self, address: str) -> Response:
        """An answer that leads the browser to another page."""
        return self._rendering.answer("", HTTPStatus.SEE_OTHER, {hdrs.LOCATION: address})


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """The first parameters of an address: no page writes more of them."""
    first = "&".join(query.split("&", _MOST_PARAMETERS)[:_MOST_PARAMETERS])
    return pairs(first, _MOST_PARAMETERS, "surrogateescape")


def _quoted(segment: str) -> str:
    # Names of files are bytes; what is no UTF-8 comes back as the bytes that it was.
    return quote(segment, safe="", errors="surrogateescape") if segment else ""
