"""Live pages: sends a page's figures again whenever they change, as server-sent events.

An event has the whole region of the page and does not depend on earlier ones, so no state is needed
for browsers that reconnect. All viewers of a page with the same rights share one rendering. Nothing
is sent if nothing has changed: browsers advance ages by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import starmap
from typing import Any, TypeAlias

from aiohttp import hdrs
from aiohttp.web import StreamResponse
from aiohttp_sse import EventSourceResponse

from fsmq.spool.checks import DutyCycle
from fsmq.spool.errors import FsmqError

from ..connection.render import sign
from ..problems import TooManyRequests
from .page_request import PageRequest
from .rendering import HEADERS

log = logging.getLogger(__name__)
Render: TypeAlias = Callable[[], Awaitable[str]]
Values: TypeAlias = dict[str, Any]
EVERY_S = 2.0
MAX_STREAMS, MAX_STREAMS_PER_KEY = 64, 8
# Rendering all live pages takes this share of the time at most; but each page is rendered at least
# twice a minute.
_THROTTLE = DutyCycle(0.05, least_s=EVERY_S)
_SELDOM_S = 30.0
# Then the stream ends, and the browser reconnects, so that its key is checked again.
_MOST_S = 600.0
_PING_S = 15.0
_RETRY_S = 10
_LINE_END = re.compile(r"\r\n|\r|\n")
# Ages, which browsers advance by themselves, do not count as changes.
_AGE = re.compile(r'(<span data-(?:since|until)="[0-9.]*">)[^<]*')
# A client that takes no byte for this time is gone.
_TAKEN_S = 60.0
_MEDIA = "text/event-stream"
_PARTIAL = '<hx-partial hx-target="#{}" hx-swap="innerMorph">{}</hx-partial>'


class Viewer:
    """A viewer of a live page. awake: set when there may be something to send or to end."""

    def __init__(self, request: PageRequest) -> None:
        self.awake = asyncio.Event()
        self._request = request
        self._until = time.monotonic() + min(_MOST_S, request.identity.seconds_left)

    @property
    def seconds_left(self) -> float:
        """For how long it may still look, at most."""
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent."""
        request = self._request
        is_late = time.monotonic() >= self._until
        return (
            is_late or request.identity.is_over or request.call.is_gone or request.service.stopping
        )


class Live:
    """A page for all viewers with the same rights, rendered again while at least one looks.

    event: the newest event. costs: the seconds that the last rendering of each page took.
    """

    def __init__(self, render: Render, ended: asyncio.Event, costs: dict[Live, float]) -> None:
        self.viewers: set[Viewer] = set()
        self.event = b""
        self._costs = costs
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # In no request's context: it goes on when the first viewer has gone.
        running = asyncio.create_task(self._run(render, ended), context=Context())
        self._running: asyncio.Task[None] | None = running
        running.add_done_callback(self._end)

    @property
    def is_over(self) -> bool:
        """Whether it is not rendered any more."""
        return self._running is None or self._running.done()

    def close(self) -> None:
        """Stop rendering it."""
        if self._running is not None:
            self._running.cancel()

    def _end(self, running: asyncio.Task[None]) -> None:
        # How it ended leads back to this, which would be kept until the collector runs.
        self._running = None
        self._costs.pop(self, None)
        for viewer in self.viewers:
            viewer.awake.set()
        # An FsmqError is not logged: browsers reconnect, and get it as their answer.
        problem = None if running.cancelled() else running.exception()
        if problem is not None and not isinstance(problem, FsmqError):
            log.error("a live page cannot be rendered", exc_info=problem)

    async def first(self) -> None:
        """Wait for the first event. Raises what the rendering raises."""
        if (running := self._running) is not None:
            await asyncio.wait([self._first, running], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()

    async def _run(self, render: Render, ended: asyncio.Event) -> None:
        seen = ""
        while not ended.is_set():
            started = time.monotonic()
            text = await render()
            self._costs[self] = time.monotonic() - started
            bare = _AGE.sub(r"\1", text)
            if is_new := bare != seen:
                seen, self.event = bare, _event(text)
                if not self._first.done():
                    self._first.set_result(None)
            for viewer in self.viewers:
                if is_new or viewer.is_over:
                    viewer.awake.set()
            pause = min(_SELDOM_S, _THROTTLE.pause(sum(self._costs.values())))
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), pause)


class Streams:
    """The streams of one process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._live: dict[Hashable, Live] = {}
        self._costs: dict[Live, float] = {}

    def __len__(self) -> int:
        return self._open.total()

    @staticmethod
    def wanted(request: PageRequest) -> bool:
        """Whether the browser asks for the stream of a page instead of the page."""
        http = request.call.request
        return http.method == "GET" and _MEDIA in http.headers.get(hdrs.ACCEPT, "")

    async def page_or_stream(
        self,
        request: PageRequest,
        page: str,
        region: str,
        values: Callable[[], Awaitable[Values]],
        more: Callable[[], Awaitable[Values]] | None = None,
        also: Mapping[str, str] | None = None,
    ) -> StreamResponse:
        """A page, or the stream of its changing part, the template ``region``.

        more: the values of the rest. also: templates of further parts that change, by the id of
        the element with each; they have the same values.
        """
        if not self.wanted(request):
            rest: Values = {}
            if more is None:
                found = await values()
            else:
                found, rest = await asyncio.gather(values(), more())
            return await request.page(page, {**found, **rest, "region": region})

        async def render() -> str:
            found = await values()
            await request.look_for_warnings()
            parts = {"warnings": request.render("warnings.html", {})}
            for part, template in {"live": region, **(also or {})}.items():
                parts[part] = await request.service.in_thread(request.render, template, found)
            return "".join(starmap(_PARTIAL.format, parts.items()))

        return await self.answer(request, render)

    async def answer(self, request: PageRequest, render: Render) -> StreamResponse:
        """Send regions of a page, now and whenever they have changed.

        render: makes their HTML, each in an element that names its target.

        Raises:
            TooManyRequests: there are too many streams; the page tries again later.
        And what the first rendering raises.
        """
        with self._counted(request), self._looking(request, render) as (viewer, live):
            await live.first()
            response = EventSourceResponse(headers=HEADERS, ping_interval=_PING_S)
            sign(response.headers)
            await response.prepare(request.call.request)
            with suppress(ConnectionError, TimeoutError):
                async with response:
                    await self._send_all(response, viewer, live)
        response.force_close()
        return response

    @staticmethod
    async def _send_all(response: EventSourceResponse, viewer: Viewer, live: Live) -> None:
        sent = b""
        while response.is_connected() and not viewer.is_over and not live.is_over:
            viewer.awake.clear()
            if (event := live.event) is not sent:
                # Formatted once for all viewers; `send` would format it for each.
                async with asyncio.timeout(_TAKEN_S):
                    await response.write(event)
                sent = event
            await viewer.awake.wait()

    @contextmanager
    def _looking(self, request: PageRequest, render: Render) -> Iterator[tuple[Viewer, Live]]:
        key = (request.call.request.raw_path, request.identity.rights, request.is_near)
        live = self._live.get(key)
        if live is None or live.is_over:
            live = self._live[key] = Live(render, request.service.ended, self._costs)
        viewer = Viewer(request)
        live.viewers.add(viewer)
        request.call.on_hang_up(viewer.awake.set)
        end = asyncio.get_running_loop().call_later(viewer.seconds_left, viewer.awake.set)
        try:
            yield viewer, live
        finally:
            end.cancel()
            request.call.on_hang_up(None)
            live.viewers.discard(viewer)
            if not live.viewers:
                live.close()
                if self._live.get(key) is live:
                    del self._live[key]

    @contextmanager
    def _counted(self, request: PageRequest) -> Iterator[None]:
        name = request.identity.name
        most = MAX_STREAMS if request.identity.account is None else MAX_STREAMS_PER_KEY
        if len(self) >= MAX_STREAMS or self._open[name] >= most:
            raise TooManyRequests("there are too many live pages; this one tries again", _RETRY_S)
        self._open[name] += 1
        self._report(request)
        try:
            yield
        finally:
            self._open -= Counter((name,))  # which drops those without any
            self._report(request)

    def _report(self, request: PageRequest) -> None:
        request.spool.context.metrics.set(("ui_streams",), len(self))


def _event(text: str) -> bytes:
    """A text as an event of a stream (WHATWG HTML, section 9.2)."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(text))
    return lines.encode("utf-8", "replace") + b"\n"  # as a page: names of files can be any bytes
