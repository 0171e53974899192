"""Many large bodies stay within the memory limit for bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.test_limits import memory
from tests.http.test_memory import peak

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
LIMIT = 128 * MIB
# The margin that docs/security.md allows.
BEYOND = 64 * MIB
AT_A_TIME = 24
LONG = b"x" * (15 * MIB)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SEND = {"X-Amz-Target": "AmazonSQS.SendMessage"}
URL = b"http://localhost/000000000000/q"
# Name of a case, and a function that makes its body.
BODIES: tuple[tuple[str, str, Mapping[str, str], Callable[[], bytes]], ...] = (
    ("messages", "/q/messages", {}, lambda: LONG),
    ("batches", "/q/batch", {}, lambda: b'[{"body": "%b"}, {"body": "%b"}]' % (LONG, LONG)),
    ("ids", "/q/ack", {}, lambda: b'{"ids": ["%b"]}' % LONG),
    ("batches of a log", "/_logs/l/batch", {}, lambda: b'[{"body": "%b"}]' % LONG),
    ("messages of EmoDB", "/queue/1/q/send", {}, lambda: b'"%b%b"' % (LONG, LONG)),
    ("ids of EmoDB", "/queue/1/q/ack", {}, lambda: b'["%b", "%b"]' % (LONG, LONG)),
    (
        "batches of EmoDB",
        "/queue/1/q/sendbatch",
        {},
        lambda: b'["%b"]' % b'", "'.join([LONG[:30_000]] * 1000),
    ),
    (
        "messages of SQS",
        "/",
        SEND,
        lambda: b'{"QueueUrl": "%b", "MessageBody": "%b"}' % (URL, LONG[: 7 * MIB]),
    ),
    (
        "forms of SQS",
        "/",
        FORM,
        lambda: b"Action=SendMessage&QueueUrl=%b&MessageBody=%b" % (URL, LONG[: 4 * MIB]),
    ),
)


@pytest.fixture
def small(root: Path) -> Iterator[Suite]:
    """mq alone, with half of the usual memory for bodies."""
    options = ["--sync=none", "--dialects=emodb,dynamiq,sqs", f"--max-body-memory={LIMIT}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        with Wire(suite.url) as wire:
            for made in ("/q", "/_logs/l"):
                assert wire.ask("PUT", made).status == 201
        yield suite


@pytest.mark.parametrize(
    ("target", "headers", "make"), [pytest.param(*rest, id=name) for name, *rest in BODIES]
)
def test_large_bodies_stay_within_the_memory_limit(
    small: Suite, target: str, headers: Mapping[str, str], make: Callable[[], bytes]
) -> None:
    body = make()
    given = {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}

    def send(_: int) -> int:
        with Wire(small.url, 60) as wire:
            wire.request("POST", target, given)
            with suppress(OSError):  # the answer can come before the end of the body
                wire.send(body)
            with suppress(OSError, AssertionError):
                return wire.answer().status
        return 503

    assert send(0) != 503
    peak(small)
    before = memory(small)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        statuses = list(pool.map(send, range(AT_A_TIME)))
    assert set(statuses) <= {200, 201, 400, 503}
    assert peak(small) - before < LIMIT + BEYOND
    if target == "/q/messages":
        stored = list((small.root / "queues" / "q").iterdir())
        assert len(stored) == 1 + statuses.count(201)
    eventually(lambda: send(0) != 503)  # all of the memory is given back
