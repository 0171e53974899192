"""Each operation names the errors that its handler answers, and no others."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.admission import Admission
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.spool import Spool
from fsmq.spool.layout.tree import Tree
from tests.http.keyfile import add_key

# Operations that delete or create things come last, in this order.
LATE = [
    "move",
    "redrive",
    "stop_move",
    "purge",
    "remove",
    "unsubscribe",
    "delete_queue",
    "delete_topic",
    "create_queue",
    "create_topic",
    "delete_schedule",
    "define_schedule",
    "done_one",
    "done",
    "seek",
    "delete_channel",
    "delete_log",
    "create_channel",
    "create_log",
]
OTHERS = ("EmoDB", "Dynamiq")
VOID, NOT_IN_FLIGHT = b'{"offsets": [0], "generation": 9}', b'{"offsets": [7]}'
EVERYTHING = ("*", "topics/*", "logs/*", "logs/*/*")
# Errors from before the handler, or independent of the operation.
OF_ALL = {"malformed-request", "internal-error"}
# Query and body by operation. The id exists.
GOOD = {
    "configure_queue": ("", b"{}"),
    "cluster": ("health=true", b""),
    "claim_several": ("queues={queue}", b""),
    "history": ("queue=q", b""),
    "batch": ("", b'[{"body": "x", "id": "m"}]'),
    "ack": ("", b'{"ids": ["none"]}'),
    "move": ("to=other", b""),
    "redrive": ("to=other", b""),
    "post": ("id=m", b"x"),
    "publish": ("", b"x"),
    "put_by_id": ("", b'[{"body": "x", "id": "new"}]'),
    "act_by_id": ("", b'{"do": "find", "ids": ["m"]}'),
    "publish_to_log": ("", b"x"),
    "publish_many_to_log": ("", b'[{"body": "x"}]'),
    "define_schedule": ("", b'{"cron": "@daily", "queue": "q"}'),
    "configure_schedule": ("", b"{}"),
    "configure_log": ("", b"{}"),
    "configure_channel": ("", b"{}"),
    "seek": ("to=1", b""),
    "done": ("", b'{"offsets": [0]}'),
}
_REF = {"ref": "01900000-0000-7000-8000-000000000000"}
# Values for the names in paths; all exist but for the move. MISSING: one does not.
NAMES = {"queue": "q", "topic": "t", "id": "m", "zone": "z", **_REF}
NAMES |= {"schedule": "s", "log": "l", "channel": "c", "offset": "0"}
MISSING = ({"queue": "none"}, {"topic": "none"}, {"id": "none"}, {"ref": "none"})
MISSING += ({"schedule": "none"}, {"schedule": "lost"})
MISSING += ({"log": "none"}, {"channel": "none"}, {"offset": "7"})
FULL = {"schedule": "full", "queue": "full", "topic": "full", "log": "full"}
FULL_LOG = {"topic": "full-log"}
# Needs another host: tests/http/test_logs.py.
ELSEWHERE = {one: {"other-writer"} for one in ("publish", "publish_to_log", "publish_many_to_log")}
# Needs two ids that differ in their priority: tests/http/test_priority.py.
ELSEWHERE["change"] = {"duplicate-message"}
# Bodies that are refused: the headers, the bytes at once and those a little later.
ENDLESS = ((f"Content-Length: {2**40}\r\n", b"", b""), ("Content-Length: 5\r\n", b"x", b""))
BODIES = (
    ("Content-Encoding: br\r\nContent-Length: 1\r\n", b"x", b""),
    ("Expect: luck\r\nContent-Length: 1\r\n", b"x", b""),
    ("Transfer-Encoding: chunked\r\n", b"1\r\nx\r\n", b"no chunk\r\n"),
)
# The timeout for bodies of one server; that of the other is longer than any test.
HASTY_S, PATIENT_S = 0.1, 300.0
LATER_S = 0.1


class Described(NamedTuple):
    """One operation of the document."""

    id: str
    method: str
    path: str
    names: frozenset[str]  # the types of its errors
    takes: frozenset[str]  # the names of its parameters

    def target(self, query: str = "", **names: str) -> str:
        path = self.path.format(**(NAMES | names))
        good = GOOD.get(self.id, ("", b""))[0].format(**(NAMES | names))
        both = "&".join(filter(None, (good, query)))
        return f"{path}?{both}" if both else path

    @property
    def body(self) -> bytes:
        return GOOD.get(self.id, ("", b""))[1]


def described(document: dict[str, Any]) -> Iterator[Described]:
    """Native operations, without HEAD, whose answers have no body."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "head" or operation["tags"][0].startswith(OTHERS):
                continue
            errors = [told for status, told in operation["responses"].items() if status >= "400"]
            names = re.findall(r"`([a-z-]+)`", " ".join(told["description"] for told in errors))
            takes = frozenset(one["name"] for one in operation.get("parameters", ()))
            kinds = frozenset(names) - OF_ALL
            yield Described(operation["operationId"], method.upper(), path, kinds, takes)


def order(one: Described) -> int:
    return LATE.index(one.id) + 1 if one.id in LATE else 0


class Asked:
    """A server, and the types of its errors by operation."""

    def __init__(self, server: Server, token: str) -> None:
        self._server = server
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._token = token
        self.answered: dict[str, set[str]] = defaultdict(set)

    async def __aenter__(self) -> Asked:
        self._port = self._socket.getsockname()[1]
        await self._server.start([self._socket])
        return self

    async def __aexit__(self, *of: object) -> None:
        await self._server.stop(1.0)

    async def ask_as_strangers(self, one: Described, other: str, sender: str) -> None:
        """Without a key, with that of another tenant, and with one that sees a schedule's queue."""
        for token in ("", other, *([sender] if "{schedule}" in one.path else [])):
            await self.ask(one, token=token)

    async def ask_more(self, one: Described) -> None:
        """Requests for the errors of single operations."""
        if one.id == "read_log":
            await self.ask(one, one.target("from=0", log="gone"))
        if "X-Message-Claim" in one.takes:
            ended = ("X-Message-Claim: c9-99\r\n", b"", b"")
            await self.ask(one, one.target(queue="other"), rest=ended)
        if "generation" in one.takes:
            await self.ask(one, one.target("generation=9"))
        if "If-Match" in one.takes:
            await self.ask(one, rest=('If-Match: "x"\r\nContent-Length: 2\r\n', b"{}", b""))
        if "Idempotency-Key" in one.takes:
            head = "Idempotency-Key: m\r\nContent-Length: 2\r\n"
            await self.ask(one, rest=(head, b"xy", b""))
        for body in (VOID, NOT_IN_FLIGHT) if one.id == "done" else ():
            await self.ask(one, rest=(f"Content-Length: {len(body)}\r\n", body, b""))

    async def ask(
        self,
        one: Described,
        target: str = "",
        rest: tuple[str, bytes, bytes] | None = None,
        token: str | None = None,
    ) -> None:
        """Ask as an admin, or with another key (empty: without one), on a connection of its own."""
        headers, body, later = rest or (f"Content-Length: {len(one.body)}\r\n", one.body, b"")
        if token != "":
            headers += f"Authorization: Bearer {token or self._token}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"{one.method} {target or one.target()} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        writer.write(f"{head}Connection: close\r\n{headers}\r\n".encode() + body)
        if later:
            await asyncio.sleep(LATER_S)
            writer.write(later)
        status = int((await reader.readline()).split()[1])
        told = await reader.readuntil(b"\r\n\r\n")
        if status >= 400:
            problem = json.loads(await reader.readline())
            assert problem["status"] == status, told
            self.answered[one.id].add(problem["type"].rpartition(":")[2])
        writer.close()


def _make_schedules(spool: Spool) -> None:
    for schedule, queue in (("s", "q"), ("full", "full"), ("lost", "lost")):
        spool.schedule(schedule).define("@daily", queue)


def _make_logs(spool: Spool) -> None:
    """A log with a claimed message, a full one, and one whose first messages are gone."""
    log = spool.log("l", create=True)
    log.publish_many([b"x"] * 9)
    log.channel("c").create(from_="first", order="none")
    log.channel("c").claim(2)
    full = spool.log("full", create=True)
    full.channel("c", create=True)
    gone = spool.log("gone")
    gone.create(retain_for=0, retain_bytes=0, segment_bytes=4096)
    for _ in range(3):
        gone.publish(bytes(5000))
    spool.tend_logs()
    assert gone.first()
    (spool.tree.root / "logs" / "full" / "full").touch()


@contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let all calls relative to a folder fail, as on a lost disk."""

    def refuse(*of: object, **named: object) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        for name in ("open", "stat", "mkdir", "rename", "unlink", "utime", "rmdir", "link"):
            real = getattr(os, name)

            def call(*of: object, _real: Any = real, **named: object) -> Any:
                known = {"dir_fd", "src_dir_fd"} & named.keys()
                return (refuse if known else _real)(*of, **named)

            patched.setattr(os, name, call)
        patched.setattr(Tree, "_rename2", lambda *of: errno.EIO)
        yield


async def test_each_operation_names_the_errors_that_it_answers(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.toml"
    rights = ("send", "receive", "admin")
    admin = add_key(file, "admin", *(f"--{r}={of}" for r in rights for of in EVERYTHING))
    other = add_key(file, "other", "--send=elsewhere")
    sender = add_key(file, "sender", "--send=q")
    with Spool(root, sync="none") as spool:
        for queue in ("q", "other"):
            spool.create_queue(queue, index=True)
            spool.queue(queue).put(b"x", id="m")
        spool.create_queue("full", index=True)
        spool.queue("full").configure(max_depth=1)
        spool.queue("full").put(b"x")
        for topic in ("t", "full", "full-log"):
            spool.create_topic(topic)
        spool.subscribe("full", "full")
        _make_schedules(spool)
        _make_logs(spool)
        spool.subscribe("full-log", "logs/full")

        def server(limits: Limits, read_s: float) -> Server:
            access = Access(load(file))
            admission = Admission(limits)
            return Server(Service(spool, access=access, admission=admission, read_timeout=read_s))

        patient = server(Limits(), PATIENT_S)
        operations = sorted(described(patient.system.document()), key=order)
        async with Asked(patient, admin) as asked, Asked(server(Limits(), HASTY_S), admin) as hasty:

            async def provoke(one: Described) -> None:
                await asked.ask_as_strangers(one, other, sender)
                await asked.ask(one, one.target("no-such-parameter=1"))
                for names in (*MISSING, FULL, FULL_LOG):
                    await asked.ask(one, one.target(**names))
                await asked.ask_more(one)
                await asyncio.gather(*(asked.ask(one, rest=rest) for rest in BODIES))
                await asyncio.gather(*(hasty.ask(one, rest=rest) for rest in ENDLESS))

            await asyncio.gather(*(provoke(one) for one in operations if not order(one)))
            for one in filter(order, operations):
                await provoke(one)
            with refusing(monkeypatch):
                for one in operations:
                    await asked.ask(one)
        async with Asked(server(Limits(requests_per_key=0), PATIENT_S), admin) as strict:
            for one in operations:
                await strict.ask(one)
    for one in operations:
        answered = set().union(*(of.answered[one.id] for of in (asked, hasty, strict)))
        assert answered - OF_ALL == one.names - ELSEWHERE.get(one.id, set()), one.id
