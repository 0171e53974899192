"""Live pages: a page's figures again whenever they change, as server-sent events.

An event holds the whole region of the page, and none builds on an earlier one, so a browser that
comes back needs no memory of ours. All who look at the same page with the same key share one
rendering.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

from aiohttp import hdrs
from aiohttp.web import StreamResponse
from aiohttp_sse import EventSourceResponse

from ..problems import TooManyRequests
from .rendering import HEADERS
from .visit import Visit

Render: TypeAlias = Callable[[], Awaitable[str]]
Values: TypeAlias = dict[str, Any]
EVERY_S = 2.0
MAX_STREAMS, MAX_STREAMS_PER_KEY = 64, 8
# Then the browser comes back: with another key, or none, it is not let in.
_MOST_S = 600.0
_PING_S = 15.0
_RETRY_S = 10
_LINE_END = re.compile(r"\r\n|\r|\n")
# Who takes no byte for so long is gone.
_TAKEN_S = 60.0
_MEDIA = "text/event-stream"
_PARTIAL = '<hx-partial hx-target="#{}" hx-swap="innerMorph">{}</hx-partial>'


class _Rendered(NamedTuple):
    until: float  # monotonic seconds
    event: asyncio.Future[bytes]


class Streams:
    """The streams of one process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._rendered: dict[tuple[str, str], _Rendered] = {}

    def __len__(self) -> int:
        return self._open.total()

    @staticmethod
    def wanted(visit: Visit) -> bool:
        """Whether the browser asks for the stream of a page, and not for the page."""
        return _MEDIA in visit.call.request.headers.get(hdrs.ACCEPT, "")

    async def page_or_stream(
        self,
        visit: Visit,
        page: str,
        region: str,
        values: Callable[[], Awaitable[Values]],
        more: Callable[[], Awaitable[Values]] | None = None,
    ) -> StreamResponse:
        """A page, or the stream of what changes in it: the template ``region``.

        more: values of what does not change.
        """
        if not self.wanted(visit):
            rest = {} if more is None else await more()
            return await visit.page(page, {**await values(), **rest, "region": region})

        async def render() -> str:
            found = await values()
            await visit.look_for_troubles()
            parts = {
                "live": await visit.service.in_thread(visit.render, region, found),
                "troubles": visit.render("troubles.html", {}),
            }
            return "".join(starmap(_PARTIAL.format, parts.items()))

        return await self.answer(visit, render)

    async def answer(self, visit: Visit, render: Render) -> StreamResponse:
        """Send regions of a page, now and whenever they have changed.

        render: makes their HTML, each in an element that says where it belongs.

        Raises:
            TooManyRequests: there are too many streams; the page looks again later.
        """
        request = visit.call.request
        key = (request.raw_path, visit.identity.name)
        with self._counted(visit):
            response = EventSourceResponse(headers=HEADERS, ping_interval=_PING_S)
            response.headers[hdrs.CACHE_CONTROL] = "no-store"
            await response.prepare(request)
            with suppress(ConnectionError, TimeoutError):
                async with response:
                    await self._send_all(response, visit, key, render)
        response.force_close()
        return response

    async def _send_all(
        self,
        response: EventSourceResponse,
        visit: Visit,
        key: tuple[str, str],
        render: Render,
    ) -> None:
        end = time.monotonic() + _MOST_S
        sent = b""
        while time.monotonic() < end and not visit.identity.stale and response.is_connected():
            event = await self._shared(key, render)
            if event != sent:
                # Written once for all who look, and not once for each, as `send` does.
                async with asyncio.timeout(_TAKEN_S):
                    await response.write(event)
                sent = event
            with suppress(TimeoutError):
                await asyncio.wait_for(visit.service.ended.wait(), EVERY_S)
                return

    async def _shared(self, key: tuple[str, str], render: Render) -> bytes:
        now = time.monotonic()
        known = self._rendered.get(key)
        if known is None or now >= known.until:
            self._rendered = {k: one for k, one in self._rendered.items() if one.until > now}
            # A little less than a round, so that everyone's next one finds a new rendering.
            known = _Rendered(now + 0.9 * EVERY_S, asyncio.ensure_future(_event(render)))
            self._rendered[key] = known
        return await asyncio.shield(known.event)

    @contextmanager
    def _counted(self, visit: Visit) -> Iterator[None]:
        name = visit.identity.name
        most = MAX_STREAMS if visit.identity.account is None else MAX_STREAMS_PER_KEY
        if len(self) >= MAX_STREAMS or self._open[name] >= most:
            raise TooManyRequests("there are too many live pages; this one looks again", _RETRY_S)
        self._open[name] += 1
        self._report(visit)
        try:
            yield
        finally:
            self._open[name] -= 1
            self._report(visit)

    def _report(self, visit: Visit) -> None:
        visit.spool.context.metrics.set(("ui_streams",), len(self))


async def _event(render: Render) -> bytes:
    """What is rendered, as an event of a stream (WHATWG HTML, section 9.2)."""
    text = await render()
    return "".join(f"data: {line}\n" for line in _LINE_END.split(text)).encode() + b"\n"
