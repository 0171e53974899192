"""No route of any dialect reads a body before it knows that the key has a right.

A stranger sends a head and not one byte of the body. If it is refused before the body
is read, the answer comes at once; else the server waits for longer than any test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp.web import Response

from fsmq.http.describe import Operation
from fsmq.http.routing import needs
from fsmq.http.routing.call import Call
from fsmq.http.routing.router import Router
from fsmq.spool import Spool
from tests.harness.suite import HOME, PATIENCE_S
from tests.http.keyfile import add_key
from tests.http.served import SQS, Answer, Route, Served

NAMES = {"schedule": "s", "offset": "0", "number": "1", "zone": "z"}
# The credentials of each dialect, with a place for the key.
KEY = {"emodb": "X-BV-API-Key: {}\r\nContent-Type: application/json\r\n"}
BEARER = "Authorization: Bearer {}\r\n"
SIGNED = "Authorization: AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/sqs/aws4_request\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
# For aiohttp, and for the fast path.
LENGTHS = (100_000, 100)
UNKNOWN = "fsmq_" + "x" * 43


@pytest.fixture
async def served(root: Path, tmp_path: Path) -> AsyncIterator[tuple[Served, str]]:
    """A server with a queue, and a key that has a right on another one."""
    file = tmp_path / "keys.toml"
    elsewhere = add_key(file, "elsewhere", "--send=elsewhere")
    add_key(file, "idle", "--send=x", existing="a-key-without-any-right")
    file.write_text(re.sub(r'send = \["x"\]\n', "", file.read_text()))
    with Spool(root, sync="none") as spool:
        spool.create_queue("q", index=True)
        async with Served(spool, file) as served:
            yield served, elsewhere


def target(route: Route) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: NAMES.get(name[1], "q"), route.pattern)


def heads(served: Served, length: int) -> list[tuple[str, str]]:
    """The heads of all requests that need a right, with {} for the key."""
    length_line = f"Content-Length: {length}\r\n"
    found = []
    for route in served.routes():
        if not route.open:
            head = f"{route.method} {target(route)} HTTP/1.1\r\n{length_line}"
            if route.dialect == "ui":
                head += f"Sec-Fetch-Site: same-origin\r\n{FORM}"
            found.append((f"{route.method} {route.pattern}", head + KEY.get(route.dialect, BEARER)))
    for version, action in served.actions():
        if version == SQS:
            head = f"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.{action}\r\n{length_line}"
            found.append((f"json {action}", head + SIGNED))
        query = urlencode({"Action": action, "Version": version})
        for path in ("/", f"/?{query}", f"/000000000000/q?{query}"):
            head = f"POST {path} HTTP/1.1\r\n{length_line}{FORM}"
            found.append((f"form {version} {action} {path}", head + SIGNED))
    return found


async def refused(served: Served, name: str, head: str) -> Answer:
    async with asyncio.timeout(PATIENCE_S):
        answer = await served.ask(head)
    assert answer.status in (401, 403) or (answer.status == 303 and "login" in answer.head), (
        name,
        answer,
    )
    return answer


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("key", ["", UNKNOWN, "a-key-without-any-right"])
async def test_no_body_is_read_without_a_known_key(
    served: tuple[Served, str], key: str, length: int
) -> None:
    server, _ = served
    found = heads(server, length)
    assert len(found) > 250
    for name, head in found:
        given = head.replace("{}", key) if key else re.sub(r"(?m)^[\w-]+: .*\{\}.*\r\n", "", head)
        await refused(server, name, given)
        assert not server.has_waited, name


async def test_no_body_is_read_without_a_right_on_the_names_in_the_path(
    served: tuple[Served, str],
) -> None:
    server, elsewhere = served
    asked = 0
    for route in server.routes():
        names = {"{queue}", "{topic}", "{log}", "{channel}"}
        if not names.isdisjoint(route.pattern.split("/")):
            head = f"{route.method} {target(route)} HTTP/1.1\r\nContent-Length: 100000\r\n"
            head += f"Sec-Fetch-Site: same-origin\r\n{FORM}" if route.dialect == "ui" else ""
            head += KEY.get(route.dialect, BEARER).replace("{}", elsewhere)
            await refused(server, f"{route.method} {route.pattern}", head)
            asked += 1
    assert asked > 100


async def test_the_size_limit_of_forms_allows_the_largest_batch(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, "sender", "--send=q")
    signed = SIGNED.replace("{}", key)
    with Spool(root, sync="none") as spool:
        spool.create_queue("q")
        async with Served(spool, file) as served:

            async def post(entries: dict[str, bytes], path: str = "/000000000000/q") -> Answer:
                given = {"Action": "SendMessageBatch", "Version": SQS}
                body = urlencode(given).encode()
                for number, (name, text) in enumerate(entries.items(), 1):
                    entry = f"&SendMessageBatchRequestEntry.{number}"
                    escaped = "".join(f"%{byte:02X}" for byte in text)
                    body += f"{entry}.Id={name}{entry}.MessageBody={escaped}".encode()
                head = f"POST {path} HTTP/1.1\r\n{FORM}Content-Length: {len(body)}\r\n"
                return await served.ask(head + signed, body)

            share = 1024 * 1024 // 4
            answer = await post({f"e{n}": b"A" * share for n in range(4)})
            assert answer.status == 200, answer
            assert answer.body.count(b"<SendMessageBatchResultEntry>") == 4
            answer = await post({"e": b"A" * (3 * 1024 * 1024)})
            assert answer.status == 413, answer
    with Spool(root, sync="none") as spool:
        stored = spool.queue("q").peek()
        assert [len(one.body) for one in stored] == [share] * 4


def test_a_route_names_its_rights_or_is_open() -> None:
    async def handler(call: Call) -> Response:
        raise AssertionError("nobody gets here")

    def operation(is_open: bool) -> Operation:
        return Operation("some", "Some", "Some", {}, open=is_open)

    router = Router()
    for is_open, need in ((False, None), (True, needs.anybody)):
        with pytest.raises(ValueError, match="say one of the two"):
            router.add("GET", "/some", handler, operation(is_open), need)
    assert not router.routes()


def test_bodies_are_read_in_one_module() -> None:
    reads = re.compile(r"content\.read|request\.(?:read|post|text|json|multipart)\(")
    modules = (HOME / "fsmq" / "http").rglob("*.py")
    assert [one.stem for one in modules if reads.search(one.read_text())] == ["body_reader"]


async def test_a_call_refuses_to_read_a_body_before_rights_are_checked(
    served: tuple[Served, str],
) -> None:
    server, elsewhere = served
    native = server.server._native
    tried: list[str] = []

    async def handler(call: Call) -> Response:
        tried.append((await call.body(10, 1.0)).decode())
        return Response()

    async def early(call: Call) -> None:
        for read in (call.body, call.json_body):
            with pytest.raises(RuntimeError, match="before rights were checked"):
                await read(10, 1.0)
        with pytest.raises(RuntimeError, match="before rights were checked"):
            await call.discard_body(1.0)
        tried.append("early")

    identify = native.identify

    async def read_first(call: Call) -> object:
        await early(call)
        return await identify(call)

    native.identify = read_first  # type: ignore[method-assign, assignment]
    native.router.add(
        "POST", "/_some", handler, Operation("some", "Some", "Some", {}), needs.anybody
    )
    head = "POST /_some HTTP/1.1\r\nContent-Length: 2\r\n" + BEARER.replace("{}", elsewhere)
    assert (await server.ask(head, b"ab")).status == 200
    assert tried == ["early", "ab"]
