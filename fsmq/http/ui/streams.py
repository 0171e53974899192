"""Live pages: a page's figures again whenever they change, as server-sent events.

An event holds the whole region of the page, and none builds on an earlier one, so a browser that
comes back needs no memory of ours. All who look at the same page with the same rights share one
rendering, and where nothing has changed nothing is sent: browsers count ages on by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from itertools import starmap
from typing import Any, TypeAlias

from aiohttp import hdrs
from aiohttp.web import StreamResponse
from aiohttp_sse import EventSourceResponse

from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.duty_cycle import DutyCycle

from ..connection.render import sign
from ..problems import TooManyRequests
from .page_request import PageRequest
from .rendering import HEADERS

log = logging.getLogger(__name__)
Render: TypeAlias = Callable[[], Awaitable[str]]
Values: TypeAlias = dict[str, Any]
EVERY_S = 2.0
MAX_STREAMS, MAX_STREAMS_PER_KEY = 64, 8
# To render all pages that are looked at takes this share of the time; but each comes again within
# half a minute.
_THROTTLE = DutyCycle(0.05, least_s=EVERY_S)
_SELDOM_S = 30.0
# Then the browser comes back: with another key, or none, it is not let in.
_MOST_S = 600.0
_PING_S = 15.0
_RETRY_S = 10
_LINE_END = re.compile(r"\r\n|\r|\n")
# What browsers count on by themselves is no change.
_AGE = re.compile(r'(<span data-(?:since|until)="[0-9.]*">)[^<]*')
# Who takes no byte for so long is gone.
_TAKEN_S = 60.0
_MEDIA = "text/event-stream"
_PARTIAL = '<hx-partial hx-target="#{}" hx-swap="innerMorph">{}</hx-partial>'


class Viewer:
    """Somebody who looks at a live page. awake: set where there may be something to do."""

    def __init__(self, request: PageRequest) -> None:
        self.awake = asyncio.Event()
        self._request = request
        self._until = time.monotonic() + min(_MOST_S, request.identity.seconds_left)

    @property
    def seconds_left(self) -> float:
        """For how long it may look, at most."""
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
    """A page as all see it who have the same rights, rendered again as long as one of them looks.

    event: what is to be sent. costs: seconds that the last rendering of each page took.
    """

    def __init__(self, render: Render, ended: asyncio.Event, costs: dict[Live, float]) -> None:
        self.viewers: set[Viewer] = set()
        self.event = b""
        self._costs = costs
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.ensure_future(self._run(render, ended))
        self._running.add_done_callback(self._end)

    @property
    def is_over(self) -> bool:
        """Whether it is not rendered any more."""
        return self._running.done()

    def close(self) -> None:
        """Render it no more."""
        self._running.cancel()

    def _end(self, running: asyncio.Task[None]) -> None:
        self._costs.pop(self, None)
        for viewer in self.viewers:
            viewer.awake.set()
        # Browsers come again, and get an error that we know as their answer.
        problem = None if running.cancelled() else running.exception()
        if problem is not None and not isinstance(problem, FsmqError):
            log.error("a live page cannot be rendered", exc_info=problem)

    async def first(self) -> None:
        """Wait for the first event. Raises what the rendering raises."""
        await asyncio.wait([self._first, self._running], return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self._running.result()

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
        """Whether the browser asks for the stream of a page, and not for the page."""
        http = request.call.request
        return http.method == "GET" and _MEDIA in http.headers.get(hdrs.ACCEPT, "")

    async def page_or_stream(
        self,
        request: PageRequest,
        page: str,
        region: str,
        values: Callable[[], Awaitable[Values]],
        more: Callable[[], Awaitable[Values]] | None = None,
    ) -> StreamResponse:
        """A page, or the stream of what changes in it: the template ``region``.

        more: values of what does not change.
        """
        if not self.wanted(request):
            rest = {} if more is None else await more()
            return await request.page(page, {**await values(), **rest, "region": region})

        async def render() -> str:
            found = await values()
            await request.look_for_warnings()
            parts = {
                "live": await request.service.in_thread(request.render, region, found),
                "warnings": request.render("warnings.html", {}),
            }
            return "".join(starmap(_PARTIAL.format, parts.items()))

        return await self.answer(request, render)

    async def answer(self, request: PageRequest, render: Render) -> StreamResponse:
        """Send regions of a page, now and whenever they have changed.

        render: makes their HTML, each in an element that says where it belongs.

        Raises:
            TooManyRequests: there are too many streams; the page looks again later.
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
                # Written once for all who look, and not once for each, as `send` does.
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
            raise TooManyRequests("there are too many live pages; this one looks again", _RETRY_S)
        self._open[name] += 1
        self._report(request)
        try:
            yield
        finally:
            self._open[name] -= 1
            self._report(request)

    def _report(self, request: PageRequest) -> None:
        request.spool.context.metrics.set(("ui_streams",), len(self))


def _event(text: str) -> bytes:
    """What is rendered, as an event of a stream (WHATWG HTML, section 9.2)."""
    return "".join(f"data: {line}\n" for line in _LINE_END.split(text)).encode() + b"\n"
