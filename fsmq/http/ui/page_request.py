"""One request for a page: the visitor, the parameters, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import hdrs
from aiohttp.web import Response

from fsmq.spool import QueueSettings
from fsmq.spool.errors import FsmqError, InvalidValue
from fsmq.wire import unquote_id
from fsmq.words import similar

from ..connection.leftovers import forget_frames
from ..guard import access
from ..guard.access import Identity
from ..guard.keys import Right
from ..problems import Forbidden, UnreadableBody, problem_type
from ..routing.call import Call
from ..routing.form_reader import pairs, work_of
from ..service.service import Service
from .forms import MOST_TEXT_BYTES, PLAIN, WITH_FILES, Fields, plain, with_files
from .notices import MOST_UNDONE, NOTICES, OF_SOME, UNDO
from .rendering import Rendering

# Pages have their address in many of their links.
MOST_ADDRESS_BYTES = 16 * 1024
# How long a page waits for fresh figures and warnings before it shows those that are known.
PATIENCE_S = 0.1
_MOST_PARAMETERS = 100
# What was typed into a form, shown again: each sign may become five, as text and as bytes.
_SHOWN_TIMES = 10
_PREFIX = "/_ui/"
# The names of fields, by those that the engine has for them.
_FIELDS = {"schedule": "name", "id": "own_id"}
# In which part of the pages an address is, by its first segment.
_SECTIONS = {"q": "queues", "new": "queues", "new-topic": "topics", "new-log": "logs"}
_OPEN = "There are no keys, and other hosts can reach mq: everybody who reaches it may do anything."


@dataclass(frozen=True)
class UiOptions:
    """What the pages may show and do.

    may_act: whether they have buttons. bodies: whether they show bodies of messages.
    """

    may_act: bool = True
    bodies: bool = True


class PageRequest:
    """A request as handlers of pages see it.

    query: the parameters of the address; the last value of one that is given twice.
    may_act, bodies: from the options.
    problem: why a form was refused; its page is shown again with what was typed.
    places: the pages in the navigation: their addresses and names.
    """

    places = (
        ((), "Overview"),
        (("queues",), "Queues"),
        (("dead",), "Dead letters"),
        (("topics",), "Topics"),
        (("logs",), "Logs"),
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
        self.problem: FsmqError | None = None
        self._typed: Mapping[str, Sequence[str]] = {}
        self._rendering = rendering
        self._fields: Fields | None = None
        path = call.request.raw_path.partition("?")[0]
        # All links are relative, so that the pages work below any path of a proxy.
        self._up = "../" * (path.count("/") - _PREFIX.count("/")) or "./"

    @property
    def now(self) -> float:
        """The current time, in Unix seconds."""
        return self.spool.context.clock()

    def mark_of(self, *segments: str) -> str:
        """How the navigation marks a page there: ``page`` if it is this one, ``true`` if this one
        is below it; else empty.
        """
        here = self.call.request.raw_path.partition("?")[0].removeprefix(_PREFIX)
        place = "/".join(segments)
        if here == place:
            return "page"
        first = here.partition("/")[0]
        return "true" if place and _SECTIONS.get(first, first) == place else ""

    @property
    def notice(self) -> str:
        """The text about the action before this page, from a word and a number in the address."""
        number = self.query.get("n", "")
        text = NOTICES.get(self.query.get("did", ""), "")
        return text.format(n=number if number.isascii() and number.isdecimal() else "0")

    @property
    def undo(self) -> Sequence[tuple[str, str]]:
        """The fields of a form that undoes the action before this page; empty if nothing does."""
        did, of = self.query.get("did", ""), self.query.get("of", "")
        right, fields = UNDO.get(did, ("look", {}))
        names = self.call.names
        on = names.get("queue") or ("topic" in names and access.topic(names["topic"]))
        if not on or not self.may(right, on) or (not of and did in OF_SOME):
            return ()
        ids = [("message", one) for one in self._sent]
        return [*((name, value.format(of=of)) for name, value in fields.items()), *ids]

    @property
    def _sent(self) -> Sequence[str]:
        """The ids of messages that were just sent, percent-encoded; empty if there are too many."""
        of = self.query.get("of", "") if self.query.get("did") == "sent" else ""
        ids = of.split(",", MOST_UNDONE)
        return ids if of and len(ids) <= MOST_UNDONE else ()

    @property
    def sent(self) -> Sequence[str]:
        """The ids of several messages that were just sent; empty on the page of a message."""
        ids = [unquote_id(one) for one in self._sent]
        return ids if "id" not in self.call.names and "queue" in self.call.names else ()

    @property
    def form_url(self) -> str:
        """The address of forms for the queue or the topic of this page."""
        names = self.call.names
        kind = "queue" if "queue" in names else "topic"
        return self.url("q" if kind == "queue" else "topics", names[kind])

    @property
    def rights(self) -> str:
        """The rights of the key, in words."""
        key = self.identity.key
        if key is None:
            return "without a key"
        named = key.grants.names.items()
        return "; ".join(f"{right} {', '.join(names)}" for right, names in named)

    async def look_for_warnings(self) -> None:
        """Find the warnings that each page shows at its top; those that take long come later."""
        inspector = self.service.inspector
        found, paused = await asyncio.gather(
            inspector.warnings.within(PATIENCE_S), inspector.long_paused.within(PATIENCE_S)
        )
        self.warnings = [
            *(found or ()),
            *(
                f"{queue} has been paused for more than a day, and stays so until it is resumed."
                for queue in paused or ()
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
        """Whether there can be a queue that the visitor may create."""
        key = self.identity.key
        granted = key is None and self.identity.account is None
        return self.may_act and (granted or (key is not None and "admin" in key.grants.names))

    def require_creation(self) -> None:
        """Raises Forbidden for those who may create nothing."""
        if not self.may_create:
            raise Forbidden("the key may create nothing, or these pages are read-only")

    def require(self, right: Right, queue: str) -> None:
        """Check a right before an action.

        Raises:
            Unauthorized, Forbidden
        """
        if not self.may_act:
            raise Forbidden("these pages are read-only: mq was started with --ui read-only")
        self.identity.require(right, queue)

    def settings_of(self, queues: Iterable[str]) -> dict[str, QueueSettings]:
        """The settings of those of some queues that the visitor may see."""
        found = {}
        for name in self.identity.visible(queues):
            with suppress(OSError):  # fsck reports it; it must not hide the others
                found[name] = self.spool.context.settings.get(name)
        return found

    async def near(self, name: str, most: int = 1) -> list[str]:
        """The queues that a misspelt name may have meant, of those that the visitor may see."""

        def look() -> list[str]:
            return similar(name, self.identity.visible(self.spool.queues()), most)

        return await self.service.listing(look)  # comparing with thousands takes long, too

    # -- addresses -------------------------------------------------------------------------------

    def url(self, *segments: str, **query: object) -> str:
        """The relative address of a page; leaves out values of ``query`` that are None or empty."""
        path = "/".join(_quoted(segment) for segment in segments)
        given = {name: value for name, value in query.items() if value not in (None, "")}
        tail = "?" + urlencode(given, errors="surrogateescape") if given else ""
        return f"{self._up}{path}{tail}"

    @property
    def here(self) -> str:
        """The address of this page without parameters, so that no name is read as a scheme."""
        return "./" + self.call.request.raw_path.partition("?")[0].rpartition("/")[2]

    @staticmethod
    def with_notice(address: str, word: str, number: int, of: str = "") -> str:
        """An address whose page reports an action, with a word of `NOTICES` and a number.

        of: the data needed to undo it; without it, if the address would be too long.
        """
        done = f"{address}{'&' if '?' in address else '?'}did={word}&n={number}"
        undo = f"&of={quote(of, safe='')}" if of else ""
        return done + undo if len(undo) <= MOST_ADDRESS_BYTES // 2 else done

    def again(self, **changes: object) -> str:
        """The address of this page with some parameters changed, or removed (None)."""
        query = {n: v for n, v in self.query.items() if n not in ("did", "n", "of")}
        given = {n: v for n, v in {**query, **changes}.items() if v not in (None, "")}
        return self.here + ("?" + urlencode(given, errors="surrogateescape") if given else "")

    def api(self, *segments: str) -> str:
        """The relative address of a resource of the API."""
        return self._up + "../" + "/".join(_quoted(segment) for segment in segments)

    # -- messages --------------------------------------------------------------------------------

    # -- forms and parameters --------------------------------------------------------------------

    async def form(self) -> dict[str, list[str]]:
        """The fields of the form that was sent. Raises as :meth:`fields`."""
        return (await self.fields()).texts

    async def field(self, name: str) -> str:
        """A field of the form that was sent; of several of this name the first one counts."""
        return (await self.form()).get(name, [""])[0].strip()

    async def fields(self) -> Fields:
        """The fields and the files of the form that was sent.

        Raises:
            UnreadableBody, MessageTooLarge, SlowBody, Overloaded, TooManyRequests
        """
        if self._fields is None:
            given = self.call.request.headers.get(hdrs.CONTENT_TYPE, "")
            kind = given.partition(";")[0].strip().lower()
            if kind not in (PLAIN, WITH_FILES):
                raise UnreadableBody(f"expected a form, {PLAIN}")
            files = kind == WITH_FILES
            limit = MOST_TEXT_BYTES + (self.spool.context.max_message_bytes if files else 0)
            body = await self.call.body(limit, self.service.read_timeout)
            read = partial(with_files, body, given) if files else partial(plain, body)
            work = len(body) if files else work_of(body)
            self.call.hold_made(len(body))  # until the body itself goes
            self._fields = await self.service.beside(work, read)
            self.call.free(len(body))
        return self._fields

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number of the address, from 0 to ``most``. Raises InvalidValue."""
        given = self.query.get(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdecimal() and len(given) < 16 and int(given) <= most):
            raise InvalidValue(name, f"must be a whole number from 0 to {most}")
        return int(given)

    def refused(self, problem: FsmqError | None, typed: Mapping[str, Sequence[str]]) -> None:
        """Let the page show what was typed, and what is wrong with it; None if nothing is."""
        forget_frames(problem)  # by them it leads back to this request, and to what was typed
        self.problem, self._typed = problem, typed

    def typed(self, name: str, default: str = "") -> str:
        """What was typed into a field, if its form is shown again."""
        return self._typed.get(name, [default])[0]

    @property
    def filled(self) -> list[str]:
        """The fields into which something was typed."""
        return [name for name, values in self._typed.items() if values[:1] != [""]]

    def is_typed(self, name: str, default: bool, sign: str) -> bool:
        """Whether a box was ticked. sign: a field that its form has in any case."""
        return name in self._typed if sign in self._typed else default

    def problem_of(self, name: str) -> str:
        """What is wrong with a field; empty if nothing is."""
        problem = self.problem
        is_its = isinstance(problem, InvalidValue) and _field(problem) == name
        return problem.problem if is_its and isinstance(problem, InvalidValue) else ""

    @property
    def problem_above(self) -> str:
        """What is wrong with no field in particular."""
        problem = self.problem
        if isinstance(problem, InvalidValue) and _field(problem) in self._typed:
            return ""
        return "" if problem is None else str(problem)

    # -- answers ---------------------------------------------------------------------------------

    async def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """A whole page. status: that of the problem, if a form is refused."""
        if self.problem is not None:
            status = problem_type(self.problem).status
        size = _SHOWN_TIMES * sum(len(one) for of in self._typed.values() for one in of)
        self.call.hold_made(size)
        text = await self.service.in_thread(self.render, template, values)
        answer = self._rendering.answer(text, status)
        self.call.free(size)
        return answer

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The text of a template; rendering takes milliseconds."""
        return self._rendering.render(template, self, values)

    def go(self, address: str) -> Response:
        """A redirect to another page."""
        return self._rendering.answer("", HTTPStatus.SEE_OTHER, {hdrs.LOCATION: address})


def _field(problem: InvalidValue) -> str:
    """The field that a problem is about: the engine calls some by other names."""
    return "attributes" if " " in problem.field else _FIELDS.get(problem.field, problem.field)


def _parameters(query: str) -> Iterator[tuple[str, str]]:
    """The first parameters of an address; our pages never use more."""
    first = "&".join(query.split("&", _MOST_PARAMETERS)[:_MOST_PARAMETERS])
    return pairs(first, _MOST_PARAMETERS, "surrogateescape")


def _quoted(segment: str) -> str:
    # Names of files are bytes; names that are not UTF-8 come back as the same bytes.
    return quote(segment, safe="", errors="surrogateescape") if segment else ""
