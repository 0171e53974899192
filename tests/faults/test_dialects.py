"""Errors of each dialect on a bad disk; a publish reaches all queues or none, a move continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.inject import RENAMES, SYNCS, injected
from tests.faults.user import User, refused
from tests.harness.suite import Suite, eventually

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with Suite(tmp_path_factory.mktemp("faults") / "mq", mq_options=["--sync=fsync"]) as running:
        yield running


def counts(user: User, queue: str) -> dict[str, int]:
    found: dict[str, int] = user.ask("GET", f"/{queue}").json["messages"]
    return found


FAULTS = {
    "sync": f"{SYNCS}:error=EIO",
    "rename": f"{RENAMES}:error=EIO",
    # The second file can be renamed neither to its queue nor to new/. The calls that remove the
    # first one do not fail.
    "two renames": "renameat2:error=EIO:when=2..3",
}


@pytest.fixture
def subscribed(user: User) -> list[str]:
    """Three queues that are subscribed to the topic ``user.queue``."""
    queues = [user.queue, f"{user.queue}-2", f"{user.queue}-3"]
    assert user.ask("PUT", f"/_topics/{user.queue}").status == 201
    for queue in queues:
        user.ask("PUT", f"/{queue}")
        assert user.ask("PUT", f"/_topics/{user.queue}/queues/{queue}").status == 201
    return queues


def check_delivered(user: User, queues: list[str]) -> None:
    for queue in queues:
        assert user.ask("GET", f"/{queue}/messages?wait=15").body == b"to all"
        assert user.ask("GET", f"/{queue}/messages").status == 204


@pytest.mark.parametrize("fault", FAULTS)
def test_a_publish_reaches_all_queues_or_none(
    user: User, subscribed: list[str], fault: str
) -> None:
    with injected(user.suite, FAULTS[fault], programs=["mq"]) as hit:
        assert refused(user.ask("POST", f"/_topics/{user.queue}/messages", b"to all"))
        assert hit.hits >= 1
    # A count may be a second old.
    eventually(lambda: [sum(counts(user, queue).values()) for queue in subscribed] == [0, 0, 0])
    assert user.ask("POST", f"/_topics/{user.queue}/messages", b"to all").status == 201
    check_delivered(user, subscribed)


def test_a_publish_reaches_a_queue_that_fails_for_a_moment(
    user: User, subscribed: list[str]
) -> None:
    with injected(user.suite, "renameat2:error=EIO:when=2", programs=["mq"]) as hit:
        assert user.ask("POST", f"/_topics/{user.queue}/messages", b"to all").status == 201
        assert hit.hits == 1
    check_delivered(user, subscribed)  # the mover delivers one copy


def test_emodb_has_its_own_error(user: User) -> None:
    send = f"/queue/1/{user.queue}/send"
    with injected(user.suite, f"{SYNCS}:error=EIO"):
        answer = user.ask("POST", send, b'{"a": 1}', **JSON)
        assert answer.status == 503
        assert answer.headers["X-BV-Exception"].endswith("ServiceUnavailableException")
        assert int(answer.headers["Retry-After"]) >= 1
        batch = user.ask("POST", f"/queue/1/{user.queue}/sendbatch", b"[1, 2, 3]", **JSON)
        assert batch.status == 503
        dedup = user.ask("POST", f"/dedupq/1/{user.queue}-d/send", b"1", **JSON)
        assert dedup.status == 503
    size = f"/queue/1/{user.queue}/size"
    assert user.ask("GET", size).body == b"0"
    assert user.ask("POST", send, b'{"a": 1}', **JSON).status == 200
    assert user.ask("POST", f"/dedupq/1/{user.queue}-d/send", b"1", **JSON).status == 200
    polled: list[Any] = []

    def poll() -> list[Any]:
        polled.extend(user.ask("GET", f"/queue/1/{user.queue}/poll?ttl=30").json)
        return polled

    eventually(poll)
    assert [one["payload"] for one in polled] == [{"a": 1}]
    ack = json.dumps([one["id"] for one in polled]).encode()
    assert user.ask("POST", f"/queue/1/{user.queue}/ack", ack, **JSON).status == 200


def test_dynamiq_has_its_own_error(user: User) -> None:
    user.ask("PUT", f"/v1/queues/{user.queue}")
    with injected(user.suite, f"{SYNCS}:error=EIO"):
        answer = user.ask("PUT", f"/v1/queues/{user.queue}/message", b"text")
        assert answer.status == 503
        assert "I/O error" in answer.json["error"]
        assert int(answer.headers["Retry-After"]) >= 1
    assert user.ask("PUT", f"/v1/queues/{user.queue}/message", b"text").status == 200
    got = eventually(lambda: user.ask("GET", f"/v1/queues/{user.queue}/messages/1").json)
    assert [one["body"] for one in got] == ["text"]
    assert user.ask("DELETE", f"/v1/queues/{user.queue}/message/{got[0]['id']}").status == 200


def test_moves_continue_after_a_fault(user: User) -> None:
    """Also those behind a move that failed."""
    target = f"{user.queue}-target"
    assert user.ask("PUT", f"/{target}").status == 201
    for _ in range(20):
        assert user.post().status == 201
    with injected(user.suite, f"{RENAMES}:error=EIO", programs=["mq"], paths=[user.suite.root]):
        answer = user.ask("POST", f"/{user.queue}/move?to={target}")
        assert answer.status == 503
    with injected(user.suite, f"{SYNCS}:error=EIO:when=4+", programs=["mq"]) as fault:
        answer = user.ask("POST", f"/{user.queue}/move?to={target}")
        assert answer.status == 202, answer
        eventually(lambda: fault.hits)
    where = f"/_moves/{answer.json['move']}"
    eventually(lambda: user.ask("GET", where).json["status"] == "complete")
    user.queue = target
