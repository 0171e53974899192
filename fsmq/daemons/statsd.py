"""statsd: the counts of this process as UDP datagrams, with Dynamiq's keys.

One or more datagrams are sent at every interval, and may be lost. Each process sends its own
counts, which statsd adds up; the first process also sends figures of the whole spool.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal

from fsmq.daemons.process.logs import get_logger
from fsmq.spool.errors import FsmqError
from fsmq.spool.records.metrics import Key, Metrics
from fsmq.spool.views.counts import Overview

log = get_logger(__name__)

Survey = Callable[[], Awaitable[Mapping[str, Overview]]]
Tags = Literal["none", "dogstatsd"]
# Fits into an Ethernet frame without being fragmented.
_MAX_DATAGRAM = 1432
# Which of our counts each counter sends, by the end of its key.
_COUNTERS = {"sent": "put", "received": "claim", "deleted": "remove"}
_unsafe = re.compile(r"[:|@#]")


class Statsd(asyncio.DatagramProtocol):
    """Sends metrics to an address.

    prefix: put before every key, with its dot.
    tags: ``none`` has the queue in the key, ``dogstatsd`` as a tag after the value.
    survey: asked for the depth of all queues; None if another process sends that.
    """

    def __init__(
        self, metrics: Metrics, prefix: str, tags: Tags, node: str, survey: Survey | None
    ) -> None:
        self._metrics = metrics
        self._prefix = prefix
        self._tags = tags
        self._node = node
        self._survey = survey
        self._sent: dict[Key, int] = {}

    async def run(self, address: str, interval: float) -> None:
        """Send for ever; an address that cannot be reached is tried again each time."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        transport: asyncio.DatagramTransport | None = None
        failing = False
        while True:
            await asyncio.sleep(interval)
            try:
                if transport is None or transport.is_closing():
                    where = (host.strip("[]"), int(port))
                    transport, _ = await loop.create_datagram_endpoint(
                        lambda: self, remote_addr=where
                    )
                for datagram in _datagrams(await self.lines()):
                    transport.sendto(datagram)
                failing = False
            except (OSError, FsmqError) as error:
                if not failing:  # logged once
                    log.warning("cannot send metrics", address=address, error=error)
                failing = True

    async def lines(self) -> list[str]:
        """The lines to send, of what has changed since the last call."""
        snapshot = self._metrics.snapshot_quietly()
        lines: list[str] = []
        depths: dict[str, int] = {}
        for word, what in _COUNTERS.items():
            for queue, more in self._increments(snapshot.counts, what):
                lines.append(self._line(queue, word, f"{more}|c"))
                if word != "received":
                    depths[queue] = depths.get(queue, 0) + (more if word == "sent" else -more)
        for queue, change in depths.items():
            if change:
                lines.append(self._line(queue, "depth", f"{change:+d}|g"))
        for key, share in snapshot.gauges.items():
            if key[0] == "fill":
                lines.append(self._line(key[1], "fill", f"{int(100 * share)}|g"))
        self._sent = snapshot.counts
        if self._survey is not None:
            for queue, found in (await self._survey()).items():
                lines.append(self._line(queue, "approximate_depth", f"{found.counts.total}|g"))
        return lines

    def _increments(self, counts: dict[Key, int], what: str) -> Iterator[tuple[str, int]]:
        for key, number in counts.items():
            more = number - self._sent.get(key, 0)
            if key[0] == what and more > 0:
                yield key[1], more

    def _line(self, queue: str, word: str, value: str) -> str:
        if self._tags == "none":
            # A colon ends a key, so a queue cannot have one there.
            return f"{self._prefix}{_unsafe.sub('_', queue)}.{word}.count:{value}"
        return f"{self._prefix}{word}.count:{value}|#queue:{queue},node:{self._node}"

    def error_received(self, exc: Exception) -> None:
        """Ignore that nobody listens there."""


def _datagrams(lines: list[str]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        encoded = line.encode()
        if part and size + len(encoded) + 1 > _MAX_DATAGRAM:
            yield b"\n".join(part)
            part, size = [], 0
        part.append(encoded)
        size += len(encoded) + 1
    if part:
        yield b"\n".join(part)
