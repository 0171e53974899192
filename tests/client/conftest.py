"""Fixtures of both clients, with methods to await."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq import AsyncClient, Client, Spool
from tests.client.proxy import Proxy
from tests.harness.suite import Suite

Make = Callable[..., Any]


class Threaded:
    """The client for threads, or a queue, topic, log or schedule of it, with methods to await."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.wrapped, name)
        if name in ("queue", "topic", "log", "channel", "schedule"):
            return lambda of: Threaded(method(of))
        return lambda *of, **more: asyncio.to_thread(method, *of, **more)


@pytest.fixture(params=["threads", "loop"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of client: they share their code, but not their connections."""
    return str(request.param)


@pytest.fixture
async def make(kind: str) -> AsyncIterator[Make]:
    """``make(url, ...)`` creates a client, which is closed at the end."""
    made: list[Any] = []

    def do(url: str, **options: Any) -> Any:
        client: Any
        if kind == "threads":
            client = Threaded(Client(url, **options))
        else:
            client = AsyncClient(url, **options)
        made.append(client)
        return client

    yield do
    for client in made:
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing


@pytest.fixture
def remote(make: Make, suite: Suite) -> Any:
    """A client of the module's suite."""
    return make(suite.url)


@pytest.fixture
def jobs(remote: Any, queue: str) -> Any:
    """The queue of the test, over a client."""
    return remote.queue(queue)


@pytest.fixture
def proxy(suite: Suite) -> Any:
    with Proxy(suite.port) as opened:
        yield opened


@pytest.fixture
def far(make: Make, proxy: Proxy, queue: str) -> Any:
    """The queue of the test, over a client and the proxy."""
    return make(proxy.url).queue(queue)


@pytest.fixture(params=["library", "client"])
async def place(request: pytest.FixtureRequest, tmp_path: Path, suite: Suite) -> AsyncIterator[Any]:
    """The library, or the async client, from which the one for threads is generated."""
    if request.param == "library":
        with Spool(tmp_path / "mq") as spool:
            yield spool
    else:
        async with AsyncClient(suite.url) as client:
            yield client
