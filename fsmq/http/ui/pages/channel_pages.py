"""The pages of one channel of a log: its state and its settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp.web import StreamResponse

from fsmq.spool.errors import NoSuchChannel

from ...guard import access
from ...routing import needs
from ..page_request import PageRequest
from ..setting_fields import OF_CHANNEL
from ..streams import Streams, Values
from .log_pages import channel_row, overview_of


class ChannelPages:
    """Handlers of the pages of channels."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def add_pages(self, add: Callable[..., None]) -> None:
        path = "logs/{log}/c/{channel}"
        add("GET", path, self.channel, "One channel of a log", needs.channel())
        add("GET", f"{path}/settings", self.settings, "Its settings", needs.channel())

    async def channel(self, request: PageRequest) -> StreamResponse:
        return await self._streams.page_or_stream(
            request, "channel.html", "channel_live.html", partial(_channel, request)
        )

    async def settings(self, request: PageRequest) -> StreamResponse:
        return await request.page(*await settings_page(request))


async def channel_page(request: PageRequest) -> tuple[str, Values]:
    """The state of a channel, below a form that was refused."""
    return "channel.html", {**await _channel(request), "region": "channel_live.html"}


async def settings_page(request: PageRequest) -> tuple[str, Values]:
    """The settings of a channel, as a form for its admins."""
    log, channel = request.call.channel
    state = await request.service.logs.state((log, channel))
    on, place = access.channel(log, channel), request.url("logs", log, "c", channel)
    values = OF_CHANNEL.page(
        request, state.settings, on, place, f"fsmq channel config {log} {channel}"
    )
    return "channel.html", {**values, **_names(request), "state": state, "tab": "settings"}


def _names(request: PageRequest) -> Values:
    log, channel = request.call.channel
    sees_log = request.identity.may_see(access.log(log))
    return {
        "log": log,
        "channel": channel,
        "on": access.channel(log, channel),
        "sees_log": sees_log,
    }


async def _channel(request: PageRequest) -> Values:
    log, channel = request.call.channel
    overview = await overview_of(request)
    if channel not in overview.stats.channels:
        raise NoSuchChannel(log, channel)
    row = channel_row(log, channel, overview)
    state = row.state
    if state is None:  # the reason why it cannot be read
        state = await request.service.logs.state((log, channel))
    stuck = state.blocked_at if state.blocked_at is not None else state.unburied_at
    return {
        **_names(request),
        "tab": "state",
        "may_read": request.identity.may("look", access.log(log)),
        "state": state,
        "since_at": row.since,
        "row": row,
        "stuck": stuck,
        "end": overview.stats.next,
    }
