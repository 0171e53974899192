"""Signed requests of strangers, as `test_strangers` with signatures.

The body is not read if the key is unknown or has no rights. A signature covers the
body, so a wrong one, or one that lacks a right on what the body names, is refused after it:
nothing is stored or kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from fsmq.spool import Spool
from tests.harness.suite import PATIENCE_S, eventually_on_loop
from tests.http.keyfile import add_key
from tests.http.served import SQS, Served
from tests.http.test_strangers import FORM, LENGTHS
from tests.http.test_tenants import requests_of_actions

import botocore.auth  # isort: skip
from botocore.auth import SigV4Auth  # isort: skip
from botocore.awsrequest import AWSRequest  # isort: skip
from botocore.credentials import Credentials  # isort: skip

UNKNOWN = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
# A key may learn that a topic is missing, and may do actions on itself.
NAMES = ("*", "topics/*", "logs/*", "logs/*/*")
HARMLESS = ("GetCallerIdentity", "ListQueues", "ListTopics", "ListSubscriptions", "Unsubscribe")


class Signing(NamedTuple):
    """A server with keys that sign, by names."""

    served: Served
    spool: Spool
    keys: dict[str, Credentials]


@pytest.fixture
async def signing(root: Path, tmp_path: Path) -> AsyncIterator[Signing]:
    file = tmp_path / "keys.toml"
    keys = {"unknown": UNKNOWN}
    everything = [f"--{right}={name}" for right in ("send", "receive", "admin") for name in NAMES]
    for name, rights in (
        ("all", everything),
        ("idle", ["--send=nothing"]),
        ("other", ["--send=x"]),
    ):
        told = add_key(file, name, "--aws", *rights).split()
        keys[name] = Credentials(*(line.partition("=")[2] for line in told))
    file.write_text(file.read_text().replace('send = ["nothing"]\n', ""))
    with Spool(root, sync="none") as spool:
        for queue in ("bbb-q", "aaa-q", "aaa-dead", "bbb-dead", "aaa-alone"):
            spool.create_queue(queue)
            spool.queue(queue).put(b"x")
        for topic in ("aaa-t", "bbb-t"):
            spool.create_topic(topic)
            spool.subscribe(topic, "bbb-q")
        async with Served(spool, file, sqs_auth="signature") as served:
            yield Signing(served, spool, keys)


def signed(head: str, body: bytes, by: Credentials, *, late_s: float = 0.0) -> str:
    """A head with a signature, made by Amazon's library."""
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    given = dict(line.split(": ", 1) for line in lines if not line.startswith("Authorization"))
    request = AWSRequest(method, f"http://127.0.0.1{target}", given, body)
    real = botocore.auth.get_current_datetime
    botocore.auth.get_current_datetime = lambda **_: datetime.now(UTC) - timedelta(seconds=late_s)
    try:
        SigV4Auth(by, "sqs", "us-east-1").add_auth(request)
    finally:
        botocore.auth.get_current_datetime = real
    lines = [f"{name}: {value}" for name, value in request.headers.items()]
    return "\r\n".join([first, *lines, ""])


def heads(served: Served, length: int) -> Iterator[tuple[str, str]]:
    """Heads of every action in both protocols and at each path."""
    length_line = f"Content-Length: {length}\r\n"
    for version, action in served.actions():
        if version == SQS:
            for path in ("/", "/000000000000/bbb-q"):
                head = f"POST {path} HTTP/1.1\r\nX-Amz-Target: AmazonSQS.{action}\r\n{length_line}"
                yield f"json {action} {path}", head
        query = urlencode({"Action": action, "Version": version})
        for path in ("/", f"/?{query}", f"/000000000000/bbb-q?{query}"):
            yield f"form {version} {action}", f"POST {path} HTTP/1.1\r\n{length_line}{FORM}"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("who", ["unknown", "idle", "late"])
async def test_no_body_is_read_before_the_signer_is_known(
    signing: Signing, who: str, length: int
) -> None:
    served, asked = signing.served, 0
    by, late_s = (signing.keys["all"], 3600.0) if who == "late" else (signing.keys[who], 0.0)
    for name, head in heads(served, length):
        async with asyncio.timeout(PATIENCE_S):
            answer = await served.ask(signed(head, b"x" * length, by, late_s=late_s))
        assert answer.status in (400, 403), (name, answer)
        assert not served.has_waited, name
        asked += 1
    assert asked > 150


def files(root: Path) -> dict[str, bytes]:
    """All files of the spool."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for top in ("new", "queues", "delay", "topics", "moves", "remove")
        for path in sorted((root / top).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("who", ["forged", "changed", "other"])
async def test_a_wrong_signature_or_a_missing_right_changes_nothing(
    signing: Signing, who: str
) -> None:
    """With the bodies of all actions, which a key with all rights can do."""
    served, root = signing.served, signing.spool.tree.root
    by = signing.keys["other" if who == "other" else "all"]
    if who == "forged":
        by = Credentials(by.access_key, UNKNOWN.secret_key)
    before, asked = files(root), 0
    for one in requests_of_actions(served):
        head = signed(one.head, one.body, by)
        body = one.body[:-1] + b" " if who == "changed" else one.body
        answer = await served.ask(head, body)
        asked += 1
        if who != "other":
            assert answer.status == 403, (one.name, answer)
            assert b"Signature" in answer.body, (one.name, answer)
        elif one.route not in HARMLESS:
            assert answer.status in (400, 403, 404), (one.name, answer)
        assert files(root) == before, one.name
    assert asked > 90
    await eventually_on_loop(lambda: served.server.service.admission.memory == 0)


async def test_a_correct_signature_is_accepted(signing: Signing) -> None:
    """So the others are not refused for another reason."""
    body = json.dumps({"QueueUrl": "http://x/000000000000/bbb-q", "MessageBody": "told"}).encode()
    head = "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
    head += f"Content-Length: {len(body)}\r\n"
    answer = await signing.served.ask(signed(head, body, signing.keys["all"]), body)
    assert answer.status == 200, answer
    assert b"told" in {one.body for one in signing.spool.queue("bbb-q").peek()}
