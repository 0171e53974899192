"""The pages as a dialect: their routes, login, and pages for errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar, Self, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from aiohttp import hdrs
from aiohttp.web import BaseRequest, Response, StreamResponse

from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchQueue

from ..describe import Answer, Operation
from ..dialect import Dialect
from ..guard.access import Identity
from ..guard.origin import Origins
from ..problems import MethodNotAllowed, NotFound, Unauthorized, problem_type
from ..problems import problem as api_problem
from ..routing import needs
from ..routing.call import Call
from ..routing.needs import Need
from ..service.service import Service
from .actions import Actions
from .forms import plain
from .page_request import MOST_ADDRESS_BYTES, PageRequest, UiOptions
from .pages.channel_actions import ChannelActions
from .pages.channel_pages import ChannelPages
from .pages.cluster_pages import ClusterPages
from .pages.dead_pages import DeadPages
from .pages.log_actions import LogActions
from .pages.log_pages import LogPages
from .pages.message_pages import MessagePages
from .pages.overview_pages import OverviewPages
from .pages.queue_pages import QueuePages
from .pages.schedule_pages import SchedulePages
from .pages.topic_pages import TopicPages
from .pages.work_pages import WorkPages
from .queue_actions import QueueActions
from .rendering import HEADERS, Rendering
from .session import Sessions
from .streams import Streams

Handler: TypeAlias = Callable[[PageRequest], Awaitable[StreamResponse]]
# How long the answer to a wrong key is delayed, so that attempts do not fill the log.
_REFUSED_S = 0.5
# Room for a key, and an address of these pages; small, because the sender is not identified yet.
_LOGIN_BYTES = 16 * 1024
# Of an address before its parameters: each link has as many "../" as that has slashes.
_MOST_PATH_BYTES = 4 * 1024


def operation(name: str, summary: str, *, is_open: bool = False) -> Operation:
    """The description of a page."""
    answers = {200: Answer("The page"), 401: Answer("A login is needed")}
    return Operation(id=name, tag="Pages", summary=summary, answers=answers, open=is_open)


class Ui(Dialect):
    """The pages of ``/_ui``."""

    name: ClassVar[str] = "ui"
    prefixes: ClassVar[frozenset[str]] = frozenset({"_ui"})
    in_document = False  # the pages are not an API

    def __init__(self, service: Service, options: UiOptions | None = None) -> None:
        super().__init__(service)
        options = options or UiOptions()
        self._service = service
        self._options = options
        self._sessions = Sessions(service.spool.tree, service.access)
        self._rendering = Rendering(service.spool.tree.root.name or "/")
        add = self.router.add
        for method in ("GET", "HEAD"):
            add(method, "/_ui", self._to_slash, operation("ui", "To the pages", is_open=True))
            add(
                method,
                "/_ui/static/{digest}/{name}",
                self._static,
                operation("ui_static", "A file that pages load", is_open=True),
            )
        self.page("GET", "login", self._login_page, "The login", None)
        self.page("POST", "login", self._login, "Log in", None)
        self.page("POST", "logout", self._logout, "Log out", None)
        streams, actions = Streams(), Actions()
        OverviewPages(streams).add_pages(self.page)
        QueuePages(streams).add_pages(self.page)
        MessagePages(bodies=options.bodies).add_pages(self.page)
        DeadPages().add_pages(self.page)
        ClusterPages().add_pages(self.page)
        WorkPages(streams, actions).add_pages(self.page)
        TopicPages(streams, actions).add_pages(self.page)
        LogPages(streams, options).add_pages(self.page)
        ChannelPages(streams).add_pages(self.page)
        SchedulePages(streams, actions).add_pages(self.page)
        if options.may_act:
            QueueActions(actions).add_pages(self.page)
            LogActions(actions).add_pages(self.page)
            ChannelActions(actions).add_pages(self.page)

    @classmethod
    def make(cls, service: Service, settings: Mapping[str, Any]) -> Self:
        may_act, bodies = settings["ui"] == "on", settings["ui_bodies"] == "on"
        return cls(service, UiOptions(may_act=may_act, bodies=bodies))

    def page(
        self,
        method: str,
        path: str,
        handler: Handler,
        summary: str,
        need: Need | None = needs.anybody,
    ) -> None:
        """Add a page at ``/_ui/<path>``; need: None for one that is open to everybody.

        Routes of buttons are not added if the pages have no buttons.
        """
        if method == "POST" and need is not None and not self._options.may_act:
            return
        name = "ui_" + ("".join(c if c.isalpha() else "_" for c in path).strip("_") or "overview")

        async def answer(call: Call) -> StreamResponse:
            return await self._answer(call, handler)

        described = operation(f"{name}_{method.lower()}", summary, is_open=need is None)
        for one in (method, "HEAD") if method == "GET" else (method,):
            self.router.add(one, f"/_ui/{path}", answer, described, need)

    def admit(self, origins: Origins, request: BaseRequest) -> None:
        origins.check_page(request.method, request.headers)
        address = request.raw_path
        if len(address) > MOST_ADDRESS_BYTES or len(address.partition("?")[0]) > _MOST_PATH_BYTES:
            raise InvalidValue(
                "address",
                f"has more than {MOST_ADDRESS_BYTES} bytes, or more than {_MOST_PATH_BYTES} before"
                " its parameters",
            )

    def problem(self, error: FsmqError) -> Response:
        """The answer to an error before the sender is identified: without a page around it."""
        answer = api_problem(error)
        answer.headers.update(HEADERS)
        return answer

    # -- a request ---------------------------------------------------------------------------------

    async def identify(self, call: Call) -> Identity:
        await self._service.in_thread(self._sessions.prepare)
        found = None
        if call.needs_keys and hdrs.AUTHORIZATION not in call.request.headers:
            found = self._sessions.identity(call.request)
        return call.identify_bearer() if found is None else call.enter(found)

    async def refuse(self, call: Call, error: FsmqError) -> Response:
        if call.identity is None:
            if not isinstance(error, NotFound | MethodNotAllowed):
                return self.problem(error)
            try:
                await self.identify(call)
            except FsmqError as refused:
                return self.problem(refused)
        if call.identity is None:
            return self.problem(error)
        return await self._explained(self._request(call, call.identity), error)

    async def _answer(self, call: Call, handler: Handler) -> StreamResponse:
        # An open page shows the identity of the visitor, too.
        request = self._request(call, call.identity or await self.identify(call))
        if not call.operation.open:
            await request.look_for_warnings()
        return await handler(request)

    def _request(self, call: Call, identity: Identity) -> PageRequest:
        return PageRequest(call, identity, self._service, self._rendering, self._options)

    async def _explained(self, request: PageRequest, error: FsmqError) -> Response:
        """The answer to an error: a redirect to the login, or a page."""
        if isinstance(error, Unauthorized):
            here = request.call.request.raw_path
            return request.go(request.url("login") + f"?to={quote(here, safe='')}")
        status, _, title = problem_type(error)
        title = "Page not found" if isinstance(error, NotFound) else title
        back = request.url() + _own(_came_from(request.call.request))
        near: list[str] = []
        if isinstance(error, NoSuchQueue):
            with suppress(FsmqError):  # the page is about another error
                near = await request.near(error.queue, 3)
        values = {"title_of_error": title, "error": error, "status": status}
        values |= {"back": back, "near": near}
        answer = await request.page("error.html", values, status)
        answer.headers.update(api_problem(error).headers.copy() if status in (429, 503) else {})
        answer.content_type = "text/html"
        return answer

    # -- pages without rights --------------------------------------------------------------------

    async def _to_slash(self, call: Call) -> StreamResponse:
        headers = {**HEADERS, hdrs.LOCATION: "_ui/"}
        return Response(status=HTTPStatus.PERMANENT_REDIRECT, headers=headers)

    async def _static(self, call: Call) -> StreamResponse:
        asset = self._rendering.assets.get(call.names["name"])
        if asset is None or asset.digest != call.names["digest"]:
            raise NotFound(call.request.raw_path)
        headers = {
            **HEADERS,
            hdrs.CONTENT_TYPE: f"{asset.kind}; charset=utf-8",
            hdrs.CACHE_CONTROL: "public, max-age=31536000, immutable",
            hdrs.VARY: hdrs.ACCEPT_ENCODING,
        }
        if "gzip" in call.request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            headers[hdrs.CONTENT_ENCODING] = "gzip"
            return Response(body=asset.packed, headers=headers)
        return Response(body=asset.content, headers=headers)

    async def _login_page(
        self, request: PageRequest, problem: str = "", status: int = 200
    ) -> Response:
        values = {
            "to": request.query.get("to", ""),
            "needs_keys": request.call.needs_keys,
            "problem": problem,
        }
        return await request.page("login.html", values, status)

    async def _login(self, request: PageRequest) -> StreamResponse:
        form = plain(await request.call.body(_LOGIN_BYTES, self._service.read_timeout)).texts
        token = form.get("key", [""])[0].strip()
        try:
            identity = self._service.access.identify(token)
        except Unauthorized as error:
            await asyncio.sleep(_REFUSED_S)
            return await self._login_page(request, str(error), HTTPStatus.UNAUTHORIZED)
        # Relative, as all our addresses are.
        answer = request.go(request.url() + _own(form.get("to", [""])[0]))
        self._sessions.begin(request.call.request, answer, identity)
        return answer

    async def _logout(self, request: PageRequest) -> StreamResponse:
        answer = request.go(request.url("login"))
        self._sessions.end(answer)
        return answer


def _came_from(request: BaseRequest) -> str:
    """The page with the link or the form that leads here, without the notice at its top."""
    try:
        referrer = urlsplit(request.headers.get(hdrs.REFERER, ""))
    except ValueError:
        return ""
    # A proxy may have the pages below any path.
    page = referrer.path.partition("/_ui/")[2]
    noted = ("did", "n", "of")
    query = [one for one in referrer.query.split("&") if one.partition("=")[0] not in noted]
    here = request.raw_path.partition("/_ui/")[2]
    came = page + "?" * any(query) + "&".join(query)
    return "" if came == here and request.method == "GET" else f"/_ui/{came}"


def _own(address: str) -> str:
    """What follows ``/_ui/`` in an address of these pages; empty for any other."""
    rest = address.removeprefix("/_ui/")
    # Browsers treat "\\" as "/", and ".." leads to other paths, percent-encoded or not.
    segments = map(unquote, re.split(r"[?#]", rest)[0].split("/"))
    strange = "\\" in rest or ".." in segments or rest[:1] == "/"
    return "" if rest == address or strange or not rest.isprintable() else rest
