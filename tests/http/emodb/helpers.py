"""EmoDB's verbs over real HTTP, as its clients send them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.helpers import Answer, ask

JSON = {"Content-Type": "application/json"}
EXCEPTION = "X-BV-Exception"
ILLEGAL = "java.lang.IllegalArgumentException"
UNAUTHORIZED = "com.bazaarvoice.emodb.common.api.UnauthorizedException"
SUCCESS = b'{"success":true}'
SERVICES = ("queue", "dedupq")


def sides(service: str, name: str) -> list[str]:
    """The queues of the spool that a queue is."""
    return [name] if service == "queue" else [f"__dedupq_write:{name}", f"__dedupq_read:{name}"]


@dataclass
class Emo:
    """A queue of one of the two services."""

    client: ClientSession
    suite: Suite
    service: str
    name: str

    def path(self, verb: str = "") -> str:
        return f"/{self.service}/1/{self.name}" + (f"/{verb}" if verb else "")

    async def get(self, verb: str, query: str = "", **options: Any) -> Answer:
        return await ask(self.client, "GET", f"{self.path(verb)}?{query}", **options)

    async def post(self, verb: str, body: Any = None, query: str = "", **options: Any) -> Answer:
        """Post JSON; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        options = {"headers": JSON, "data": data} | options
        return await ask(self.client, "POST", f"{self.path(verb)}?{query}", **options)

    async def send(self, *messages: Any) -> None:
        """Send messages, one after the other."""
        for message in messages:
            assert (await self.post("send", message)).body == SUCCESS

    async def send_all(self, messages: list[Any]) -> None:
        assert (await self.post("sendbatch", messages)).body == SUCCESS

    async def poll(self, ttl: int = 30, limit: int = 10) -> list[Any]:
        answer = await self.get("poll", f"ttl={ttl}&limit={limit}&partitioned=false")
        assert answer.status == 200, answer
        return list(answer.json)

    async def peek(self, limit: int = 10) -> list[Any]:
        answer = await self.get("peek", f"limit={limit}")
        assert answer.status == 200, answer
        return list(answer.json)

    async def size(self) -> int:
        return int((await self.get("size")).body)

    async def claims(self) -> int:
        return int((await self.get("claimcount", "partitioned=false")).body)

    async def ack(self, *messages: Any) -> None:
        answer = await self.post("ack", [m["id"] for m in messages], "partitioned=false")
        assert (answer.status, answer.body) == (200, SUCCESS), answer

    async def renew(self, *messages: Any, ttl: int = 30) -> None:
        answer = await self.post("renew", [m["id"] for m in messages], f"ttl={ttl}")
        assert (answer.status, answer.body) == (200, SUCCESS), answer


def payloads(messages: list[Any]) -> list[Any]:
    return [message["payload"] for message in messages]
